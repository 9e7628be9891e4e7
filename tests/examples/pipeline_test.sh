#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# pipeline reads pictures of all sorts and files that are none, says exactly what scripts/demo makes
# its promise of, and does not call a broken picture or an unknown kind a success.

set -euo pipefail
. "$(dirname "$0")/lib.sh"

picture=${SHARE_TEST_SOURCE:?is not set}/examples/data/picture.ppm

# ok CONSUMERS BYTES: frames of so many bytes in all were worked on
ok()
{
	expect 0 "^pipeline: ok kind=host consumers=$1 bytes=$2 copies=0\$"
}

# shape TEXT: what the file was taken for
shape()
{
	grep -qF ": $1, " "$scratch/out" || { echo "FAILED: $command: not $1" && exit 1; }
}

run_example share-run -- pipeline --kind host --consumers 3 --frames 8 "$picture"
ok 3 $((240 * 320 * 3 * 8 * 3))
shape "240 x 320 x 3"

# a header with comments wherever they may be, and as little white space as there may be
printf 'P5#grey\n#\n 3 # wide\n2\n\n#most\n255\nabcdefand more' >"$scratch/grey"
run_example pipeline --kind host --consumers 2 --frames 5 "$scratch/grey"
ok 2 60
shape "2 x 3 x 1"
printf 'P6 1 1 65535\nabcdef' >"$scratch/deep" # two bytes a sample
run_example pipeline --kind host --consumers 1 --frames 1 "$scratch/deep"
ok 1 6
shape "1 x 1 x 6"

# what is no picture is bytes, whatever it begins with
printf 'P6 is a plan for a picture' >"$scratch/text"
run_example pipeline --kind host --consumers 1 --frames 257 "$scratch/text"
ok 1 $((26 * 257))
shape "1 x 26 x 1"
for header in P5 P6 'P6 ' 'P5 1' 'P5 1 1' 'P5 1 1 ' 'P5 1 1 9' 'P5 0 1 9 ' 'P5 1 1 65536 ' \
	'P5 99999999999999999999 1 9 ' 'P5 -1 1 9 ' 'P5 #'; do
	printf '%s' "$header" >"$scratch/header"
	run_example pipeline --kind host --consumers 1 --frames 1 "$scratch/header"
	ok 1 "${#header}"
done

# whatever this machine can do, and it says why
run_example pipeline --frames 2 "$picture"
expect 0 '^pipeline: ok kind=(host|vmm|mempool) consumers=3 bytes=1382400 copies=0$'
grep -qE '^kind (host|vmm|mempool): .* ' "$scratch/out"

printf 'P6 640 480 255\nshort' >"$scratch/short"
run_example pipeline "$scratch/short"
fails '^pipeline: the picture ends after 5 of 921600 bytes$'
run_example pipeline "$scratch/none"
fails '^pipeline: .*none: No such file or directory$'
run_example pipeline "$scratch"
fails '^pipeline: .*: not a file with something in it$'
run_example pipeline --kind marble "$picture"
fails '^pipeline: .*"marble" is not a kind of pool'
run_example pipeline --consumers 0 "$picture"
expect 1 '^$'

# two at a time on one broker would see each other's frames: the pool is their lock
echo '{"pools": [{"name": "pipeline"}]}' >"$scratch/config"
run_example share-run --config "$scratch/config" -- pipeline "$picture"
fails '^pipeline: share_pool_create: the object exists already '
