#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# pipeline over the kinds of GPU memory, on a stand-in for the driver, which lets nobody touch the
# memory of its devices but by copies, as a real one; and what it says where there is no driver, or
# one without a device.
#
# usage: pipeline_gpu_test.sh FOLDER-OF-THE-STAND-IN

set -euo pipefail
. "$(dirname "$0")/lib.sh"

picture=${SHARE_TEST_SOURCE:?is not set}/examples/data/picture.ppm
export LD_LIBRARY_PATH=${1:?usage: pipeline_gpu_test.sh FOLDER-OF-THE-STAND-IN}
export SHARE_DUMPABLE=1 # processes open each other's memory there
export SHARE_STANDIN="machine=$$,devices=1"

for kind in vmm mempool; do
	run_example pipeline --kind $kind --consumers 2 --frames 4 "$picture"
	expect 0 "^pipeline: ok kind=$kind consumers=2 bytes=1843200 copies=0\$"
done
run_example pipeline --frames 2 "$picture"
expect 0 '^pipeline: ok kind=vmm consumers=3 bytes=1382400 copies=0$'

# a kind that cannot be had is no success, and auto says what it took instead
export SHARE_STANDIN="machine=$$,devices=0"
for kind in vmm mempool; do
	run_example pipeline --kind $kind "$picture"
	fails '^pipeline: share_pool_create: .*CUDA_ERROR_NO_DEVICE'
done
run_example pipeline --frames 2 "$picture"
expect 0 '^pipeline: ok kind=host consumers=3 bytes=1382400 copies=0$'
grep -qE '^kind host: .*CUDA_ERROR_NO_DEVICE' "$scratch/out"
