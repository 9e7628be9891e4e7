#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# scripts/demo from a fresh checkout, in a directory with a space in its name, started in another
# one: its last line is the verdict whatever happens.

set -euo pipefail
. "$(dirname "$0")/lib.sh"

checkout="$scratch/a checkout"
mkdir "$checkout"
tar -C "${SHARE_TEST_SOURCE:?is not set}" --exclude=./.git --exclude=./build --exclude=./bundle \
	-cf - . | tar -C "$checkout" -xf -
cd "$scratch"

run_example "$checkout/scripts/demo"
expect 0 '^demo: ok kind=(host|vmm|mempool) consumers=3 bytes=[0-9]+ copies=0$'
grep -q '^workers: ok workers=3 killed=1 requests=24 ' "$scratch/out"
echo 'some file' >'a file'
run_example "$checkout/scripts/demo" --kind=host --file 'a file' --consumers=2
expect 0 '^demo: ok kind=host consumers=2 bytes=640 copies=0$'
run_example "$checkout/scripts/demo" --kill-broker --kind=host
expect 0 '^demo: ok kind=host consumers=3 bytes=[0-9]+ copies=0 brokers-killed=([6-9]|[1-9][0-9]+) (upgrades=[0-9]+ )?results=equal$'
# where share-bridge can be built
if pkg-config --exists ucx; then
	run_example "$checkout/scripts/demo" --two-hosts
	expect 0 '^demo: ok two-hosts=(namespaces|sockets) versions=8 bytes=536870912$'
	grep -qE '^demo: two hosts: (two network namespaces|two sockets)' "$scratch/out"
fi
run_example "$checkout/scripts/demo" --kind marble
expect 1 '^demo: FAILED .*"marble" is not a kind of pool'
run_example "$checkout/scripts/demo" --consumers 0
expect 1 '^demo: FAILED '
run_example "$checkout/scripts/demo" --speed 9
expect 1 '^demo: FAILED there is no option --speed'
run_example "$checkout/scripts/demo" --file
expect 1 '^demo: FAILED --file needs a value'
run_example "$checkout/scripts/demo" --help
expect 0 '.'

echo 'this is not C' >>"$checkout/base/system/descriptor.c"
run_example "$checkout/scripts/demo"
expect 1 '^demo: FAILED the build$'
