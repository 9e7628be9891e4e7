# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Completion of sharectl for bash. Commands, options and columns are asked of sharectl itself, so
# that this file has no list that could grow old; names, pools, tokens and clients are asked of the
# broker, if there is one.

_sharectl_commands()
{
	"$1" --help 2>/dev/null | sed -nE '/^Commands:/,/^$/s/^  ([a-z-]+)  .*/\1/p'
}

_sharectl_options()
{
	"$1" --help 2>/dev/null | sed -nE 's/^ +(-., )?(--[a-z-]+).*/\2/p'
}

_sharectl_columns()
{
	"$1" "$2" --sort= 2>&1 >/dev/null | sed -n 's/.*, but by: //p' | tr -d ,
}

# _sharectl_values SHARECTL REPORT KEY: that member of each row.
_sharectl_values()
{
	"$1" --json "$2" 2>/dev/null | sed -nE "s/^\{\"$3\":\"?([^\",]+)\"?,.*/\1/p"
}

_sharectl()
{
	local sharectl=${COMP_WORDS[0]} word=$2 before=$3 command='' i words

	# bash takes a "=" for a word of its own
	[[ $word == = ]] && word=''
	[[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD - 2]}
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-s | --socket | --sort | --older-than | --count | --name | --pool | --timeout | --user)
			((i++))
			[[ ${COMP_WORDS[i]} != = ]] || ((i++))
			;;
		-*) ;;
		*) command=${command:-${COMP_WORDS[i]}} ;;
		esac
	done
	case $before:$command in
	-s:* | --socket:*)
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	--older-than:* | --count:* | --name:* | --timeout:*) return ;;
	--user:*) words=$(compgen -u -- "$word") ;;
	--pool:*) words=$(_sharectl_values "$sharectl" pools pool) ;;
	--sort:*)
		words=$(_sharectl_columns "$sharectl" "${command:-buffers}")
		word=${word^^}
		;;
	*)
		if [[ $word == -* ]]; then
			words=$(_sharectl_options "$sharectl")
		else
			case $command in
			'') words=$(_sharectl_commands "$sharectl") ;;
			names | recipe | unpublish) words=$(_sharectl_values "$sharectl" names name) ;;
			destroy) words=$(_sharectl_values "$sharectl" pools pool) ;;
			revoke) words=$(_sharectl_values "$sharectl" tokens token) ;;
			drop-client) words=$(_sharectl_values "$sharectl" clients client) ;;
			end-channel) words=$(_sharectl_values "$sharectl" channels channel) ;;
			*) return ;;
			esac
		fi
		;;
	esac
	# One word a line, as a name may have blanks in it.
	COMPREPLY=()
	while IFS= read -r i; do
		[[ -n $i && $i == "$word"* ]] && COMPREPLY+=("$(printf %q "$i")")
	done < <([[ $before == --sort ]] && tr ' ' '\n' <<<"$words" || echo "$words")
}

complete -F _sharectl sharectl
