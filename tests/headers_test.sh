#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Each installed header compiles alone, twice over, as C17 and as C++17, with every warning an
# error: whoever includes it has his own flags, and his own order of includes. The macros that
# initialise options are used once in each language, as they are compiled by nobody otherwise.
#
# usage: headers_test.sh [ROOT]; CC and CXX name the compilers

set -euo pipefail

root=$(cd "${1:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# COMPILER... < source, called $what in messages
compile()
{
	if ! "$@" -I "$root/include" -Wall -Wextra -Wpedantic -pedantic-errors -Wshadow -Wundef \
		-Werror -fsyntax-only - 2>"$scratch/errors"; then
		echo "$what does not compile:"
		cat "$scratch/errors"
		failed=1
	fi
}

headers_as()
{
	local language=$1 header name
	shift

	for header in "$root"/include/share/*.h; do
		name=share/$(basename "$header")
		what="<$name> as $language"
		printf '#include <%s>\n#include <%s>\n' "$name" "$name" | compile "$@"
		what="initialisers of <$name> as $language"
		{
			echo "#include <$name>"
			sed -nE 's/^#define[[:space:]]+(SHARE_[A-Z_]+)_INIT\b.*/\1/p' "$header" |
				while read -r macro; do
					echo "extern const ${macro,,} a_${macro,,};"
					echo "const ${macro,,} a_${macro,,} = ${macro}_INIT;"
				done
		} | compile "$@"
	done
}

headers_as C17 "${CC:-cc}" -x c -std=c17 -Wstrict-prototypes -Wc++-compat
if command -v "${CXX:-c++}" >/dev/null; then
	headers_as C++17 "${CXX:-c++}" -x c++ -std=c++17 -Wold-style-cast
elif [[ $failed == 0 ]]; then
	echo "SKIPPED: there is no C++ compiler; as C the headers are fine"
	exit 77
fi
exit $failed
