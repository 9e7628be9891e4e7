#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# scripts/test --changed runs what a change can break, and nothing else: tried in a project of three
# tests that are added as all of ours. One is made of a header, one starts a program that is, and one
# is a script.
#
# usage: changed_test.sh [ROOT]

set -euo pipefail

root=$(cd "${1:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/project/scripts"
cd "$scratch/project"
command -v git >/dev/null || { echo "SKIPPED: there is no git" && exit 77; }

cp "$root"/scripts/{test,changed} scripts
echo 'int part(void);' >part.h
printf '%s\n' '#include "part.h"' 'int part(void) { return 0; }' 'int main(void) { return part(); }' >program.c
echo 'int main(void) { return 0; }' >other.c
printf '%s\n' '#!/bin/sh' 'test -e "$(dirname "$0")/words.txt"' >script.sh
chmod +x script.sh
echo word >words.txt
echo build >.gitignore
cat >CMakePresets.json <<'END'
{ "version": 3,
  "configurePresets": [ { "name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release" } ],
  "testPresets": [ { "name": "release", "configurePreset": "release" } ] }
END
cat >CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.22)
project(changed C)
list(APPEND CMAKE_MODULE_PATH "$root/cmake")
find_package(PkgConfig REQUIRED)
set(SHARE_SANITIZE thread) # which needs no Criterion; nothing is compiled with it
include(ShareTest)
enable_testing()
add_executable(program program.c)
add_executable(other other.c)
share_add_program_test(program_test COMMAND program)
share_add_program_test(starts_test COMMAND other NEEDS program)
share_add_program_test(script_test COMMAND \${CMAKE_SOURCE_DIR}/script.sh)
END
git init --quiet
git add .
git -c user.name=test -c user.email=test@localhost commit --quiet --message "what is tested"
{ cmake --preset release && cmake --build build/release; } >"$scratch/log" 2>&1 || { cat "$scratch/log" && exit 1; }

# changes FILE TEST...: a change of FILE has these run, and no others
changes()
{
	local file=$1 code=0
	shift
	echo >>"$file"
	scripts/test --changed >"$scratch/said" 2>&1 || code=$?
	sed -nE 's/.*Test +#[0-9]+: ([a-z_]+) .*Passed.*/\1/p' "$scratch/said" | sort >"$scratch/ran"
	if [[ $code != 0 ]] || ! diff <(printf '%s\n' "$@" | sed '/^$/d' | sort) "$scratch/ran"; then
		echo "after a change of $file these were expected (<) and those ran (>):"
		cat "$scratch/said"
		exit 1
	fi
	git checkout --quiet "$file"
}
changes part.h program_test starts_test
changes program.c program_test starts_test
changes other.c starts_test
changes script.sh script_test
changes words.txt script_test
changes .gitignore ''

echo 'this is not C' >>other.c
if scripts/test --changed >"$scratch/said" 2>&1 || ! grep -q 'the build failed' "$scratch/said"; then
	cat "$scratch/said"
	echo "what does not compile is not said"
	exit 1
fi
