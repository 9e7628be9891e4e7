#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The manual is complete: libshare(7) leads to every public function, under the header that declares
# it, and to every type; it has every error code, and every variable that is read from the
# environment; share-broker.conf(5) has every key that the parser knows. Neither has one more. And the pages are proper manual pages, as
# far as mandoc, or else man, can tell.
#
# usage: manual_test.sh [ROOT]

set -euo pipefail

cd "${1:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}"
export LC_ALL=C
library=docs/libshare.7
configuration=docs/share-broker.conf.5
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# compare WHAT PAGE: the lists "there" and "told" have to be one
compare()
{
	sort -u -o "$scratch/there" "$scratch/there"
	sort -u -o "$scratch/told" "$scratch/told"
	if [[ ! -s $scratch/there ]]; then
		echo "no $1 was found in the sources"
		failed=1
	elif ! diff "$scratch/there" "$scratch/told" >"$scratch/difference"; then
		sed -n "s|^< |$2 lacks the $1 |p; s|^> |$2 has a $1 that is not there: |p" \
			"$scratch/difference"
		failed=1
	else
		echo "$2: $1, $(wc -l <"$scratch/told")"
	fi
}

# "share/fence.h share_fence_wait"; that there are no more than those of the map is symbols_test's
mapfile -t functions < <(
	sed -nE '/^LIBSHARE_0/,/^\}/s/^[[:space:]]+(share_[a-z0-9_]+);$/\1/p' libshare/libshare.map
	sed -nE 's/^static inline .*\b(share_[a-z0-9_]+)\(.*/\1/p' include/share/*.h | sort -u
)
for function in "${functions[@]}"; do
	header=$(grep -lE "^[a-z].*\b$function\(" include/share/*.h) || header=include/nowhere
	echo "${header#include/} $function"
done >"$scratch/there"
awk '
	/^\.Ss </ { gsub(/[<>]/, ""); header = $2 }
	/^\.Sh / { header = "" }
	/^\.Xr / && header { for (i = 2; i <= NF; i++) if ($i ~ /^share_/) print header, $i }
' $library >"$scratch/links"
grep -wFf <(printf '%s\n' "${functions[@]}") "$scratch/links" >"$scratch/told"
compare "function" $library

# A type that is called like a function is told on the same page.
sed -nE 's/^(typedef )?(struct|enum) (share_[a-z_]+)( share_[a-z_]+;| \{)$/\3/p
	s/^typedef .*\(\*(share_[a-z_]+)\)\(.*/\1/p' include/share/*.h |
	grep -vxFf <(printf '%s\n' "${functions[@]}") >"$scratch/there"
grep -vwFf <(printf '%s\n' "${functions[@]}") "$scratch/links" | cut -d' ' -f2 >"$scratch/told"
compare "type" $library

sed -nE 's/^.*X\((SHARE_E[A-Z]+), -[0-9]+,.*/\1/p' include/share/error.h >"$scratch/there"
sed -nE 's/^\.It Er ([A-Z_]+).*/\1/p' $library >"$scratch/told"
compare "error code" $library

# What base/mutation.h reads is for programs that are built to be wrong. What CUDA alone reads is
# told where it concerns our users.
grep -rhoE --include='*.[ch]' --exclude=mutation.h 'getenv\("[A-Z0-9_]+"' \
	agent base broker libshare memory pages ring tools wire | sed 's/.*("//; s/"//' >"$scratch/there"
sed -nE '/^\.Sh ENVIRONMENT/,/^\.Sh FILES/s/^\.(It )?Ev ([A-Z0-9_ ,]+).*/\2/p' $library |
	tr -s ' ,' '\n' | grep -vx CUDA_VISIBLE_DEVICES >"$scratch/told"
compare "variable" $library

# The parser has lists of the keys of an object, called keys, and a table of limits.
{
	cat broker/*.c broker/*/*.c | awk '
		/const char \*const keys\[\] = \{/ { on = 1 }
		on { print }
		/\};/ { on = 0 }' | grep -oE '"[a-z_]+"'
	sed -nE 's/^[[:space:]]*\[LIMIT_[A-Z]+\] = \{("[a-z_]+").*/\1/p' broker/config/limits.c
} | tr -d '"' >"$scratch/there"
sed -nE 's/^\.It Cm ([a-z_]+) .*/\1/p' $configuration >"$scratch/told"
compare "key" $configuration

# Style is a matter of taste, and other pages may not be installed here.
for page in docs/*.[1-9]; do # those of section 3 are pages_test's
	if command -v mandoc >/dev/null; then
		mandoc -Tlint -Wwarning "$page" >"$scratch/lint" 2>&1 || true
	elif command -v groff >/dev/null && command -v man >/dev/null; then
		man --warnings -E UTF-8 -l "$page" 2>&1 >/dev/null | grep -v makewhatis \
			>"$scratch/lint" || true
	else
		echo "neither mandoc nor man is here: nobody has looked at how $page is laid out"
		continue
	fi
	if [[ -s $scratch/lint ]]; then
		cat "$scratch/lint"
		failed=1
	fi
done
exit $failed
