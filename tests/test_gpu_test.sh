#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# scripts/test-gpu itself, over a bundle of programs that only pretend: what it makes of those that
# succeed, fail, have nothing to run, do not end, or leave something behind, and its exit codes.
# What it says of a real GPU is the business of a machine with one: gpu_test runs it there.

set -euo pipefail
root=${SHARE_TEST_SOURCE:-$(dirname "$0")/..}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bundle=$scratch/bundle
mkdir -p "$bundle"/{bin,tests,share} "$scratch/driver"

fail()
{
	cat "$scratch/out"
	echo "FAILED: $*"
	exit 1
}

# program PATH: with the script on stdin
program()
{
	{ echo '#!/bin/bash' && cat; } >"$bundle/$1"
	chmod +x "$bundle/$1"
}

# Criterion's words, for a program that passes, skips and fails so many tests
criterion()
{
	program "tests/$1" <<-END
		for argument; do
			[[ \$argument != --tap=* ]] || exec >"\${argument#--tap=}"
		done
		for ((i = 0; i < $2; i++)); do echo 'ok - a::test  (0.00s)'; done
		for ((i = 0; i < $3; i++)); do echo "ok - a::test  # SKIP no \$SHARE_TEST_KINDS here"; done
		for ((i = 0; i < $4; i++)); do echo 'not ok - a::test  (0.00s)'; done
		(($4 == 0))
	END
}

# test-gpu, with the driver that is none but is there; its exit code has to be $1
run()
{
	local expected=$1 code=0

	shift
	LD_LIBRARY_PATH=$scratch/driver "$root/scripts/test-gpu" "$@" "$bundle" >"$scratch/out" 2>&1 ||
		code=$?
	((code == expected)) || fail "exit code $code, not $expected"
}

# A line of the output is like this one.
said()
{
	grep -qE -- "$1" "$scratch/out" || fail "it did not say $1"
}

touch "$scratch/driver/libcuda.so.1"
: >"$scratch/out"

# before there is a bundle
run 1
said 'scripts/make-bundle makes it'

echo 'version: of this test' >"$bundle/MANIFEST"
cat >"$bundle/gpu-tests" <<-END
	# a comment
	gpu-facts  -           10
	good_test  vmm,mempool 10
	none_test  vmm         10
END
program bin/share-run <<-'END'
	shift
	exec "$@"
END
program bin/sharectl <<-'END'
	echo '{"device":"GPU-1","name":"Pretended"}'
END
program bin/pipeline <<-'END'
	echo "pipeline: ok kind=$2 copies=0"
END
program bin/share-bench <<-'END'
	echo '{"name":"'$2'.a","value":3.0,"unit":"MiB","floor":null,"ratio":null,"target":4.0}'
	echo '{"name":"'$2'.b","value":5.0,"unit":"us","floor":2.0,"ratio":2.5,"target":2.0}'
END
program bin/nvidia-cuda-mps-control <<-'END'
	[[ -d $CUDA_MPS_PIPE_DIRECTORY ]] || exit 1
	cd "$CUDA_MPS_PIPE_DIRECTORY"
	[[ ${1-} != -d ]] || exec touch runs
	read -r command
	[[ -e runs && ($command == quit || $command == get_server_list) ]] || exit 1
	echo 4711
	echo "$command" >>"${0%/*}/../mps"
END
program tests/gpu-facts <<-'END'
	echo 'water is wet: ok 3 us'
	echo 'all is well: skipped (who knows)'
END
criterion good_test 3 1 0
criterion none_test 0 2 0

run 0 --output "$scratch/results.md"
said '^gpu-facts +- +ok +1 facts hold, 0 do not, 1 skipped'
said '^good_test +vmm +ok +3 tests, 1 skipped \(no vmm here\)'
said '^good_test +mempool +ok +3 tests, 1 skipped \(no mempool here\)'
said '^none_test +vmm +skipped +no vmm here'
said '^demo +mempool +ok +kind=mempool copies=0'
said '^cuda_pipeline +vmm +skipped +the bundle was made without nvcc'
said '^frameworks +vmm +skipped +the bundle was made without the Python package'
said '^import +- +ok +2 figures'
said '^device-memory\.a +3\.00 MiB +<= 4\.00 MiB: met'
for bench in alloc-magazine fence stream-free hand-over-gpu channel-gpu; do
	said "^$bench +- +ok +2 figures"
done
said '^hand-over-gpu +mps +ok +2 figures'
said '^hand-over-gpu\.a +3\.00 MiB'
said '^hand-over-gpu\.a, mps +3\.00 MiB'
[[ $(tail -n 1 "$bundle/mps") == quit ]] || fail "MPS was not ended"
said '^import\.b +5\.00 us +2\.00 us +2\.50 +<= 2\.00 x: MISSED'
said '^test-gpu: ok, 1 GPU$'
# shellcheck disable=SC2016 # not a command
for line in '- bundle: of this test' '| good_test | vmm | ok | 3 tests, 1 skipped (no vmm here), ' \
	'| `import.b` | 5.00 us | 2.00 us | 2.50 | <= 2.00 x: MISSED |' 'water is wet: ok 3 us'; do
	grep -qF -- "$line" "$scratch/results.md" || fail "--output did not write $line"
done

# an example on a machine with one GPU, and one that says something else than "ok"
program bin/cuda_two_gpus <<<'echo never'
program bin/cuda_workers <<<'echo "cuda_workers: perhaps"'
run 1 --only '^cuda'
said '^cuda_two_gpus +vmm +skipped +1 GPU'
said '^cuda_workers +mempool +FAILED +exit code 1'
[[ $(tail -n 1 "$scratch/out") == 'test-gpu: FAILED: cuda_workers mempool' ]] ||
	fail "the failed ones are not last"
! grep -q good_test "$scratch/out" || fail "--only did not keep the others out"
rm "$bundle"/bin/cuda_*

# a package that installs, or not, and frameworks of which some pair fails
touch "$bundle/share/libshare-0.whl"
program bin/python3 <<<'[[ $2 != pip ]] || { echo "no module named pip"; exit 1; }'
run 0 --only frameworks
said '^frameworks +vmm +skipped +python3 -m pip does not work here: no module named pip'
program bin/python3 <<<'[[ $2 != pip ]] || exec mkdir site; echo "2 ordered pairs, 1 failed"; exit 1'
run 1 --only frameworks --output "$scratch/results.md"
said '^frameworks +mempool +FAILED +exit code 1, 2 ordered pairs, 1 failed'
grep -q '^2 ordered pairs' "$scratch/results.md" || fail "--output has no table of pairs"
rm "$bundle/bin/python3" "$bundle"/share/*.whl

# an MPS that nobody uses, one that does not start, none
program bin/nvidia-cuda-mps-control <<<'true'
run 0 --only hand-over-gpu
said '^hand-over-gpu +- +ok +2 figures'
said '^hand-over-gpu +mps +skipped +nobody became a client of MPS'
! grep -q 'hand-over-gpu\.a, mps' "$scratch/out" || fail "figures of an MPS that nobody used"
program bin/nvidia-cuda-mps-control <<<'echo "it must not"; exit 1'
run 0 --only hand-over-gpu
said '^hand-over-gpu +mps +skipped +MPS does not start: it must not'
rm "$bundle/bin/nvidia-cuda-mps-control"
if ! command -v nvidia-cuda-mps-control >/dev/null; then
	run 0 --only hand-over-gpu
	said '^hand-over-gpu +mps +skipped +there is no nvidia-cuda-mps-control'
fi

# one that fails; one that does not end; a broker that says that it is broken
criterion none_test 1 0 1
run 1 --only none
said '^none_test +vmm +FAILED +exit code 1, 1 tests, 1 failed'
program tests/none_test <<<'echo "what it was at" && exec sleep 1000'
sed -i 's/^none_test.*/none_test vmm 1/' "$bundle/gpu-tests"
run 1 --only none
said '^none_test +vmm +FAILED +did not end in time'
said '^what it was at$'
sed -i 's/^none_test.*/none_test vmm 10/' "$bundle/gpu-tests"
program tests/none_test <<<'echo "BUG: an account is not 0"'
run 1 --only none
said '^none_test +vmm +FAILED +the broker found a bug in itself'
said '^test-gpu: FAILED: none_test vmm$'

# no devices: with a driver, but without the device's file
if [[ ! -e /dev/nvidia0 ]]; then
	program bin/sharectl <<<'echo "sharectl: no device" >&2; exit 1'
	run 77
	said '^SKIPPED: no GPU here \(sharectl: no device\)$'
fi
echo "test-gpu judges as it should"
