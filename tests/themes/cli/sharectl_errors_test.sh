#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What sharectl says when it is called the wrong way, or when nobody is there to be asked.
#
# usage: sharectl_errors_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

prints_error()
{
	[[ $("$@" 2>&1 >/dev/null) == "sharectl: "?* ]]
}

to_full_disk()
{
	exits 1 "$@" 2>"$scratch/full" >/dev/full &&
		same "$(<"$scratch/full")" "sharectl: No space left on device"
}

# What doctor finds is another thing on each machine; how it says so is the same.
examines()
{
	local bad

	exits "$1" sharectl doctor >"$scratch/doctor" || { cat "$scratch/doctor" && return 1; }
	sharectl --json doctor >"$scratch/doctor.json" || true
	bad=$(grep -c '^bad' "$scratch/doctor" || true)
	same "$(grep -c '"state": "bad"' "$scratch/doctor.json" || true)" "$bad" &&
		same "$((bad > 0))" "$1" && cli-count-json <"$scratch/doctor.json" >"$scratch/count" &&
		same "$(<"$scratch/count")" "$(grep -cE '^(ok|note|bad)' "$scratch/doctor")"
}

with_broker()
{
	check "doctor examines the machine of a broker" examines 0
	check "and names the broker" grep -q "^ok .*broker: version .* at $SHARE_SOCKET" "$scratch/doctor"
	check "a full disk is an error" to_full_disk sharectl status
	check "for a table" to_full_disk sharectl pools
	check "for JSON" to_full_disk sharectl --json pools
	check "for what is done" to_full_disk sharectl destroy default
	check "--socket is what counts, not SHARE_SOCKET" \
		env SHARE_SOCKET="$scratch/nowhere" sharectl -s "$SHARE_SOCKET" --json names
}

without_broker()
{
	check "doctor without a broker" examines 1
	check "what is bad is the broker" grep -q "^bad .*broker: no broker answers at " "$scratch/doctor"
}

# Of the broker, its keeper and its deputy nothing is left; a program runs on.
after_a_loss()
{
	local broker

	share-broker --socket "$scratch/s" --config "$cli/broker.json" 2>/dev/null &
	broker=$!
	until_true sharectl --socket "$scratch/s" status >/dev/null 2>&1
	coproc HOLD { SHARE_SOCKET=$scratch/s exec cli-hold; }
	read -r -u "${HOLD[0]}" _
	sharectl --socket "$scratch/s" doctor >"$scratch/doctor" || true
	check "no program has memory of a broker that is gone" grep -q \
		'^ok .*old memory: no program .* has any of a broker that is gone$' "$scratch/doctor"
	kill_service "$broker"
	sharectl --socket "$scratch/s" doctor >"$scratch/doctor" || true
	check "who has some is named with its size" grep -Eq \
		"^note .*old memory: 1 program has .* gone: $HOLD_PID \(cli-hold, uid [0-9]+\): [0-9]{4,} KiB$" "$scratch/doctor"
	kill "$HOLD_PID"
	rm -f "$scratch"/s*
}

case ${1-} in
with_broker | without_broker | after_a_loss)
	"$1"
	finish
	;;
esac

golden sharectl-help sharectl --help
golden sharectl-usage sharectl --usage
golden sharectl-version sharectl --version
golden no-command sharectl
golden unknown-command sharectl poools
golden unknown-option sharectl --jason status
golden too-many-arguments sharectl pools default
golden too-many-prefixes sharectl names a b
golden sort-unknown sharectl buffers --sort holders
golden sort-single sharectl status --sort key
golden sort-act sharectl --sort size destroy default
golden reverse-alone sharectl pools --reverse
golden older-than-what sharectl clients --older-than 5m
golden older-than-time sharectl leases --older-than 5x
golden empty-socket sharectl --socket= status

golden act-on-nothing sharectl revoke
golden act-on-no-number sharectl drop-client 12 twelve
golden act-on-no-token sharectl revoke "$(printf 'f%.0s' {1..64})"
golden act-on-empty sharectl unpublish ''
golden recipe-of-nothing sharectl recipe
golden recipe-of-empty sharectl recipe ''
golden act-json sharectl --json destroy default
golden act-yes sharectl --yes unpublish name

check "doctor needs no broker, which it misses" \
	env SHARE_SOCKET="$scratch/nowhere" "$0" without_broker
golden no-broker sharectl --socket="$scratch/nowhere" status
golden no-broker-json sharectl --socket="$scratch/nowhere" --json buffers
golden no-broker-environment env SHARE_SOCKET="$scratch/nowhere" sharectl names
touch "$scratch/file"
golden no-socket sharectl --socket="$scratch/file" status
golden long-path sharectl --socket="/$(printf '%0110d' 0)" status
check "'embedded' is the name of a socket like any other" \
	prints_error sharectl --socket=embedded status

# Where other brokers of this machine are out of sight.
if unshare --pid --fork --mount-proc true 2>/dev/null; then
	check "after a total loss" unshare --pid --fork --mount-proc "$0" after_a_loss
fi
check "with a broker" share-run -- "$0" with_broker
check "nothing is left behind" is_empty "$TMPDIR"
finish
