#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The scenarios in C++, as each compiler of C++ that is here makes them, over each kind of memory.
#
# usage: conformance_cpp_test.sh BUILD [STANDIN]

set -euo pipefail
build=$(realpath "${1:?usage: conformance_cpp_test.sh BUILD [STANDIN]}")
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

export PATH=${SHARE_TEST_BIN:?is not set}:$PATH
unset SHARE_SOCKET SHARE_BROKER
kinds=host
if [[ -n ${2-} ]]; then
	kinds='host vmm mempool'
	export LD_LIBRARY_PATH=$2 SHARE_DUMPABLE=1
fi
tried=0
while read -r compiler standard; do
	command -v "$compiler" >/dev/null || continue
	"$compiler" -std="$standard" -Wall -Wextra -Werror -I "$root/include" -o "$scratch/conformance" \
		"$here/conformance.cpp" -L "$build/lib" -Wl,-rpath,"$build/lib" -lshare
	for kind in $kinds; do
		share-run -- "$scratch/conformance" "$kind"
	done
	tried=$((tried + 1))
done <<<'g++ c++17
clang++ c++20'
[[ $tried != 0 ]] || { echo "SKIPPED: there is no compiler of C++"; exit 77; }
