#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Three lists have to be one: the functions that include/share declares and does not define, those
# that libshare/libshare.map lets out, and those that libshare.so has. What is declared and missing
# does not link; what is let out and not declared becomes an interface by accident. What the headers
# define themselves is a short form of one of these. There are at most 105. What the extension of the
# Python package may call has a list and a symbol version of its own: include/share/private.
#
# usage: symbols_test.sh LIBSHARE.SO [ROOT]

set -euo pipefail

library=${1:?usage: symbols_test.sh LIBSHARE.SO [ROOT]}
root=$(cd "${2:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
export LC_ALL=C
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# HEADER...: declarations are what ends with a semicolon once comments, directives and what is in
# functions are gone.
declarations()
{
	cat "$@" | awk '
		BEGIN { RS = "\001" }
		{
			while ((start = index($0, "/*"))) {
				end = index(substr($0, start + 2), "*/")
				$0 = substr($0, 1, start - 1) " " substr($0, start + end + 3)
			}
			gsub(/\\\n/, " ")
			gsub(/\n[ \t]*#[^\n]*/, "\n")
			gsub(/\n/, " ")
			while (match($0, /static inline [^;{}]*\{[^{}]*\}/))
				$0 = substr($0, 1, RSTART - 1) substr($0, RSTART + RLENGTH)
			gsub(/[;{}]/, "&\n")
			print
		}' | grep -v '\btypedef\b'
}

# From declarations to names.
names()
{
	sed -nE 's/^[^(]*\b(share_[a-z0-9_]+)[[:space:]]*\(.*/\1/p' | sort -u
}

# VERSION: the names that it has, in the order in which they are.
mapped()
{
	sed -nE "/^$1 /,/^\}/s/^[[:space:]]+(share_[a-z0-9_]+);$/\1/p" "$root/libshare/libshare.map"
}

# VERSION: without the version nodes, which are absolute symbols.
exported()
{
	nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sed -n "s/@@$1$//p" | sort -u
}

declarations "$root"/include/share/*.h >"$scratch/all"
grep -v '\bstatic inline\b' "$scratch/all" | names >"$scratch/declared"
grep '\bstatic inline\b' "$scratch/all" | names >"$scratch/inlined"
mapped LIBSHARE_0.1 >"$scratch/mapped"
exported LIBSHARE_0.1 >"$scratch/exported"
declarations "$root"/include/share/private/*.h | names >"$scratch/private"
# with the word by which copies of the library find each other, which is no function
mapped LIBSHARE_PRIVATE | grep -vx share_first_copy >"$scratch/mapped_private"
exported LIBSHARE_PRIVATE | grep -vx share_first_copy >"$scratch/exported_private"

failed=0
compare()
{
	if ! diff "$scratch/$1" "$scratch/$2" >"$scratch/difference"; then
		sed -n "s/^< /$3: /p; s/^> /$4: /p" "$scratch/difference"
		failed=1
	fi
}

if [[ ! -s $scratch/declared ]]; then
	echo "no declarations were found in $root/include/share"
	exit 1
fi
if ! sort -c "$scratch/mapped"; then
	echo "libshare.map is not in order"
	failed=1
fi
compare declared mapped "declared, but not in libshare.map" "in libshare.map, but not declared"
compare declared exported "declared, but not exported" "exported, but not declared"
compare private mapped_private "private, but not in libshare.map" "in libshare.map, but not private"
compare private exported_private "private, but not exported" "exported, but not private"
if comm -12 "$scratch/inlined" "$scratch/mapped" | grep .; then
	echo "these are defined in the headers and let out as well"
	failed=1
fi
if ! nm -D --defined-only "$library" | grep ' u share_first_copy@@LIBSHARE_PRIVATE$' >/dev/null; then
	echo "share_first_copy is not one in a process (STB_GNU_UNIQUE)"
	failed=1
fi
# What it has for a thread would need a place that is scarce once a program runs: "cannot allocate memory in
# static TLS block" is what a plug-in or an interpreter hears then.
if readelf -d "$library" | grep STATIC_TLS >/dev/null; then
	echo "$library cannot be loaded late beside others: a variable of a thread is at a fixed distance (initial-exec)"
	exit 1
fi

others=$(nm -D --defined-only "$library" | grep -vE ' A |@@LIBSHARE_(0\.1|PRIVATE)$' || true)
if [[ -n $others ]]; then
	echo "let out without a version of ours: $others"
	failed=1
fi
n=$(wc -l <"$scratch/declared")
if [[ $n -gt 105 ]]; then
	echo "$n functions are let out, and at most 105 may be: give one an option, or define it in the header"
	failed=1
fi

[[ $failed != 0 ]] || echo "$n functions, declared, mapped and exported," \
	"$(wc -l <"$scratch/inlined") more in the headers, $(wc -l <"$scratch/private") private"
exit $failed
