#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The model of the fence protocol (fence.pml) holds in every order in which its steps can happen,
# and fails, for the reason expected, when one of its rules is broken. Needs spin and a C compiler.
#
# usage: model_test.sh [--full]      --full: larger worlds as well, twice the time

set -euo pipefail

command -v spin >/dev/null || {
	echo "SKIPPED: spin is not installed"
	exit 77
}
here=$(dirname "$(readlink -f "$0")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
compiler=${CC:-cc}
# At most 2000 MiB each; two run at a time.
storage=(-DCOLLAPSE -DVECTORSZ=512 -DMEMLIM=2000)

# What is tried: what has to come of it | what it is | for spin | for the compiler
small="-DFIRST=1 -DSECOND=1"
usual="-DFIRST=1 -DSECOND=2"
safety="-O2 -DSAFETY"
quick="-O1 -DSAFETY"
worlds=(
	"holds|the first may die, the second has two streams|$usual|$safety"
	"holds|the first may die, one stream each|-DFIRST=2 -DSECOND=1 -DTWO_STREAMS=0|$safety"
	"holds|both may die|$small -DDEATHS=2|$safety"
	"holds|host memory|$usual -DHOST_MEMORY|$safety"
	"holds|no run is endless|$small|-O1 -DNP"
	"holds|every order, none left out as equivalent|$small|$quick -DNOREDUCE"
)
larger=(
	"holds|the first may die, and has two streams|-DFIRST=2 -DSECOND=1|$safety"
	"holds|none dies, two streams each|-DFIRST=2 -DSECOND=2 -DDEATHS=0|$safety"
	"holds|the first may die, twice two rounds|-DFIRST=2 -DSECOND=2 -DTWO_STREAMS=0|$safety"
)
mutations=(
	"work_too_early|NO_WAIT|$usual|$quick"
	"work_too_early|FREE_BEFORE_FENCE|$usual|$quick"
	"work_too_early|FORGET_GATE|$usual|$quick"
	"work_too_early|ORDERED_BY_GIVER_ONLY|$usual|$quick"
	"work_too_early|DROP_AT_HANGUP|$usual|$quick"
	"poison_undone|POISON_AT_HANGUP|$usual|$quick"
	"waiter_stuck|NO_POISON|$usual|$quick"
	"waiter_stuck|HAND_OUT_BEFORE_SIGNAL|$usual|$quick"
	"void_called_reached|TRUST_LATE_SIGNAL|$usual|$quick"
	"void_called_reached|TRUST_A_LOOK|$usual|$quick"
	"work_too_early value_went_back|REUSE_SLOT_EARLY|$usual|$quick"
	"work_too_early|SIGNAL_OVERTAKES|$usual|$quick"
)

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
	local folder=$scratch/$1 expected name world options mutation="" find=() result states

	IFS='|' read -r expected name world options <<<"$2"
	[[ $expected == holds ]] || mutation=-D$name
	mkdir "$folder"
	cd "$folder"
	read -ra world <<<"$world $mutation"
	read -ra options <<<"$options"
	[[ ${options[*]} == *-DNP* ]] && find=(-l)
	# What spin and pan say is in their output; their exit codes say little.
	{
		spin "${world[@]}" -a "$here/fence.pml" &&
			"$compiler" -w "${options[@]}" "${storage[@]}" -o pan pan.c &&
			./pan -m100000 "${find[@]}"
	} >out 2>&1 || true
	result=$(result_of out)
	states=$(sed -nE 's/^ *([0-9]+) states, stored.*/\1/p' out)
	printf '  %-50s %9s states  %s\n' "$name" "${states:-no}" "$result" >row
	[[ " $expected " == *" $result "* ]] || {
		echo "    FAILED: expected: $expected" >>row
		tail -n 25 out >>row
		touch failed
	}
	rm -f pan pan.*
}

[[ ${1:-} == --full ]] && worlds+=("${larger[@]}")
all=("${worlds[@]}" "${mutations[@]}")
running=0
for i in "${!all[@]}"; do
	if ((running++ >= 2)); then
		wait -n
	fi
	search "$i" "${all[$i]}" &
done
wait

failed=0
for i in "${!all[@]}"; do
	((i != 0)) || echo "the protocol, in every order:"
	((i != ${#worlds[@]})) || echo "with a rule broken:"
	cat "$scratch/$i/row"
	[[ ! -e $scratch/$i/failed ]] || failed=1
done
exit $failed
