#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What sharectl ends of a broker that holds what cli-hold puts there, and what it says about it.
#
# usage: sharectl_act_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

user=$(id -un 2>/dev/null || id -u)

# Who runs this, as which processes, when.
normalise()
{
	normalise_common |
		sed -E -e 's/ +/ /g' -e 's/^ ([^ ])/\1/' -e "s/ $user\$/ USER/" \
			-e "s/\\(pid [0-9]+, $user,/(pid PID, USER,/" \
			-e 's/process [0-9]+ ends/process PID ends/' -e 's/drop-client [0-9]+/drop-client PID/' \
			-e 's/ 0d (00:59:[0-9]{2}|01:00:00) / 0d 00:59:SS /' \
			-e 's/(default [0-9]+) [0-9]+ /\1 PID /' -e "s/( PID) $user /\\1 USER /" \
			-e 's/"(pid|uid|left_ms)":[0-9]+/"\1":N/g' \
			-e 's/(client )[0-9]+|(client":)[0-9]+/\1\2N/g'
}

# start: a cli-hold, its number in $hold
start()
{
	coproc HOLD { exec cli-hold ends; }
	hold=$HOLD_PID
	read -r _ <&"${HOLD[0]}"
}

end()
{
	exec {HOLD[1]}>&-
	wait "$hold"
}

has()
{
	sharectl --json "$1" | grep -q "$2"
}

# answers WORD...: sharectl with that typed in a terminal, and what it prints in $scratch/typed
answers()
{
	local word=$1

	shift
	printf '%s\n' "$word" | script -qec "$*" /dev/null >"$scratch/typed" 2>&1
}

what_ends()
{
	start
	golden act-tokens sharectl tokens
	golden act-tokens-json sharectl --json tokens
	golden act-unpublish sharectl unpublish first nothing second
	check "names are gone" same "$(sharectl --json names)" "[]"
	golden act-revoke sharectl revoke 0x100000000 0xabc 100000001
	check "tokens are gone" same "$(sharectl --json tokens)" "[]"
	golden act-destroy sharectl destroy default nothing weights
	end
}

dropping()
{
	start
	golden drop-not-asked sharectl drop-client "$hold"
	check "it was not dropped" has clients '"state":"ready","leases":1'
	if [[ $(script -qec 'echo works' /dev/null </dev/null 2>&1) == works* ]]; then
		check "no means no" exits 1 answers n sharectl drop-client "$hold"
		check "and is said" grep -q 'nothing has happened' "$scratch/typed"
		check "it is not dropped" has clients '"state":"ready","leases":1'
		check "anything but yes means no" exits 1 answers ja sharectl drop-client "$hold"
		check "it is still not dropped" has clients '"state":"ready","leases":1'
		check "yes means yes" answers y sharectl drop-client "$hold"
		check "and is said" grep -q 'client [0-9]* is dropped' "$scratch/typed"
	else
		echo "SKIPPED: what is asked in a terminal (there is no script(1))"
		sharectl --yes drop-client "$hold"
	fi
	check "it is in quarantine" until_true has clients '"state":"quarantined","leases":1'
	check "its name is gone" exits 1 has names '"first"'
	check "one that was to outlive it is not" has names '"second"'
	check "its tokens are gone" same "$(sharectl --json tokens)" "[]"
	golden drop-quarantined sharectl drop-client "$hold"
	end
	check "its memory stays until its end" until_true has status '"quarantined":0'
	start
	golden drop-yes sharectl --yes drop-client "$hold"
	check "and it has happened" until_true has clients '"state":"quarantined","leases":1'
	end
	golden drop-nobody sharectl --yes drop-client 999999999 client:0
}

channels()
{
	coproc HOLD { exec cli-hold left; }
	hold=$HOLD_PID
	read -r _ <&"${HOLD[0]}"
	golden end-not-asked sharectl end-channel jobs/left
	check "it has not ended" has channels '"waiting":3'
	if [[ $(script -qec 'echo works' /dev/null </dev/null 2>&1) == works* ]]; then
		check "no means no" exits 1 answers n sharectl end-channel jobs/left
		check "and is said" grep -q 'nothing has happened' "$scratch/typed"
		check "it still has not ended" has channels '"waiting":3'
	else
		echo "SKIPPED: what is asked in a terminal (there is no script(1))"
	fi
	golden end-channel sharectl --yes end-channel jobs/left jobs/left nothing
	check "it has ended" same "$(sharectl --json channels)" "[]"
	check "and is counted" has status '"messages_lost":3'
	end
}

case ${1-} in
what_ends | dropping | channels)
	"$1"
	finish
	;;
esac

check "names, tokens and pools end" share-run --config="$cli/broker.json" -- "$0" what_ends
check "clients are dropped" share-run --config="$cli/broker.json" -- "$0" dropping
check "channels end" share-run --config="$cli/broker.json" -- "$0" channels
check "nothing is left behind" is_empty "$TMPDIR"
finish
