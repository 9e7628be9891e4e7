#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# hello.cpp, as each compiler of C++ that is here makes it without a warning, says what it has received,
# what was added up, and how errors look.
#
# usage: cpp_test.sh BUILD

set -euo pipefail
build=$(realpath "${1:?usage: cpp_test.sh BUILD}")
. "$(dirname "$0")/lib.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)

says()
{
	grep -qxF "$1" "$scratch/out" || { echo "FAILED: $command does not say: $1" && exit 1; }
}

tried=0
while read -r compiler standard; do
	command -v "$compiler" >/dev/null || continue
	"$compiler" -std="$standard" -Wall -Wextra -Werror -I "$root/include" -o "$scratch/hello.cpp" \
		"$root/examples/hello.cpp" -L "$build/lib" -Wl,-rpath,"$build/lib" -lshare
	run_example "$scratch/hello.cpp"
	expect 0 '^parent: their sum is -4650$'
	says 'parent: there is no such name'
	says "parent: SHARE_ENOENT: there is no pool 'none', or this user may not use it"
	says 'child: message 2 has 100 numbers, the last of which is 3'
	tried=$((tried + 1))
done <<<'g++ c++17
clang++ c++20'
[[ $tried != 0 ]] || { echo "SKIPPED: there is no compiler of C++"; exit 77; }
