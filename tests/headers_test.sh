#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Each installed header compiles alone, twice over, in every standard of C and C++ since C99 and
# C++11, by gcc and by clang, with every warning an error that people turn on: whoever includes it
# has his own compiler and flags, and his own order of includes. The macros that initialise options
# are used once in each, as they are compiled by nobody otherwise; in C so are options of which
# only the size is said, which have to be the same.
#
# usage: headers_test.sh [ROOT]; CC and CXX name further compilers

set -euo pipefail

root=$(cd "${1:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

warnings=(-Wall -Wextra -Wpedantic -pedantic-errors -Wshadow -Wundef -Wconversion -Wsign-conversion
	-Wcast-align -Wcast-qual -Wdouble-promotion -Wformat=2 -Wmissing-declarations
	-Wredundant-decls -Wswitch-enum -Wvla -Wwrite-strings -Werror)
c_warnings=(-Wc++-compat -Wmissing-prototypes -Wold-style-definition -Wstrict-prototypes)
cxx_warnings=(-Wextra-semi -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual
	-Wzero-as-null-pointer-constant)
gcc_warnings=(-Wduplicated-cond -Wlogical-op)
clang_warnings=(-Wassign-enum -Wcomma -Wmissing-variable-declarations -Wnewline-eof
	-Wreserved-id-macro)

# COMPILER LANGUAGE STANDARD: whether that is one it knows
knows()
{
	echo 'int one;' | "$1" -x "$2" -std="$3" -fsyntax-only - 2>/dev/null
}

# All that it has to say of a header: itself twice, and its initialisers.
program()
{
	local header=$1 language=$2

	printf '#include <%s>\n#include <%s>\n' "$header" "$header"
	sed -nE 's/^#define[[:space:]]+(SHARE_[A-Z_]+)_INIT\b.*/\1/p' "$root/include/$header" |
		while read -r macro; do
			echo "extern const ${macro,,} a_${macro,,}, b_${macro,,};"
			echo "const ${macro,,} a_${macro,,} = ${macro}_INIT;"
			[[ $language != c ]] ||
				echo "const ${macro,,} b_${macro,,} = {.size = sizeof(${macro,,})};"
		done
}

# COMPILER LANGUAGE STANDARD
headers_as()
{
	local compiler=$1 language=$2 standard=$3 header name
	local flags=("${warnings[@]}")

	[[ $language == c ]] && flags+=("${c_warnings[@]}") || flags+=("${cxx_warnings[@]}")
	if "$compiler" --version | grep -q clang; then
		flags+=("${clang_warnings[@]}")
	elif "$compiler" --version | grep -q "Free Software Foundation"; then
		flags+=("${gcc_warnings[@]}")
	fi
	for header in "$root"/include/share/*.h "$root"/include/share/*.hpp; do
		name=share/$(basename "$header")
		# that of C++ begins with C++17
		[[ $name != *.hpp || ($language == c++ && $standard != c++11 && $standard != c++14) ]] || continue
		program "$name" "$language" >"$scratch/program"
		if ! "$compiler" -x "$language" -std="$standard" -I "$root/include" "${flags[@]}" \
			-fsyntax-only "$scratch/program" 2>"$scratch/errors"; then
			echo "<$name> does not compile with $compiler -std=$standard:"
			cat "$scratch/errors"
			failed=1
		fi
	done
}

# LANGUAGE COMPILER...: those that are there, each once, whatever names it has; in $there
find_compilers()
{
	local compiler path language=$1
	declare -A known=()
	shift

	there=()
	for compiler in "$@"; do
		if ! path=$(command -v "$compiler"); then
			missing+=("$compiler")
			continue
		fi
		path=$(readlink -f "$path")
		[[ -n ${known[$path]:-} ]] || there+=("$compiler")
		known[$path]=1
	done
	echo "$language: ${there[*]:-none}"
}

# LANGUAGE COMPILER STANDARD...: one of each, of which "a|b" are two names
standards()
{
	local language=$1 compiler=$2 names name
	shift 2

	for names in "$@"; do
		for name in ${names//|/ }; do
			if knows "$compiler" "$language" "$name"; then
				headers_as "$compiler" "$language" "$name"
				continue 2
			fi
		done
		echo "$compiler does not know $names"
	done
}

# Options of which only the size and time limits are said are the same as initialised ones, in all of their bytes.
options_are_zero()
{
	local compiler=$1 macros limits

	mapfile -t macros < <(sed -nE 's/^#define[[:space:]]+(SHARE_[A-Z_]+_OPTIONS)_INIT\b.*/\1/p' \
		"$root"/include/share/*.h)
	[[ ${#macros[@]} -gt 0 ]] || { echo "no header has options"; failed=1; }
	{
		printf '#include <share/%s>\n' $(cd "$root/include/share" && echo *.h)
		printf '#include <stdio.h>\n#include <string.h>\nint main(void)\n{\n\tint r = 0;\n'
		for macro in "${macros[@]}"; do
			limits=$(cat "$root"/include/share/*.h | sed -nE "/^typedef struct ${macro,,} /,/^\}/s/^\tint[0-9]+_t ([a-z_]*timeout_ms);.*/, .\1 = -1/p")
			echo "{ static const ${macro,,} a = ${macro}_INIT, b = {.size = sizeof(b)$limits};"
			echo "if (memcmp(&a, &b, sizeof(a))) r = !!puts(\"${macro}_INIT is not all 0, and -1 in time limits\"); }"
		done
		printf '\treturn r;\n}\n'
	} >"$scratch/options.c"
	"$compiler" -I "$root/include" -o "$scratch/options" "$scratch/options.c" &&
		"$scratch/options" || failed=1
}

missing=()
find_compilers c gcc clang "${CC:-cc}"
options_are_zero "${CC:-cc}"
for compiler in "${there[@]}"; do
	standards c "$compiler" c99 c11 c17 'c23|c2x'
done
find_compilers c++ g++ clang++ "${CXX:-c++}"
for compiler in "${there[@]}"; do
	standards c++ "$compiler" c++11 c++14 c++17 c++20 'c++23|c++2b'
done
if [[ $failed == 0 && ${#missing[@]} -gt 0 ]]; then
	echo "SKIPPED: there is no ${missing[*]}; to the others the headers are fine"
	exit 77
fi
exit $failed
