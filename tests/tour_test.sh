#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The walks of docs/tour.md are still those of the code: each function is defined in the file that
# is named beside it, and does in its body what the tour says: it calls the functions that it "calls",
# and sends the messages that it "sends". A function that is elsewhere or calls something else is
# noticed.
#
# usage: tour_test.sh [ROOT]

set -euo pipefail

root=$(cd "${1:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
cd "$root"
export LC_ALL=C.UTF-8
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
step='^ *[0-9]+\. `([a-z_]+)\(\)` in \[(.+)\]\(\.\./(.+)\)  $'

# body FUNCTION FILE: from its name to the brace that ends it
body()
{
	awk -v head="^[a-z].*[ *]$1\\\\(" '
		$0 ~ head { on = 1; text = "" }
		on { text = text $0 "\n" }
		on && /;$/ && text !~ /\{/ { on = 0 }
		on && /^}/ { printf "%s", text; exit }' "$2"
}

# check TOUR: says what is wrong with it
check()
{
	local line text file function other n=0 wrong=0

	# a step a line: its first line, a tab, and what is said
	awk '
		/^ *[0-9]+\. / { if (said) print said; said = $0 "\t"; next }
		/^(#|$)/ { if (said) print said; said = ""; next }
		said { said = said " " $0 }
		END { if (said) print said }' "$1" >"$scratch/steps"
	while IFS= read -r line; do
		text=${line#*$'\t'} line=${line%%$'\t'*}
		n=$((n + 1))
		if [[ ! $line =~ $step || ${BASH_REMATCH[2]} != "${BASH_REMATCH[3]}" ]]; then
			echo "not 'N. \`function()\` in [file](../file)' with two spaces behind: $line"
			wrong=1
			continue
		fi
		function=${BASH_REMATCH[1]} file=${BASH_REMATCH[2]}
		if [[ ! -f $file ]]; then
			echo "$function(): there is no $file"
			wrong=1
			continue
		fi
		body "$function" "$file" >"$scratch/body"
		if [[ ! -s $scratch/body ]]; then
			echo "$function() is not defined in $file"
			wrong=1
			continue
		fi
		for other in $(grep -oE 'calls[^.:;]*' <<<"$text" | grep -oE '`[a-z_]+\(\)`' | tr -d '`()'); do
			grep -qE "\b$other\(" "$scratch/body" ||
				{ echo "$function() in $file does not call $other()" && wrong=1; }
		done
		for other in $(grep -oE 'sends[^.:;`]*`[A-Z_]+`' <<<"$text" | sed -E 's/.*`(.*)`/\1/'); do
			grep -qE "\bWIRE_$other\b" "$scratch/body" ||
				{ echo "$function() in $file does not send $other" && wrong=1; }
		done
	done <"$scratch/steps"
	((n >= 20)) || { echo "$n steps are no tour" && wrong=1; }
	return $wrong
}

check docs/tour.md || exit 1

# notices SCRIPT MESSAGE: what is changed by that script for sed
notices()
{
	sed -E "$1" docs/tour.md >"$scratch/tour"
	if cmp -s docs/tour.md "$scratch/tour"; then
		echo "nothing was changed to see whether it is noticed: $2"
		exit 1
	elif check "$scratch/tour" >"$scratch/said" || ! grep -qF "$2" "$scratch/said"; then
		echo "not noticed: $2"
		exit 1
	fi
}
notices 's/`share_alloc\(\)` in/`share_allocate()` in/' 'share_allocate() is not defined in'
notices 's/calls `lease_grant\(\)`/calls `lease_return()`/' 'does not call lease_return()'
notices 's/, and `channel_order\(\)`/, and `share_ack()`/' 'does not call share_ack()'
notices 's/sends `ALLOC`/sends `PUBLISH`/' 'does not send PUBLISH'

echo "$(grep -cE '^ *[0-9]+\. ' docs/tour.md) steps"
