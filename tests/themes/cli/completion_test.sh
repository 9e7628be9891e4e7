#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What the completions of tools/completion offer, each as its shell has it: commands, options,
# columns, and what a broker has. A shell that is not here is not asked, which is said.
#
# usage: completion_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

completion=$SHARE_TEST_SOURCE/tools/completion

# offers_SHELL WORD...: what can stand in the place of the last word, one a line.
offers_bash()
{
	bash -c 'source "$1"; shift
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
		_sharectl sharectl "${@: -1}" "${@: -2:1}"
		printf "%s\n" "${COMPREPLY[@]}"' bash "$completion/sharectl.bash" "$@"
}

# What stands behind a tab is what fish says about a word.
offers_fish()
{
	HOME=$scratch fish --no-config -c 'source $argv[1]; complete -C "$argv[2]"' \
		"$completion/sharectl.fish" "$*" | cut -f1
}

# zsh completes only what is typed: into a shell with a terminal of its own.
offers_zsh()
{
	HOME=$scratch zsh -f "$cli/completion.zsh" "$completion" "$*"
}

# offers SHELL "WORD..." WANTED...
offers()
{
	local shell=$1 words wanted

	read -ra words <<<"$2."
	words[-1]=${words[-1]%.}
	"offers_$shell" "${words[@]}" >"$scratch/offered"
	for wanted in "${@:3}"; do
		grep -qxF -- "$wanted" "$scratch/offered" || {
			echo "not offered for '$2': $wanted, but:"
			cat "$scratch/offered"
			return 1
		}
	done
}

# offers_only SHELL "WORD..." WANTED
offers_only()
{
	offers "$@" && same "$(grep -c . "$scratch/offered")" $(($# - 2))
}

with_broker()
{
	coproc HOLD { exec cli-hold ends; }
	local hold=$HOLD_PID shell
	read -r _ <&"${HOLD[0]}"

	for shell in "$@"; do
		check "$shell: commands" offers "$shell" "sharectl " status leases drop-client metrics reload
		check "$shell: a command that was begun" offers_only "$shell" "sharectl dro" drop-client
		check "$shell: options" offers "$shell" "sharectl --" --json --sort --older-than --yes
		check "$shell: columns" offers "$shell" "sharectl pools --sort " POOL LARGEST-FREE
		check "$shell: names" offers_only "$shell" "sharectl unpublish s" second
		check "$shell: names of recipes" offers_only "$shell" "sharectl recipe first s" second
		check "$shell: after an option with a value" \
			offers_only "$shell" "sharectl --sort SIZE names f" first
		check "$shell: pools" offers "$shell" "sharectl destroy " default
		check "$shell: tokens" offers "$shell" "sharectl revoke 0x" 0x100000000 0x100000001
		check "$shell: clients" offers "$shell" "sharectl --yes drop-client " 2
		check "$shell: nothing where nothing can stand" offers_only "$shell" "sharectl status "
	done

	exec {HOLD[1]}>&-
	wait "$hold"
}

if [[ ${1-} == with_broker ]]; then
	with_broker "${@:2}"
	finish
fi

shells=(bash)
for shell in zsh fish; do
	if command -v $shell >/dev/null; then
		shells+=($shell)
	else
		echo "SKIPPED: $shell (it is not here)"
	fi
done
check "shells complete" share-run --config="$cli/broker.json" -- "$0" with_broker "${shells[@]}"
export SHARE_SOCKET=$scratch/nowhere
for shell in "${shells[@]}"; do
	check "$shell: commands without a broker" offers_only "$shell" "sharectl na" names
	check "$shell: and no names" offers_only "$shell" "sharectl names "
done
finish
