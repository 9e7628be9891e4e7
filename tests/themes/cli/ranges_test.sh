#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Ranges: under a profiler, each call of libshare that may take time begins one and ends it, also when
# it fails; without one, or with one that cannot be loaded, nothing is loaded and nothing changes.
#
# usage: ranges_test.sh PROFILER.SO, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

profiler=$(readlink -f "$1")
. "$(dirname "$0")/lib.sh"

unset NVTX_INJECTION64_PATH
export SHARE_TEST_RANGES=$scratch/ranges
share-run env NVTX_INJECTION64_PATH="$profiler" cli-probed
cat >"$scratch/expected" <<'END'
main domain libshare
main push share_connect
main pop
main push share_pool_open
main pop
main push share_channel_open
main pop
main push share_channel_open
main pop
main push share_alloc 5000
main pop
main push share_publish
main pop
main push share_send 5
main pop
main push share_recv
main pop
main push share_ack 1
main pop
main push share_release
main pop
END
check "each call has its range" diff -u "$scratch/expected" "$scratch/ranges"

rm -f "$scratch/ranges"
check "it fails without a broker" exits 1 env NVTX_INJECTION64_PATH="$profiler" \
	SHARE_SOCKET="$scratch/nobody" cli-probed
check "a call that fails ends its range" diff -u <(sed 3q "$scratch/expected") "$scratch/ranges"

rm -f "$scratch/ranges"
check "nothing changes without a profiler" share-run cli-probed
check "or with one that is not there" share-run env NVTX_INJECTION64_PATH="$scratch/nothing" cli-probed
check "and nothing is drawn" test ! -e "$scratch/ranges"
finish
