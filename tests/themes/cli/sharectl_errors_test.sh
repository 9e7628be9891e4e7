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

with_broker()
{
	check "a full disk is an error" to_full_disk sharectl status
	check "for a table" to_full_disk sharectl pools
	check "for JSON" to_full_disk sharectl --json pools
	check "for what is done" to_full_disk sharectl destroy default
	check "--socket is what counts, not SHARE_SOCKET" \
		env SHARE_SOCKET="$scratch/nowhere" sharectl -s "$SHARE_SOCKET" --json names
}

case ${1-} in
with_broker)
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
golden empty-socket sharectl --socket= status

golden act-on-nothing sharectl revoke
golden act-on-no-number sharectl drop-client 12 twelve
golden act-on-no-token sharectl revoke "$(printf 'f%.0s' {1..64})"
golden act-on-empty sharectl unpublish ''
golden act-json sharectl --json destroy default
golden act-yes sharectl --yes unpublish name

golden no-broker sharectl --socket="$scratch/nowhere" status
golden no-broker-json sharectl --socket="$scratch/nowhere" --json buffers
golden no-broker-environment env SHARE_SOCKET="$scratch/nowhere" sharectl names
touch "$scratch/file"
golden no-socket sharectl --socket="$scratch/file" status
golden long-path sharectl --socket="/$(printf '%0110d' 0)" status
check "'embedded' is the name of a socket like any other" \
	prints_error sharectl --socket=embedded status

check "with a broker" share-run -- "$0" with_broker
check "nothing is left behind" is_empty "$TMPDIR"
finish
