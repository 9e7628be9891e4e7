#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# A test that is not built yet says how to build it, and what it says works: tried in a project of
# two tests that are added as all of ours, a program and a script that needs it.
#
# usage: partial_build_test.sh [ROOT]; CC names the compiler

set -euo pipefail

root=$(cd "${1:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/project"
cd "$scratch/project"

echo 'int main(void) { return 0; }' >program.c
cat >CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.22)
project(partial C)
list(APPEND CMAKE_MODULE_PATH "$root/cmake")
find_package(PkgConfig REQUIRED)
set(SHARE_SANITIZE thread) # which needs no Criterion; nothing is compiled with it
include(ShareTest)
enable_testing()
add_executable(a-program program.c)
share_add_program_test(program_test COMMAND a-program)
share_add_program_test(script_test COMMAND test -x \$<TARGET_FILE:a-program> NEEDS a-program)
END
cmake -S . -B build >"$scratch/log" 2>&1 || { cat "$scratch/log" && exit 1; }

for test in program_test script_test; do
	if ctest --test-dir build --output-on-failure -R $test >"$scratch/said" 2>&1; then
		echo "$test passes, and nothing was built"
		exit 1
	fi
	advice=$(sed -n 's/^ *cmake --build/cmake --build/p' "$scratch/said")
	if [[ -z $advice ]]; then
		echo "$test does not say how to build it:"
		cat "$scratch/said"
		exit 1
	fi
	echo "$test says: ${advice/"$scratch"/...}"
	eval "$advice" >"$scratch/log" 2>&1 || { cat "$scratch/log" && exit 1; }
	ctest --test-dir build --output-on-failure -R $test >"$scratch/said" 2>&1 ||
		{ cat "$scratch/said" && exit 1; }
	rm build/a-program
done
