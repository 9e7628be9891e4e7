#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The models in a list (fence.list: the fence protocol; restart.list: a broker that dies, and the next
# one; channel.list: channels; wait.list: how waits end; orderings.list: what a weak processor keeps in
# order) hold in every order in which their steps can happen, and fail, for the reason expected, when one of
# their rules is broken. Needs spin and a C compiler.
#
# usage: model_test.sh LIST [--full]      --full: larger worlds as well, at least twice the time

set -euo pipefail

command -v spin >/dev/null || {
	echo "SKIPPED: spin is not installed"
	exit 77
}
here=$(dirname "$(readlink -f "$0")")
list=${1:?fence, restart, channel, wait or orderings}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
compiler=${CC:-cc}
fast_compiler=$(command -v tcc || echo "$compiler")
# At most 4000 MiB each; two run at a time.
storage=(-DVECTORSZ=512 -DMEMLIM=4000)

# What is tried: the model | what has to come of it | what it is | for spin | for the compiler. NOCOMP: to leave
# the bytes that are the same in all states out of each takes longer than to keep them.
# shellcheck disable=SC2034 # the lists use these three
plain="-O0 -DSAFETY -DNOCOMP" # most searches are shorter than a compilation that optimises
# shellcheck disable=SC2034
safety="-Og -DSAFETY -DNOCOMP" # more than that takes longer than it saves
# shellcheck disable=SC2034
large="-Og -DSAFETY -DCOLLAPSE" # twice the time, and less than half of the memory
worlds=()
larger=()
mutations=()
# shellcheck source=/dev/null
source "$here/$list.list"

# What came of the search that wrote $1: "holds", the name of what failed, or that it says nothing.
result_of()
{
	local failure

	failure=$(sed -nE 's/^pan:1: assertion violated +!\(([a-z_]+)\).*/\1/p' "$1")
	if grep -qE 'max search depth too small|Search not completed|out of memory|MEMLIM bound' "$1" &&
		[[ -z $failure ]]; then
		echo "not searched to the end"
	elif [[ -n $failure ]]; then
		echo "$failure"
	elif grep -q '^pan:1: ' "$1"; then
		sed -n 's/^pan:1: //p' "$1"
	elif grep -q 'errors: 0$' "$1"; then
		echo holds
	else
		echo "no result"
	fi
}

# One search in a folder of its own: $1 its number, $2 as above. Leaves a row of the table.
search()
{
	local folder=$scratch/$1 model expected name world options mutation="" find=() result states
	local cc=$compiler table=24

	IFS='|' read -r model expected name world options <<<"$2"
	[[ $expected == holds ]] || mutation=-D$name
	mkdir "$folder"
	cd "$folder"
	read -ra world <<<"$world $mutation"
	read -ra options <<<"$options"
	[[ ${options[*]} == *-DNP* ]] && find=(-l)
	# a table for 16 million states takes longer to clear than most searches take
	[[ ${options[*]} == *-O0* ]] && cc=$fast_compiler table=20
	# What spin and pan say is in their output; their exit codes say little.
	{
		spin "${world[@]}" -a "$here/$model.pml" &&
			"$cc" -w "${options[@]}" "${storage[@]}" -o pan pan.c &&
			./pan -m100000 -w$table "${find[@]}"
	} >out 2>&1 || true
	result=$(result_of out)
	states=$(sed -nE 's/^ *([0-9]+) states, stored.*/\1/p' out)
	printf '  %-8s %-50s %9s states  %s\n' "$model" "$name" "${states:-no}" "$result" >row
	[[ " $expected " == *" $result "* ]] || {
		echo "    FAILED: expected: $expected" >>row
		tail -n 25 out >>row
		touch failed
	}
	rm -f pan pan.*
}

[[ ${2:-} == --full ]] && worlds+=("${larger[@]}")
all=("${worlds[@]}" "${mutations[@]}")
running=0
for i in "${!all[@]}"; do
	if ((running++ >= 2)); then
		# It fails if both have ended by now. What a search came to is in its row.
		wait -n || true
	fi
	search "$i" "${all[$i]}" &
done
wait

failed=0
for i in "${!all[@]}"; do
	((i != 0)) || echo "in every order:"
	((i != ${#worlds[@]})) || echo "with a rule broken:"
	cat "$scratch/$i/row"
	[[ ! -e $scratch/$i/failed ]] || failed=1
done
exit $failed
