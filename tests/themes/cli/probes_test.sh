#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Probes: each is passed when it should be, with the arguments that docs/operating.md says. gdb looks
# at them here, as it takes no rights for that and nothing of the kernel; that bpftrace finds them, and
# understands the example, is looked at where bpftrace is.
#
# usage: probes_test.sh LIBSHARE.SO, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

library=$(readlink -f "$1")
. "$(dirname "$0")/lib.sh"

if ! readelf -n "$library" | grep -q 'Provider: share'; then
	echo "skipped: built without <sys/sdt.h>"
	exit 77
fi
if ! command -v gdb >/dev/null; then
	echo "skipped: there is no gdb"
	exit 77
fi

# look NAME ARGUMENTS FORMAT: what gdb does at a probe.
look()
{
	local arguments='' i

	for ((i = 0; i < $2; i++)); do
		arguments+=", \$_probe_arg$i"
	done
	printf 'break -probe-stap share:%s\ncommands\nsilent\nprintf "probe %s %s\\n"%s\ncontinue\nend\n' \
		"$1" "$1" "$3" "$arguments"
}

program()
{
	printf 'set pagination off\nset debuginfod enabled off\nset confirm off\nbreak main\nrun\n'
	look alloc 3 '%lu %lu %lu'
	look publish 3 '%lu %s %lu'
	look send 3 '%lu %lu %u'
	look receive 4 '%lu %lu %u %lu'
	look release 2 '%lu %lu'
	printf 'continue\n'
}

broker()
{
	printf 'set pagination off\nset debuginfod enabled off\nset confirm off\nhandle SIGTERM nostop pass\n'
	look death 4 '%d %u %u %lu'
	look reclaim 3 '%lu %lu %lu'
	printf 'printf "it is watched\\n"\ncontinue\n'
}

broker >"$scratch/broker.gdb"
program >"$scratch/program.gdb"
export SHARE_SOCKET=$scratch/s
share-broker --socket "$SHARE_SOCKET" 2>"$scratch/broker.log" &
keeper=$!
trap 'kill "$keeper" 2>/dev/null || true; rm -rf "$scratch"' EXIT
until_true sharectl status >/dev/null 2>&1
serving=$(sharectl status | awk '$1 == "pid" { print $2 }')
gdb -nx -batch -x "$scratch/broker.gdb" -p "$serving" >"$scratch/broker.out" 2>&1 </dev/null &
gdb=$!
until_true grep -q '^it is watched' "$scratch/broker.out"
gdb -nx -batch -x "$scratch/program.gdb" --args cli-probed >"$scratch/program.out" 2>&1 </dev/null
until_true grep -q '^probe reclaim' "$scratch/broker.out"
kill "$serving"
wait "$gdb" || true

probe()
{
	sed -n "s/^probe $1 //p" "$scratch/program.out" "$scratch/broker.out"
}

read -r buffer size pool <<<"$(probe alloc)"
read -r producer sent data <<<"$(probe send)"
check "who allocates gets as much as it has asked for" same "$size" 5000
check "a pool has an identifier" test "${pool:-0}" -gt 0
check "it is published under its name" same "$(probe publish)" "$buffer probed 1"
check "it is sent, with 5 bytes" same "$sent $data" "$buffer 5"
read -r consumer received data number <<<"$(probe receive)"
check "it is received, as the first message" same "$received $data $number" "$buffer 5 0"
check "both ends are members" test "${producer:-0}" != "${consumer:-0}"
check "it is released" same "$(probe release)" "$buffer 5000"
read -r pid uid leases bytes <<<"$(probe death)"
check "the broker sees a death" test "${pid:-0}" -gt 1
check "of this user" same "$uid" "$(id -u)"
check "which holds something" test "$leases" -ge 0 -a "$bytes" -ge 0
check "the buffer's memory is free again" same "$(probe reclaim)" "$buffer 5000 $pool"
((failures == 0)) || tail -n 20 "$scratch"/*.out

if command -v bpftrace >/dev/null && ((EUID == 0)); then
	bpftrace -l "usdt:$library:share:*" >"$scratch/listed" 2>/dev/null || true
	check "bpftrace finds those of the library" same "$(wc -l <"$scratch/listed")" 5
	bpftrace -d "$SHARE_TEST_SOURCE/examples/held.bt" "$library" >"$scratch/program.ll" 2>&1 || true
	check "bpftrace understands the example" grep -q 'define i64 .*release' "$scratch/program.ll"
fi
finish
