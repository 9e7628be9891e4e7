#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The benchmarks of GPU memory come to an end and report what docs/benchmarks.md promises, on a
# stand-in for the driver. Nothing is said about their figures, which mean nothing there. Without a
# driver they skip what they cannot do, and say why.
#
# usage: bench_gpu_test.sh FOLDER-OF-THE-STAND-IN

set -euo pipefail
export PATH=${SHARE_TEST_BIN:?is not set}:$PATH
unset SHARE_SOCKET SHARE_BROKER
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail()
{
	cat "$scratch/out" "$scratch/err"
	echo "FAILED: $*"
	exit 1
}

# run CODE BENCHMARK...
run()
{
	local expected=$1 code=0

	shift
	share-bench --quick --json "$@" >"$scratch/out" 2>"$scratch/err" || code=$?
	((code == expected)) || fail "$*: exit code $code, not $expected"
	check_ratios
}

# A ratio is that of the value to a floor that is in the same line; without one there is none.
check_ratios()
{
	awk '
		function number(key) {
			if (!match($0, "\"" key "\":[^,}]*"))
				return "missing"
			return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
		}
		{
			value = number("value"); floor = number("floor"); ratio = number("ratio")
			if (floor == "null" ? ratio == "null" : floor > 0 && ratio > 0 &&
				ratio * floor < value * 1.001 && ratio * floor > value * 0.999)
				next
			print "no ratio of value and floor: " $0
			wrong = 1
		}
		END { exit wrong }
	' "$scratch/out" || fail "a figure contradicts itself"
}

if [[ ! -e /dev/nvidia0 ]]; then
	run 77 gpu-alloc device-memory
	grep -q 'gpu-alloc: SKIPPED: .*libcuda' "$scratch/err" || fail "it did not say why"
	grep -q 'device-memory: SKIPPED: .*libcuda' "$scratch/err" || fail "it did not say why"
	run 0 gpu-alloc import
	grep -q '"name":"import.host.64MiB.later"' "$scratch/out" || fail "no figures of host memory"
	grep -q 'import.vmm.2MiB: SKIPPED: .*libcuda' "$scratch/err" || fail "it did not say why"
	run 77 stream-free hand-over-gpu channel-gpu
	grep -q 'stream-free: SKIPPED: .*libcuda' "$scratch/err" || fail "it did not say why"
	grep -q 'hand-over-gpu: SKIPPED: .*libcuda' "$scratch/err" || fail "it did not say why"
	grep -q 'channel-gpu: SKIPPED: .*libcuda' "$scratch/err" || fail "it did not say why"
	run 0 fence
	for figure in query wake wake.together; do
		grep -qE "\"fence.$figure\",.*\"floor\":[0-9]" "$scratch/out" ||
			fail "no fence.$figure of host streams"
	done
	grep -q 'fence on a GPU: SKIPPED: .*libcuda' "$scratch/err" || fail "it did not say why"
fi

export LD_LIBRARY_PATH=${1:?usage: bench_gpu_test.sh FOLDER-OF-THE-STAND-IN}
export SHARE_DUMPABLE=1 # processes open each other's memory there
export SHARE_STANDIN="machine=$$,memory=8589934592"
run 0 device-memory gpu-alloc import fence stream-free hand-over-gpu
[[ ! -s $scratch/err ]] || ! grep -q SKIPPED "$scratch/err" || fail "something was skipped"
for kind in vmm mempool; do
	for size in 2 64 1024; do
		grep -qE "\"import.$kind.${size}MiB.first\",.*\"floor\":[0-9]" "$scratch/out" ||
			fail "no first import of $size MiB, kind $kind, or without a floor"
		grep -q "\"import.$kind.${size}MiB.later\"" "$scratch/out" ||
			fail "no later import of $size MiB, kind $kind"
		grep -qE "\"import.$kind.${size}MiB.first-ahead\",.*\"floor\":[0-9]" "$scratch/out" ||
			fail "no import of $size MiB ahead, kind $kind, or without a floor"
	done
	for size in 4KiB 2MiB 64MiB; do
		for floor in async sync; do
			grep -qE "\"gpu-alloc.$kind.$size.$floor\",.*\"floor\":[0-9]" "$scratch/out" ||
				fail "no allocation of $size, kind $kind, against $floor"
		done
	done
	# contexts of the stand-in take nothing, so there is no ratio that could have a target
	grep -q "\"device-memory.$kind\"" "$scratch/out" || fail "no cost of kind $kind"
	for size in 4KiB 2MiB; do
		grep -qE "\"stream-free.$kind.$size\",.*\"floor\":[0-9]" "$scratch/out" ||
			fail "no allocation of $size on a busy stream, kind $kind"
	done
	for call in alloc publish lookup release; do
		grep -qE "\"stream-free.$kind.longest.$call\",.*\"target\":10000" "$scratch/out" ||
			fail "no longest $call of kind $kind"
	done
done
grep -q '"device-memory.vmm",.*"target":4' "$scratch/out" || fail "device-memory.vmm has no target"
for figure in fence.query fence.query.pending fence.wake fence.wake.together fence.signal \
	fence.wait fence.wait.reached fence.wake.gpu fence.wake.gpu.late \
	hand-over-gpu.{fence,name}{,.chain}.{host,event} \
	hand-over-gpu.name{,.chain}.relay hand-over-gpu.name.busy.fence; do
	grep -qE "\"$figure\",.*\"floor\":[0-9]" "$scratch/out" || fail "no $figure, or without a floor"
done

run 0 alloc-magazine
for kind in host vmm mempool; do
	for size in 512B 4KiB 64KiB 1MiB; do
		grep -qE "\"alloc-magazine.$kind.$size\",.*\"floor\":[0-9]" "$scratch/out" ||
			fail "no allocation of $size, kind $kind, from what the process keeps"
	done
done

# torch has no use for the stand-in, so there is no floor; a message costs the calls that it may
run 0 channel-gpu
grep -q 'channel-gpu.torch: SKIPPED: ' "$scratch/err" || fail "it did not say why there is no floor"
for size in 4KiB 1MiB 64MiB; do
	for figure in '' .p99 .whole .sleep .sleep.p99 .sleep.whole; do
		grep -q "\"channel-gpu.$size$figure\"" "$scratch/out" || fail "no channel-gpu.$size$figure"
	done
	for calls in signals acks; do
		grep -q "\"channel-gpu.$size.$calls\",\"value\":1.0," "$scratch/out" ||
			fail "a message of $size does not cost one signal ($calls)"
	done
	grep -qE "\"channel-gpu.$size.waits\",\"value\":(1.0|0\.[0-9]+)," "$scratch/out" ||
		fail "a message of $size costs more than one wait"
	grep -q "\"channel-gpu.$size.gates\",\"value\":0.0," "$scratch/out" ||
		fail "memory of $size is waited for that nobody uses"
done

# where the host keeps the fences, what is about the GPU's is not measured
SHARE_HOST_FENCES=1 run 0 fence stream-free hand-over-gpu
for name in 'fence on a GPU' stream-free.vmm stream-free.mempool; do
	grep -q "$name: SKIPPED: .*by the host" "$scratch/err" || fail "$name: it did not say why"
done
! grep -q '"fence.signal"' "$scratch/out" || fail "signals of a GPU that gives none"
grep -q '"hand-over-gpu.name.host"' "$scratch/out" || fail "no hand-over with fences of the host"
echo "the benchmarks of GPU memory report what they should"
