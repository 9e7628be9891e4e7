#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The file system is full in which the programs make their sockets, or to which they write their logs:
# who cannot start says why, and what runs goes on. Root only, who can mount a small file system that nobody
# else sees.
#
# usage: full_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

full=$scratch/full

answers()
{
	sharectl --socket "$1" --json status >/dev/null 2>&1
}

row()
{
	sharectl --socket "$full/s" status | awk -v name="$1" '$1 == name { print $2 }'
}

# Not a byte, nor a name; nor a byte of the page that the log ends in.
fill()
{
	head -c "$((4096 - $(stat -c %s "$1") % 4096))" /dev/zero | tr '\0' '\n' >>"$1"
	until ! cat /dev/zero >>"$full/filler" 2>/dev/null; do :; done
	local n=0

	while touch "$full/$n" 2>/dev/null; do
		n=$((n + 1))
	done
}

in_small_file_system()
{
	local pid log=$full/log

	mount -t tmpfs -o size=64k,nr_inodes=24 full "$full"
	share-broker --socket "$full/s" 2>>"$log" &
	pid=$!
	check "a broker serves in it" until_true answers "$full/s"
	fill "$log"
	check "nothing more goes into its log" exits 1 touch "$full/more" 2>/dev/null

	check "no other one can start in it" exits 1 share-broker --socket "$full/t" 2>"$scratch/err"
	check "and says why" grep -q "$full/t: No space left on device" "$scratch/err"
	check "a private one starts in /tmp" env TMPDIR="$full" share-run true

	# What is logged of each finds no room.
	for _ in 1 2 3; do
		coproc HOLD { SHARE_SOCKET=$full/s exec cli-hold 1; }
		read -r -u "${HOLD[0]}" _
		kill -KILL "$HOLD_PID"
		wait "$HOLD_PID" 2>/dev/null || true
	done
	check "the first one serves" answers "$full/s"
	kill -KILL "$(row pid)"
	check "when it is killed, the next one goes on" answers "$full/s"
	check "and one of the same program from that" sharectl --socket "$full/s" upgrade >"$scratch/upgrade"
	check "a broker has died" same "$(row brokers_died)" 1
	rm "$full/filler"
	coproc HOLD { SHARE_SOCKET=$full/s exec cli-hold 1; }
	read -r -u "${HOLD[0]}" _
	kill -KILL "$HOLD_PID"
	wait "$HOLD_PID" 2>/dev/null || true
	check "and says how much is missing when there is room" until_true \
		grep -q 'stderr had no room for [0-9]* lines' "$log"
	kill -TERM "$pid"
	check "it ends with success" wait "$pid"
	check "and its last line is there" grep -q 'ends on SIGTERM' "$log"
}

if [[ ${1-} == inside ]]; then
	in_small_file_system
	finish
fi
mkdir "$full"
if ((EUID != 0)) || ! unshare --mount mount -t tmpfs full "$full" 2>/dev/null; then
	echo "skipped: only who may mount a file system can have one that is full"
	exit 77
fi
check "in a file system that is full" unshare --mount "$0" inside
finish
