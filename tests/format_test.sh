#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# All C is as clang-format 14 with our .clang-format leaves it. Other versions lay some lines out
# differently, so they are not asked.
#
# usage: format_test.sh [ROOT]; CLANG_FORMAT names the program

set -euo pipefail

skip()
{
	echo "SKIPPED: $*"
	exit 77
}

cd "${1:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}"

if [[ -z ${CLANG_FORMAT-} ]]; then
	CLANG_FORMAT=$(command -v clang-format-14 || command -v clang-format) ||
		skip "there is no clang-format"
fi
version=$("$CLANG_FORMAT" --version)
[[ $version == *"version 14."* ]] || skip "not clang-format 14 but $version"
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || skip "not a git checkout"

# a file may be deleted and not committed yet
mapfile -t files < <(git ls-files '*.c' '*.h' | while read -r file; do
	[[ ! -e $file ]] || echo "$file"
done)
((${#files[@]} > 0)) || skip "git knows no C here"
"$CLANG_FORMAT" --dry-run -Werror "${files[@]}"
echo "${#files[@]} files are in form"
