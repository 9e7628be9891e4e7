#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Each function that libshare lets out, and each struct, enum, handle and callback of its headers, has
# a manual page. That of a function tells each of its parameters, as they stand in the header, and
# what it returns; links lead somewhere, and mandoc has nothing to say about any page. What is left
# out in a header is noticed. And without doxygen the manual is installed all the same.
#
# usage: pages_test.sh [ROOT]

set -euo pipefail

root=$(cd "${1:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
export LC_ALL=C
for program in doxygen python3; do
	command -v $program >/dev/null || { echo "SKIPPED: there is no $program" && exit 77; }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
pages=$scratch/man3
failed=0

wrong()
{
	echo "$*"
	failed=1
}

# make HEADERS: pages of the headers in that folder
make()
{
	mkdir -p "$scratch/doxygen"
	sed "s|@PROJECT_SOURCE_DIR@/include/share|$1|; s|@CMAKE_CURRENT_BINARY_DIR@|$scratch|
		\$aWARN_AS_ERROR = FAIL_ON_WARNINGS" "$root/docs/Doxyfile.in" >"$scratch/Doxyfile"
	rm -rf "$scratch/doxygen" "$pages"
	(cd "$scratch" && doxygen) &&
		python3 "$root/docs/pages.py" "$scratch/doxygen/xml" "November 22, 2026" "$pages" --strict
}

make "$root/include/share" || { echo "doxygen or pages.py are not content" && exit 1; }

# Declarations and their parameters, a line each: "name type parameter parameter ..."
cat "$root"/include/share/*.h | awk '
	BEGIN { RS = "\001" }
	{
		while ((start = index($0, "/*"))) {
			end = index(substr($0, start + 2), "*/")
			$0 = substr($0, 1, start - 1) " " substr($0, start + end + 3)
		}
		gsub(/\\\n/, " ")
		gsub(/\n[ \t]*#[^\n]*/, "\n")
		gsub(/[ \t\n]+/, " ")
		gsub(/[;{}]/, "&\n")
		print
	}' | grep -v '\btypedef\b' | sed -nE '
	s/\(\*([a-z_]+)\)\([^()]*\)/\1/g
	s/^ ?(.*[ *])(share_[a-z0-9_]+)\(([^()]*)\);$/\2|\1|\3/p' >"$scratch/declared"

while read -r function; do
	page=$pages/$function.3
	if [[ ! -s $page ]]; then
		wrong "$function has no page"
		continue
	fi
	IFS='|' read -r _ type parameters < <(grep "^$function|" "$scratch/declared")
	[[ ${type// /} == void ]] || grep -q '^\.Sh RETURN VALUES' "$page" ||
		wrong "$page does not tell what $function returns"
	[[ $parameters != void ]] || parameters=
	for parameter in $(tr , '\n' <<<"$parameters" | sed -E 's/.*[ *]([a-z_]+)(\[.*)?$/\1/'); do
		grep -A1 "^\.It Fa $parameter\$" "$page" | grep -q '^[^.]\|^\.[A-Z][a-z] [^ ]' ||
			wrong "$page does not tell what $parameter is"
	done
done < <(sed -nE '/^LIBSHARE_0/,/^\}/s/^[[:space:]]+(share_[a-z0-9_]+);$/\1/p' "$root/libshare/libshare.map"
	sed -nE 's/^static inline .*\b(share_[a-z0-9_]+)\(.*/\1/p' "$root"/include/share/*.h | sort -u)

sed -nE 's/^(typedef )?(struct|enum) (share_[a-z_]+)( share_[a-z_]+;| \{)$/\3/p
	s/^typedef .*\(\*(share_[a-z_]+)\)\(.*/\1/p' "$root"/include/share/*.h | sort -u |
	while read -r type; do
		[[ -s $pages/$type.3 ]] || echo "$type has no page"
	done >"$scratch/without"
[[ ! -s $scratch/without ]] || wrong "$(cat "$scratch/without")"
# The name of an error leads to what to do about it.
sed -nE 's/.*X\((SHARE_E[A-Z]+), .*/\1/p' "$root/include/share/error.h" | while read -r error; do
	grep -A2 "^\.It Dv $error\$" "$pages/$error.3" | grep -q '^[A-Z]' || echo "$error has no page"
	cmp -s "$pages/$error.3" "$pages/share_error.3" || echo "$error leads elsewhere"
done >"$scratch/errors"
[[ ! -s $scratch/errors ]] || wrong "$(cat "$scratch/errors")"
grep -q '^Release what you hold, disconnect, and connect again' "$pages/SHARE_EDISCONNECTED.3" ||
	wrong "share_error(3) does not say what to do about an error"
sed -nE 's/^\.Xr (share_[a-z0-9_]+) 3.*/\1/p' "$pages"/* | sort -u | while read -r other; do
	[[ -e $pages/$other.3 ]] || echo "links lead to $other(3), which is not there"
done >"$scratch/dead"
[[ ! -s $scratch/dead ]] || wrong "$(cat "$scratch/dead")"
if command -v mandoc >/dev/null; then
	# other pages may not be installed here
	# and the two ways out apart, as one would be cut in the midst of a line by the other
	find "$pages" -type f -exec mandoc -Tlint {} + 2>"$scratch/mandoc" | cat - "$scratch/mandoc" |
		grep -vE 'STYLE: referenced manual not found|outdated mandoc.db' \
			>"$scratch/lint" || true
	[[ ! -s $scratch/lint ]] || wrong "$(cat "$scratch/lint")"
else
	echo "there is no mandoc: nobody has looked at how the pages are laid out"
fi
echo "$(find "$pages" -name '*.3' | wc -l) pages of section 3"

# notices WHAT SCRIPT PATTERN: what is changed in share.h by that script for sed
notices()
{
	rm -rf "$scratch/headers"
	cp -r "$root/include/share" "$scratch/headers"
	sed -i -E "$2" "$scratch/headers/share.h"
	if cmp -s "$root/include/share/share.h" "$scratch/headers/share.h"; then
		wrong "nothing was changed to see whether it is noticed: $1"
	elif make "$scratch/headers" >"$scratch/said" 2>&1 || ! grep -qE "$3" "$scratch/said"; then
		wrong "not noticed: $1"
	fi
}
notices "a parameter that is not told" '/^ \* @param address /d' "share_connect.*address"
notices "one that there is not" 's/^( \* @param) address /\1 path /' "path|address"
notices "a member that is not told" 's|^(\tuint64_t limit;) .*|\1|' "limit: the member is not told"
notices "a function without a comment" '/^int share_ping/s/^/int share_pong(share_client *c);\n\n/
	/^ \* Sends one request and waits/,/^int share_pong/{/^ \*\/$/!{/^ \*/d}}' "share_p[io]ng"
notices "a value that is not told" '/^ \* @return The same handle/d' "share_retain.*returns"

# Without doxygen there are links.
if ! cmake -S "$root" -B "$scratch/build" -DCMAKE_DISABLE_FIND_PACKAGE_Doxygen=ON \
	-DSHARE_BUILD_TESTS=OFF -DSHARE_BUILD_EXAMPLES=OFF -DSHARE_BUILD_BENCH=OFF \
	-DCMAKE_INSTALL_PREFIX="$scratch/prefix" >"$scratch/log" 2>&1 ||
	! cmake -P "$scratch/build/docs/cmake_install.cmake" >>"$scratch/log" 2>&1; then
	cat "$scratch/log"
	wrong "without doxygen the manual is not installed"
elif ! grep -q 'Manual: no pages of functions' "$scratch/log"; then
	wrong "that there is no doxygen is not said"
elif [[ $(cat "$scratch/prefix/share/man/man3/share_alloc.3") != ".so man7/libshare.7" ||
	! -e $scratch/prefix/share/man/man7/libshare.7 ]]; then
	wrong "without doxygen share_alloc(3) does not lead to libshare(7)"
fi
exit $failed
