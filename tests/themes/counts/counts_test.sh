#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# How many instructions it takes to send, receive and acknowledge a message, to look for one in vain, to
# call a service and to allocate, to ask the broker, and to order work of a GPU, in this process and
# without the kernel and the driver; and how many the broker takes for what it is asked: none of these takes more than a few hundredths above what it took
# when this was last written down, and none calls the driver more often. Times say nothing on a machine
# that does other things as well; instructions are the same each time, of the same compiler and library
# of C. Where these are others, or there is no valgrind, the test is skipped, and says so.
#
# usage: counts_test.sh PROGRAM BROKERS_PROGRAM BROKER COMPILER SYSTEM FLAGS [GPU_PROGRAM STANDIN]
#
# Who makes something dearer on purpose writes the new count here, and why into docs/benchmarks.md. Who
# makes something cheaper does so, too, so that nobody loses it again.
set -euo pipefail

program=$1
brokers_program=$2
broker=$3
compiler=$4
system=$5
flags=$6
gpu=${7:-}
standin=${8:-}
# those of the counts below
counted_compiler="GNU 12"
counted_system="x86_64"
counted_flags="RelWithDebInfo"
counted_libc="glibc 2.36"
unset SHARE_SOCKET
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

skip()
{
	echo "SKIPPED: $*"
	exit 77
}

libc=$(getconf GNU_LIBC_VERSION 2>/dev/null || echo "another library of C")
[ "$compiler" = "$counted_compiler" ] || skip "counted with $counted_compiler, and this is $compiler"
[ "$system" = "$counted_system" ] || skip "counted on $counted_system, and this is $system"
[ "$flags" = "$counted_flags" ] || skip "counted in a build $counted_flags, and this is '$flags'"
[ "$libc" = "$counted_libc" ] || skip "counted with $counted_libc, and this is $libc"
valgrind=$(command -v valgrind) || skip "there is no valgrind"
command -v callgrind_annotate >/dev/null || skip "there is no callgrind_annotate"

# The same functions of the library of C on whatever processor; and no magazine of malloc() that fills
# otherwise.
export GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-ERMS,-FSRM,-RTM:glibc.malloc.tcache_count=7

turns=400 # as often the program calls each
# In hundredths. A thread of the library looks around now and then and does a part of what a sender
# has to: that is why it is more than one.
slack=6

# Of which channel, what, how many messages are in a call, instructions for each.
table="
broadcast send_64 64 573
broadcast recv_64 64 262
broadcast ack_64 64 109
broadcast send 1 1142
broadcast recv 1 842
broadcast ack 1 336
broadcast look 1 487
broadcast alloc 1 334
broadcast give 1 2324
broadcast recv_memory 1 1195
broadcast ack_memory 1 919
broadcast call 1 2653
broadcast answer 1 2011
queue send_64 64 836
queue send 1 1435
queue give 1 2629
request ping 1 1258
request ask_alloc 1 4567
request ask_lookup 1 4703
request ask_release 1 983
broker ping 1 4214
broker alloc_release 1 11603
broker lookup_release 1 8787
broker release 1 2912
"
# The same over the stand-in for the driver, with how often that is called.
gpu_table="
gpu fence_signal 1 901 4
gpu fence_wait 1 1999 4
gpu fence_wait_reached 1 644 0
gpu fence_query_pending 1 405 0
gpu fence_query 1 318 0
gpu gpu_alloc 1 649 2
gpu gpu_release 1 520 3
"

fail()
{
	[ ! -s "$scratch/log" ] || cat "$scratch/log"
	echo "FAILED: $*"
	exit 1
}

# What callgrind says of each function that counts: its name, instructions, and how often it was called.
count() # MODE [PROGRAM]
{
	COUNT_MODE=$1 "${2:-$program}" "$valgrind" "$scratch/out.$1" 2>"$scratch/log" >"$scratch/said.$1" ||
		fail "the program ended with $?"
	# the first thread is the program's
	callgrind_annotate --inclusive=yes --threshold=100 "$scratch/out.$1-01" |
		sed -nE 's/^ *([0-9,]+) .*:counted_([a-z0-9_]+)( .*)?$/\2 \1/p' | tr -d , >"$scratch/$1"
}

# What the broker says of all that it has done, and in the end what is of these requests.
count_broker() # WHAT
{
	local n out
	for n in 0 $turns; do
		out=$scratch/$1.$n
		SHARE_MAGAZINES=0 "$brokers_program" "$valgrind" "$out" "$broker" "$1" "$n" \
			2>"$scratch/log" || fail "the program that asks the broker ended with $?"
	done
	echo "$1 $(($(total "$out") - $(total "$scratch/$1.0")))" >>"$scratch/broker"
}

# What is above its bound may be so as that thread had much to do: it is counted anew.
count_again() # MODE
(
	case $1 in
	broadcast | queue)
		unset LD_LIBRARY_PATH SHARE_STANDIN SHARE_STANDIN_CALLS
		count "$1"
		;;
	request)
		unset LD_LIBRARY_PATH SHARE_STANDIN SHARE_STANDIN_CALLS
		SHARE_MAGAZINES=0 count request
		;;
	esac
)

total()
{
	sed -n 's/^totals: //p' "$1"
}

# Who connects before the broker listens could have sent descriptors ahead. Once nothing is left in its
# socket, nobody looks for some before each packet, where the kernel refuses them (6.16): that is before
# the first answer.
looks_for_descriptors() # TURNS, in instructions
{
	callgrind_annotate --inclusive=yes --threshold=100 "$scratch/ping.$1" 2>/dev/null |
		sed -nE 's/^ *([0-9,]+) .*:packet_peek_fds( .*)?$/\1/p' | tr -d ,
}

can_refuse_descriptors()
{
	[ "$(printf '%s\n' 6.16 "$(uname -r)" | sort -V | head -n 1)" = 6.16 ]
}

count broadcast
count queue
for what in ping alloc_release lookup_release release; do
	count_broker $what
done
SHARE_MAGAZINES=0 count request
if [ -n "$gpu" ]; then
	table+=$gpu_table
	export LD_LIBRARY_PATH=$standin SHARE_STANDIN=machine=$$ SHARE_STANDIN_CALLS=$scratch/calls
	count gpu "$gpu"
fi
if can_refuse_descriptors; then
	few=$(looks_for_descriptors 0) many=$(looks_for_descriptors $turns)
	[ $((many - few)) -lt $((turns * 10)) ] ||
		fail "the broker looks for descriptors before each packet: $few and $many instructions"
fi
late=0
printf '%-10s %-20s %12s %12s %12s\n' channel what instructions "counted once" "at most"
while read -r mode what n before calls; do
	[ -n "$mode" ] || continue
	most=$((before * (100 + slack) / 100))
	for again in true true false; do
		# what is of a header may be there once more
		sum=$(awk -v what="$what" '$1 == what && $2 > sum { sum = $2 } END { print sum }' "$scratch/$mode")
		[ -n "$sum" ] || fail "nothing was counted of $what"
		now=$((sum / n / turns))
		[ "$now" -gt "$most" ] && $again || break
		count_again "$mode" </dev/null
	done
	printf '%-10s %-20s %12d %12d %12d\n' "$mode" "$what" "$now" "$before" "$most"
	[ "$now" -le "$most" ] || late=$((late + 1))
	[ -n "$calls" ] || continue
	sum=$(awk -v what="$what" '$1 == what { print $2 }' "$scratch/said.$mode")
	[ "$sum" = "$calls" ] || fail "$what calls the driver $sum times, and $calls times before"
done <<<"$table"
[ "$late" = 0 ] || fail "$late of these take more instructions than they did"
