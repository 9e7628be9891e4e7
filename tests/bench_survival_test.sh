#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The benchmark of survival comes to an end, reports what docs/benchmarks.md promises, and leaves
# nothing behind. Nothing is said about the figures, which mean nothing on a busy machine, but for the
# bytes of the journal, which are the same everywhere.

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

has() # FIGURE FLOOR
{
	grep -qE "\"name\":\"$1\",\"value\":[0-9].*\"floor\":$2" "$scratch/out" || fail "no $1, or not with $2"
}

mkdir "$scratch/tmp"
TMPDIR=$scratch/tmp share-bench --quick --json survival >"$scratch/out" 2>"$scratch/err" ||
	fail "exit code $?"

for clients in 1k 1k.clients 10k.clients; do
	has "survival.restart.$clients" null
	has "survival.restart.$clients.worst" null
	has "survival.upgrade.$clients" null
done
has survival.journal.bytes null
for steps in channel alloc; do
	has "survival.pause.$steps" '[0-9]'
	has "survival.pause.$steps.worst" '[0-9]'
done
if ! grep -q 'survival.journal.together: SKIPPED' "$scratch/err"; then
	for request in ping alloc publish; do
		has "survival.journal.$request" '[0-9]'
	done
fi
# of 10,000 buffers: a large part of it would be chunks that are not full
bytes=$(sed -n 's/.*"survival.journal.bytes","value":\([0-9]*\).*/\1/p' "$scratch/out")
((bytes >= 40 && bytes <= 64)) || fail "$bytes bytes for a buffer and its lease"
[[ -z $(ls "$scratch/tmp") ]] || fail "something was left: $(ls "$scratch/tmp")"
echo "the benchmark of survival reports what it should"
