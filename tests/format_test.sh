#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# scripts/format finds what is not in form and mends it, with the version of clang-format that is
# right, from wherever there is one; and this tree is in form.
#
# usage: format_test.sh [ROOT]

set -euo pipefail

root=$(cd "${1:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
format=$root/scripts/format

fail()
{
	echo "$*"
	exit 1
}

code=0
"$format" --check || code=$?
[[ $code == 0 ]] || exit $code

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export FORMAT_ROOT=$scratch/tree
mkdir -p "$FORMAT_ROOT" "$scratch/bin"
cd "$FORMAT_ROOT"
cp "$root/.clang-format" .
echo 'int  main( void ){return 0;}' >wrong.c
git init -q . && git add .

! "$format" --check >"$scratch/said" 2>&1 || fail "a file that is not in form is not noticed"
grep -q 'wrong\.c:1' "$scratch/said" || fail "what is wrong is not said: $(cat "$scratch/said")"
"$format" >/dev/null
"$format" --check >/dev/null || fail "what scripts/format has changed is not in form"

# a system whose clang-format is another one: the private one is taken, if it is there
for name in clang-format clang-format-14; do
	printf '#!/bin/sh\necho "clang-format version 19.1.7"\n' >"$scratch/bin/$name"
	chmod +x "$scratch/bin/$name"
done
private=$(command -v clang-format-14 || command -v clang-format)
export PATH=$scratch/bin:$PATH
code=0
"$format" --check >"$scratch/said" || code=$?
[[ $code == 77 ]] || fail "with clang-format 19 alone, the check ends with $code"
grep -q 'version 19' "$scratch/said" || fail "what is there is not said: $(cat "$scratch/said")"
[[ $("$private" --version) == *"version 14."* ]] || private=$root/.cache/python/bin/clang-format
mkdir -p .cache/python/bin
ln -s "$private" .cache/python/bin/clang-format
"$format" --check >/dev/null || fail "the private clang-format is not found"
