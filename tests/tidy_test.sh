#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# scripts/tidy finds mistakes, finds none in this tree, and an editor that looks for
# compile_commands.json in the tree finds that of some preset.
#
# usage: tidy_test.sh BUILD_DIRECTORY [ROOT]

set -euo pipefail

SHARE_BUILD=$(cd "${1:?usage: tidy_test.sh BUILD_DIRECTORY [ROOT]}" && pwd)
export SHARE_BUILD
root=$(cd "${2:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if [[ $SHARE_BUILD == "$root"/build/* ]] && ! grep -q '"command"' "$root/compile_commands.json"; then
	echo "$root/compile_commands.json does not lead to one"
	exit 1
fi

code=0
"$root/scripts/tidy" || code=$?
[[ $code == 0 ]] || exit $code

cat >"$scratch/wrong.c" <<'END'
#include <string.h>
int same(const char *a, const char *b);
int same(const char *a, const char *b)
{
	return strcmp(a, b) == 2;
}
END
if "$root/scripts/tidy" "$scratch/wrong.c" >"$scratch/said" 2>&1 ||
	! grep -q 'wrong\.c:5:.*bugprone-suspicious-string-compare' "$scratch/said"; then
	echo "a mistake is not found, or not said:"
	cat "$scratch/said"
	exit 1
fi
