#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Everything that needs a real GPU, by scripts/test-gpu, from the bundle in this tree. Skipped where
# there is no GPU, and where there is no bundle: making one takes minutes, so that is asked for.

set -euo pipefail
root=${SHARE_TEST_SOURCE:-$(dirname "$0")/..}

code=0
"$root/scripts/test-gpu" || code=$?
if [[ $code == 1 && ! -e $root/bundle/MANIFEST ]]; then
	echo "SKIPPED: there is a GPU, but no bundle: run scripts/make-bundle first"
	code=77
fi
exit "$code"
