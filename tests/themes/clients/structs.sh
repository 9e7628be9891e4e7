#!/bin/sh
# SPDX-License-Identifier: MIT

# structs.sh COMPILER INCLUDE: what the public headers have of structs that begin with their size, as
# two lists in C. STRUCTS(X) has each such struct; USES(X) has each function that takes a pointer to
# one, and whether the function reads it (IN) or fills it in (OUT): that is `out` in the headers.

set -eu

text=$(printf '#include <share/%s.h>\n' service admin | "$1" -E -P -I "$2" -x c - | tr -s ' \n\t' '   ' | tr ';' '\n' |
	sed -E 's/\} (static|typedef|enum|struct|int|void|const|uint64_t) /}\n\1 /g')
types=$(echo "$text" | sed -nE 's/^ ?typedef struct (share_[a-z_]+) \{ size_t size$/\1/p')
[ -n "$types" ]

printf '#define STRUCTS(X)'
for type in $types; do
	printf ' \\\n\tX(%s)' "$type"
done
printf '\n#define USES(X)'
for type in $types; do
	echo "$text" | sed -nE "s/^ ?[a-z_ ]+\*?(share_[a-z_]+)\((.*, )?$type \*out\b.*/\1 OUT/p
		t
		s/^ ?[a-z_ ]+\*?(share_[a-z_]+)\((.*, )?(const )?$type \*[a-z].*/\1 IN/p" |
		awk '!seen[$0]++' | while read -r function direction; do
			printf ' \\\n\tX(%s, %s, %s)' "$type" "$function" "$direction"
		done
done
echo
