#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# "A night on call" of docs/operating.md: each command that has output there is run in a scene like
# the one that is told, and prints what is shown. Numbers differ from night to night, and so do
# users, sockets and the widths of columns; they are not compared.
#
# usage: night_test.sh STANDIN-DIRECTORY, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

document=$SHARE_TEST_SOURCE/docs/operating.md
user=$(id -un 2>/dev/null || id -u)
unset CUDA_VISIBLE_DEVICES CUDA_MPS_PIPE_DIRECTORY

# What is in the blocks under a heading of the night.
told()
{
	awk -v heading="### $1" '
		/^## / { night = $0 == "## A night on call" }
		/^##/ { on = night && $0 == heading }
		/^```/ { block = !block; next }
		on && block' "$document"
}

# From stdin to stdout: without what differs.
compared()
{
	sed -E -e "s#${SHARE_SOCKET:-/nowhere}#SOCKET#g" -e 's#/run/share/broker\.sock#SOCKET#g' \
		-e 's/0x[0-9a-f]+/0xN/g' -e 's/[0-9]+(\.[0-9]+)?/N/g' -e "s/ $user / USER /g; s/ $user\$/ USER/" \
		-e 's/ root / USER /g; s/ root$/ USER/' -e 's/ +/ /g; s/^ //'
}

# plays HEADING: its commands, one after the other, each with what it prints
plays()
{
	local line

	told "$1" >"$scratch/told"
	sed -n 's/^\$ //p' "$scratch/told" >"$scratch/commands"
	while IFS= read -r line; do
		echo "\$ $line"
		bash -c "$line" 2>&1 </dev/null || true
	done <"$scratch/commands" >"$scratch/played"
	grep -q . "$scratch/commands" || { echo "nothing is told under '$1'" && return 1; }
	diff -u --label "docs/operating.md, $1" --label printed \
		<(compared <"$scratch/told") <(compared <"$scratch/played")
}

# asks_in_vain TEXT: somebody asks for more than there is, is told so, and dies with what was left
asks_in_vain()
{
	exits 1 cli-hold 100 </dev/null >"$scratch/vain" 2>&1 && grep -q "$1" "$scratch/vain"
}

# besides share-run and sharectl
is_alone()
{
	[[ $(sharectl --json status) == *'"clients":3,'*'"leases":2000,'* ]]
}

# Somebody has nearly all of a pool, and somebody else has asked in vain.
full()
{
	coproc HOLD { exec cli-hold 2000; }
	local hold=$HOLD_PID
	read -r _ <&"${HOLD[0]}"

	check "who asks in vain is told" asks_in_vain "pool 'default' has no room"
	check "what that one had is free again" until_true is_alone
	check "a pool is full" plays "A pool is full"
	check "somebody leaks" plays "Somebody leaks"
	check "an upgrade" plays "An upgrade"
	exec {HOLD[1]}>&-
	wait "$hold"
}

slow()
{
	coproc HOLD { exec cli-hold channels; }
	local hold=$HOLD_PID
	read -r _ <&"${HOLD[0]}"

	check "somebody is slow" plays "Somebody is slow"
	exec {HOLD[1]}>&-
	wait "$hold"
}

agent()
{
	sharectl --json agents | sed -nE 's/.*"agent":([1-9][0-9]*),.*/\1/p'
}

is_replaced()
{
	[[ $(sharectl --json agents) == *'"agent":0,"replaced":1,'* ]]
}

# A driver that crashes is an agent that dies.
lost()
{
	coproc HOLD { exec cli-hold 1; }
	local hold=$HOLD_PID pid
	read -r _ <&"${HOLD[0]}"

	pid=$(agent)
	check "there is an agent" test -n "$pid"
	[[ -z $pid ]] || kill -KILL "$pid"
	check "the broker notices that it ended" until_true is_replaced
	check "a GPU is lost" plays "A GPU is lost"
	exec {HOLD[1]}>&-
	wait "$hold"
}

case ${1-} in
full | slow | lost)
	"$1"
	finish
	;;
esac

check "with a pool" share-run --config="$cli/night.json" -- "$0" full
check "with channels" share-run --config="$cli/night.json" -- "$0" slow
if [[ ${1-} ]]; then
	check "with a GPU" env LD_LIBRARY_PATH="$1" SHARE_STANDIN=devices=1 share-run -- "$0" lost
fi
SHARE_SOCKET=$scratch/nowhere
export SHARE_SOCKET
check "the broker is gone" plays "The broker is gone"
check "every call is played" \
	same "$(sed -n '/^## A night on call/,/^## Questions/p' "$document" | grep -c '^### ')" 6

# and what is not so is noticed
sed 's/^bad /good /' "$document" >"$scratch/wrong.md"
document=$scratch/wrong.md
check "other output is noticed" exits 1 plays "The broker is gone"
finish
