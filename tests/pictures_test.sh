#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The pictures that are checked in say what their sources say: the same boxes, arrows and words.
# Where they lie on the page depends on graphviz and its fonts, and is not compared. A picture of
# another source is noticed. Each is shown by a document.
#
# usage: pictures_test.sh [ROOT]

set -euo pipefail

root=$(cd "${1:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
command -v dot >/dev/null || { echo "SKIPPED: there is no dot (graphviz)" && exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# said PICTURE: what is in it, whatever the place
said()
{
	grep -oE '<(title|text)[^>]*>[^<]*<' "$1" | sed -E 's/<(title|text)[^>]*>/\1 /; s/<$//'
}

"$root/scripts/pictures" "$scratch"
failed=0
for source in "$root"/docs/pictures/*.dot; do
	name=$(basename "$source" .dot)
	picture=$root/docs/pictures/$name.svg
	if [[ ! -s $picture ]] || ! diff <(said "$picture") <(said "$scratch/$name.svg"); then
		echo "docs/pictures/$name.svg is not of $name.dot: run scripts/pictures"
		failed=1
	fi
	grep -qF "(pictures/$name.svg)" "$root"/docs/*.md || { echo "no document shows $name.svg" && failed=1; }
	(($(said "$picture" | wc -l) > 10)) || { echo "$name.svg is empty" && failed=1; }
done
for picture in "$root"/docs/pictures/*.svg; do
	[[ -e ${picture%.svg}.dot ]] || { echo "$picture has no source" && failed=1; }
done
! diff -q <(said "$root/docs/pictures/buffer.svg") <(said "$scratch/death.svg") >/dev/null ||
	{ echo "a picture of another source is not noticed" && failed=1; }
exit $failed
