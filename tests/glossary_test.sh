#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# docs/glossary.md has at most 60 nouns, one entry each, of at most two sentences. The file that owns
# a noun is there and has the words of it. What is wrong with a glossary is noticed.
#
# usage: glossary_test.sh [ROOT]

set -euo pipefail

root=$(cd "${1:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
cd "$root"
export LC_ALL=C.UTF-8
most=60
entry='^\*\*([a-z ]+)\*\* — (.+\.) \[(.+)\]\(\.\./(.+)\)$'
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# check GLOSSARY: says what is wrong with it
check()
{
	local noun told file word n=0 wrong=0
	local -A known=()

	while read -r line; do
		n=$((n + 1))
		if [[ ! $line =~ $entry ]]; then
			echo "not '**noun** — What it is. [file](../file)': $line"
			wrong=1
			continue
		fi
		noun=${BASH_REMATCH[1]} told=${BASH_REMATCH[2]} file=${BASH_REMATCH[3]}
		[[ -z ${known[$noun]:-} ]] || { echo "$noun has two entries" && wrong=1; }
		known[$noun]=1
		[[ $file == "${BASH_REMATCH[4]}" ]] || { echo "$noun: the link leads elsewhere" && wrong=1; }
		(($(grep -oE "\.( |\$)" <<<"$told" | wc -l) <= 2)) ||
			{ echo "$noun takes more than two sentences" && wrong=1; }
		if [[ ! -f $file ]]; then
			echo "$noun: there is no $file"
			wrong=1
			continue
		fi
		for word in $noun; do
			grep -qiF "${word%s}" "$file" || { echo "$noun: $file knows no '$word'" && wrong=1; }
		done
	done < <(grep '^\*\*' "$1")
	((n > 0)) || { echo "no noun was found" && wrong=1; }
	((n <= most)) || { echo "$n nouns are more than $most" && wrong=1; }
	return $wrong
}

check docs/glossary.md || exit 1

# notices SCRIPT MESSAGE: what is changed by that script for sed
notices()
{
	sed -E "$1" docs/glossary.md >"$scratch/glossary"
	if cmp -s docs/glossary.md "$scratch/glossary"; then
		echo "nothing was changed to see whether it is noticed: $2"
		exit 1
	elif check "$scratch/glossary" >"$scratch/said" || ! grep -q "$2" "$scratch/said"; then
		echo "not noticed: $2"
		exit 1
	fi
}
notices 's/^\*\*lease\*\*/**buffer**/' 'buffer has two entries'
notices 's/^\*\*fence\*\*/**hedge**/' "knows no 'hedge'"
notices 's|/fence\.h|/hedge.h|g' 'there is no include/share/hedge.h'
notices '/^\*\*(pool|pidfd|kind)/{p;p;p}' 'nouns are more than'

# stray WORD FILE...: where one of the words that had several meanings is used for another than is left
stray()
{
	local word=$1
	shift
	! grep -rniE "(^|[^a-z])(un|is_)?$word(s|ed|ing)?([^a-z]|$)" --include='*.[ch]' "$@" ||
		{ echo "$word: docs/glossary.md says what to say instead" && exit 1; }
}
stray park agent base broker/buffer broker/channel broker/client broker/config broker/device broker/log \
	broker/memory broker/names broker/request memory ring wire
stray token agent base broker/channel libshare/channel libshare/service memory pages ring
stray settle agent base broker/buffer broker/client broker/config broker/device broker/memory \
	broker/names broker/report broker/request libshare/buffer libshare/client libshare/order \
	libshare/service memory pages ring tools

echo "$(grep -c '^\*\*' docs/glossary.md) nouns"
