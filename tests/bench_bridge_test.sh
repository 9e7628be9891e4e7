#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The benchmark of bridges comes to an end, reports what docs/benchmarks.md promises, and leaves
# nothing behind. It compares every byte that comes over by itself. Nothing is said about the figures,
# which mean nothing on a busy machine. Where there is no ucx_perftest, its floors are missing and that
# is said.

set -euo pipefail
export PATH=${SHARE_TEST_BIN:?is not set}:$PATH
unset SHARE_SOCKET SHARE_BROKER SHARE_BRIDGE
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail()
{
	cat "$scratch/out" "$scratch/err"
	[[ ! -d $scratch/tmp ]] || cat "$scratch"/tmp/*/log 2>/dev/null || true
	echo "FAILED: $*"
	exit 1
}

has() # FIGURE FLOOR
{
	grep -qE "\"name\":\"$1\",\"value\":[0-9].*\"floor\":$2" "$scratch/out" || fail "no $1, or not with $2"
}

mkdir "$scratch/tmp"
TMPDIR=$scratch/tmp share-bench --quick --json bridge >"$scratch/out" 2>"$scratch/err" || fail "exit code $?"

floor='[0-9]'
! grep -q 'no ucx_perftest' "$scratch/err" || floor=null
for size in 4MiB 256MiB; do
	has "bridge.$size" "$floor"
	has "bridge.$size.errors" "$floor"
	has "bridge.$size.tag" "$floor"
	has "bridge.$size.tcp" '[0-9]'
	has "bridge.$size.cpu" '.'
done
has bridge.4MiB.put "$floor"
has bridge.4MiB.stream "$floor"
has bridge.message "$floor"
has bridge.message.polling "$floor"
has bridge.message.p99 null
! grep -vE '^\{' "$scratch/out" || fail "something else than figures is on stdout"
[[ -z $(ls "$scratch/tmp") ]] || fail "something was left: $(ls "$scratch/tmp")"

# without a bridge there is nothing to measure, and no failure
code=0
SHARE_BRIDGE=/nowhere share-bench bridge >"$scratch/out" 2>"$scratch/err" || code=$?
((code == 77)) || fail "exit code $code without a bridge"
grep -q 'bridge: SKIPPED' "$scratch/err" || fail "it did not say why"
echo "the benchmark of bridges reports what it should"
