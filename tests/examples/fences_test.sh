#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# fences: the child gets the buffer while it is being filled, and has the right sum in the end.

set -euo pipefail
. "$(dirname "$0")/lib.sh"

run_example share-run -- fences
expect 0 '^fences: ok sum=44040192$'
grep -q '^child: told that the data is good$' "$scratch/out"
