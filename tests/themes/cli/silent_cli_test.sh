#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# sharectl with a broker that is there and does not answer: each command ends when its time is over, and
# says which process does not answer, in which state, and what to do.
#
# usage: silent_cli_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

# What --help lists as commands, each with what it needs.
commands()
{
	sharectl --help | sed -nE '/^Commands:/,/^$/s/^  ([a-z-]+)  .*/\1/p' |
		sed -e 's/^recipe$/& name/; s/^unpublish$/& name/; s/^destroy$/& default/; s/^revoke$/& 1/' \
			-e 's/^drop-client$/--yes & 1/; s/^end-channel$/--yes & frames/; s/^top$/--once &/'
}

# names_it FILE: that says who does not answer
names_it()
{
	grep -qE "no.* answered for [0-9.]+ s; process $serving \(share-broker\) serves there, since [0-9-]+ [0-9:]+, and it is stopped \(state T\).*kill -KILL $serving" \
		"$1" || { cat "$1" && return 1; }
}

# ends_by_itself OPTION WORD...
ends_by_itself()
{
	exits 1 timeout 120 sharectl "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
}

silent()
{
	local command words

	serving=$(sharectl status | sed -n 's/^pid *//p')
	freeze "$serving"
	trap 'kill -CONT "$serving"' EXIT
	commands >"$scratch/commands"
	check "these are all commands" grep -qE '^watch$' "$scratch/commands"
	while read -r command; do
		[[ $command != doctor ]] || continue
		read -r -a words <<<"$command"
		# of watch it is something else
		[[ $command == watch ]] || words=(--timeout 0.05s "${words[@]}")
		check "$command ends" ends_by_itself "${words[@]}"
		check "and says who does not answer" names_it "$scratch/err"
	done <"$scratch/commands"
	kill -CONT "$serving"
	freeze "$serving"

	check "without --timeout, it ends as well" ends_by_itself status
	check "and says the same" names_it "$scratch/err"
	check "doctor ends" ends_by_itself --timeout 0.05s doctor
	check "it says who does not answer" names_it <(grep '^bad .*broker: ' "$scratch/out")
	check "and what to do" grep -q 'do: .*end the process that hangs' "$scratch/out"
	for subject in kernel descriptors 'huge pages' 'reserved pages' cgroup driver; do
		check "it has looked at $subject" grep -qE "^[a-z]+ +$subject: " "$scratch/out"
	done
	kill -CONT "$serving"
	check "once the broker goes on, all is well" sharectl --timeout 60s status >/dev/null
}

case ${1-} in
silent)
	"$1"
	finish
	;;
esac

# which its keeper does not end
echo '{ "hang_ms": 0, "pools": [ { "name": "default", "kind": "host" } ] }' >"$scratch/broker.json"
check "a broker that is stopped" share-run --config="$scratch/broker.json" -- "$0" silent
golden timeout-of-nothing sharectl --timeout 0 status
finish
