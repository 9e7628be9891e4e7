#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Three lists have to be one: the functions that include/share declares, those that
# libshare/libshare.map lets out, and those that libshare.so has. What is declared and missing does
# not link; what is let out and not declared becomes an interface by accident.
#
# usage: symbols_test.sh LIBSHARE.SO [ROOT]

set -euo pipefail

library=${1:?usage: symbols_test.sh LIBSHARE.SO [ROOT]}
root=$(cd "${2:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
export LC_ALL=C
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Declarations are what ends with a semicolon once comments and directives are gone.
declared()
{
	cat "$root"/include/share/*.h | awk '
		BEGIN { RS = "\001" }
		{
			while ((start = index($0, "/*"))) {
				end = index(substr($0, start + 2), "*/")
				$0 = substr($0, 1, start - 1) " " substr($0, start + end + 3)
			}
			gsub(/\\\n/, " ")
			gsub(/\n[ \t]*#[^\n]*/, "\n")
			gsub(/\n/, " ")
			gsub(/[;{}]/, "&\n")
			print
		}' | grep -v '\btypedef\b' | sed -nE 's/^[^(]*\b(share_[a-z0-9_]+)[[:space:]]*\(.*/\1/p' |
		sort -u
}

# The names between "global:" and "local:", in the order in which they are.
mapped()
{
	sed -nE '/global:/,/local:/s/^[[:space:]]+(share_[a-z0-9_]+);$/\1/p' \
		"$root/libshare/libshare.map"
}

# Without the version nodes, which are absolute symbols.
exported()
{
	nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u
}

declared >"$scratch/declared"
mapped >"$scratch/mapped"
exported >"$scratch/exported"

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

[[ $failed != 0 ]] || echo "$(wc -l <"$scratch/declared") functions, declared, mapped and exported"
exit $failed
