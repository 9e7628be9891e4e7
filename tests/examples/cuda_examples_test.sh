#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The examples with kernels, built by whoever has nvcc and run by whoever has a GPU: without one they
# say what is missing, and fail. With one, scripts/test-gpu runs them.

set -euo pipefail
. "$(dirname "$0")/lib.sh"

if [[ -e /dev/nvidia0 ]]; then
	echo "SKIPPED: there is a GPU, see gpu_test"
	exit 77
fi
# nor any driver
unset LD_LIBRARY_PATH

run_example cuda_two_gpus
fails '^cuda_two_gpus: owner: it takes two GPUs, and this process sees 0$'
for example in cuda_pipeline cuda_workers plain_cuda; do
	for kind in vmm mempool; do
		run_example $example $kind
		expect 1 '^$'
		grep -q "^$example: .*share_pool_create: .*libcuda" "$scratch/err"
	done
	run_example $example --kind vmm
	expect 1 '^$'
	grep -q "^usage: $example " "$scratch/err"
	run_example $example --help
	expect 0 .
	grep -q "^usage: $example " "$scratch/out"
done
for example in cuda_pipeline cuda_workers; do
	run_example $example
	expect 1 '^$'
	grep -q "^$example: kernels need GPU memory, and this is of kind host: .*libcuda" "$scratch/err"
done
