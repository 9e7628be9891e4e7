#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What sharectl shows of a broker that holds what cli-hold puts there.
#
# usage: sharectl_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

user=$(id -un 2>/dev/null || id -u)

# Who runs this, as which processes, when.
normalise()
{
	normalise_common |
		sed -E -e 's/^((pid|keeper|deputy|requests|connections|descriptors_limit) +)[0-9]+$/\1N/' \
			-e 's/^((uptime|oldest_lease) +)[0-9]+d [0-9:]{8}$/\10d HH:MM:SS/' \
			-e 's/^((journal_bytes|broker_memory|broker_memory_limit|broker_memory_wanted) +)[0-9.]+[KM]iB$/\1N/' \
			-e 's/"(pid|awaits|keeper|deputy|uptime_ms|oldest_lease_ms|age_ms|journal_bytes|broker_memory|broker_memory_limit|broker_memory_wanted|requests|connections|descriptors_limit|owner|uid)":[0-9]+/"\1":N/g' \
			-e 's/"client":[0-9]+(.*"label":"sharectl")/"client":N\1/' \
			-e 's/("descriptors","used":[0-9]+,"limit":)[0-9]+/\1N/' \
			-e 's/("broker_memory","used":)[0-9]+(,"limit":)[0-9]+/\1N\2N/' \
			-e "s/ $user\$/ USER/"
}

# The same for tables in which these move the columns beside them.
golden_processes()
(
	normalise()
	{
		normalise_common |
			sed -E -e 's/ +/ /g' -e 's/^ //' \
				-e "s/^([0-9]+) [0-9]+ $user /\1 PID USER /" \
				-e 's/^[0-9]+ (PID .* sharectl)$/N \1/' \
				-e "s/^$user ([a-z_]+ )/USER \1/" \
				-e 's/ 0d 00:00:[0-9]{2} / AGE /' \
				-e 's/^(USER descriptors [0-9]+) [0-9]+$/\1 N/' \
				-e 's/^(USER broker_memory) [0-9.]+[KM]iB [0-9.]+[KMG]iB$/\1 N N/' \
				-e 's/ [0-9]+:(rw|ro)/ PID:\1/g' \
				-e 's/ from [0-9]+/ from PID/g' -e 's/ [0-9]+>/ PID>/g' -e 's/>[0-9]+/>PID/g'
	}
	failures=0
	golden "$@"
	((failures == 0))
)

is_json()
{
	sharectl --json "$@" >"$scratch/json" && cli-count-json <"$scratch/json" >"$scratch/count"
}

# A pool of no kind has the broker start a process that looks for devices, and end it.
agents_have_ended()
{
	[[ $(sharectl status | awk '$1 == "agents" { print $2 }') == 0 ]]
}

leases_older_than()
{
	(($(sharectl --no-headings leases --older-than "$1" | wc -l) == 3))
}

# Those of one buffer that many have do not fit on one page of the broker's.
many_holders()
{
	coproc HOLD { exec cli-hold holders; }
	local hold=$HOLD_PID
	read -r _ <&"${HOLD[0]}"

	check "each of many holders of a buffer is listed" \
		same "$(sharectl --no-headings leases | wc -l)" 41
	check "and listed once" \
		same "$(sharectl --no-headings leases | awk '{ print $1 }' | sort -u | wc -l)" 41

	exec {HOLD[1]}>&-
	wait "$hold"
}

known_state()
{
	coproc HOLD { exec cli-hold; }
	local hold=$HOLD_PID leases
	read -r _ <&"${HOLD[0]}"

	until_true agents_have_ended
	golden status sharectl status
	golden status-json sharectl --json status
	golden pools sharectl pools
	golden pools-bytes sharectl --bytes pools
	golden pools-no-headings sharectl pools --no-headings
	golden pools-json sharectl --json pools
	golden segments sharectl segments
	golden segments-json sharectl --json segments
	golden_processes clients sharectl clients || failures=$((failures + 1))
	golden clients-json sharectl --json clients
	golden_processes buffers sharectl buffers || failures=$((failures + 1))
	golden buffers-json sharectl --json buffers
	golden_processes users sharectl users || failures=$((failures + 1))
	golden users-json sharectl --json users
	golden names sharectl names
	golden names-json sharectl --json names
	golden names-prefix sharectl names weights/
	golden names-prefix-json sharectl --json names weights/
	golden names-prefix-none sharectl names nothing
	golden names-prefix-none-quiet sharectl --no-headings names nothing
	golden names-prefix-none-json sharectl --json names nothing
	golden names-ascii env LC_ALL=C sharectl names
	leases=$(sharectl --json leases | sed -E 's/"age_ms":[0-9]+//')
	golden recipe sharectl recipe weights/größer nothing frames/left
	golden recipe-bytes sharectl --bytes recipe frames/left
	golden recipe-json sharectl --json recipe small nothing weights/größer
	golden recipe-none-json sharectl --json recipe nothing
	check "--json recipe is JSON" is_json recipe small weights/größer
	check "who reads recipes keeps no buffer" same \
		"$(sharectl --json leases | sed -E 's/"age_ms":[0-9]+//')" "$leases"

	golden_processes leases sharectl leases --sort size || failures=$((failures + 1))
	golden leases-json sharectl --json leases
	golden leases-young sharectl leases --older-than 1d
	golden leases-young-json sharectl --json leases --older-than 1d --sort age
	check "a lease is older than no time at all" \
		same "$(until_true leases_older_than 0.001 && sharectl --no-headings leases | wc -l)" 3
	golden sort-size sharectl --bytes pools --sort used
	golden sort-reverse sharectl --bytes pools --sort Used --reverse
	golden sort-text sharectl --json names --sort NAME
	check "identifiers are sorted as numbers" same \
		"$(sharectl --json buffers --sort buffer | grep -o '"buffer":"[^"]*')" \
		"$(sharectl --json buffers | grep -o '"buffer":"[^"]*' | sort)"

	for report in status pools segments clients buffers leases names users; do
		check "--json $report is JSON" is_json "$report"
	done
	check "--json is an array when nothing is listed" is_json names nothing
	if [[ $(script -qec 'echo works' /dev/null </dev/null 2>&1) == works* ]]; then
		golden names-terminal script -qec 'stty cols 40; sharectl names' /dev/null
	else
		echo "SKIPPED: what a terminal gets (there is no script(1))"
	fi

	exec {HOLD[1]}>&-
	wait "$hold"
	golden names-after sharectl names
	golden segments-after sharectl --json segments
}

# Who takes part in channels.
channels()
{
	coproc HOLD { exec cli-hold channels; }
	local hold=$HOLD_PID
	read -r _ <&"${HOLD[0]}"

	golden_processes channels sharectl channels || failures=$((failures + 1))
	golden channels-json sharectl --json channels
	check "--json channels is JSON" is_json channels
	check "and has all of them" same "$(cat "$scratch/count")" 3

	exec {HOLD[1]}>&-
	wait "$hold"
	golden channels-after sharectl --json channels
}

# More than one answer of the broker holds.
many()
{
	coproc HOLD { exec cli-hold 3000; }
	local hold=$HOLD_PID
	read -r _ <&"${HOLD[0]}"

	sharectl buffers >"$scratch/table"
	check "a table of 3000 buffers has a heading and 3000 lines" \
		same "$(wc -l <"$scratch/table")" 3001
	check "no buffer is listed twice" \
		same "$(tail -n +2 "$scratch/table" | awk '{ print $1 }' | sort -u | wc -l)" 3000
	check "JSON of 3000 buffers is JSON" is_json buffers
	check "and has all of them" same "$(cat "$scratch/count")" 3000
	check "with no heading there is one line less" \
		same "$(sharectl --no-headings buffers | wc -l)" 3000

	exec {HOLD[1]}>&-
	wait "$hold"
	check "buffers of who went are not listed" same "$(sharectl --json buffers)" "[]"
}

case ${1-} in
known_state | channels | many | many_holders)
	"$1"
	finish
	;;
esac

check "the known state is shown" share-run --config="$cli/broker.json" -- "$0" known_state
check "channels are shown" share-run --config="$cli/broker.json" -- "$0" channels
check "many buffers are shown" share-run --config="$cli/broker.json" -- "$0" many
check "many holders are shown" share-run --config="$cli/broker.json" -- "$0" many_holders
check "nothing is left behind" is_empty "$TMPDIR"
finish
