#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# How programs exit that are used wrongly: with the number that their manual pages say.
#
# usage: usage_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

manual=$SHARE_TEST_SOURCE/docs

# A page as one line of words.
words()
{
	sed -E '/^\.\\"/d; s/^\.[A-Z][a-z] //; s/^\.[A-Z][a-z]$//' "$manual/$1" | tr -s '\n' ' '
}

# told PAGE BEFORE AFTER: the number between these words; nothing when it is not told.
told()
{
	words "$1" | grep -oE "$2[0-9]+$3" | grep -oE '[0-9]+' || true
}

# refuses PROGRAM CODE ARGUMENT...: says so on stderr, nothing on stdout, and exits with that.
refuses()
{
	local program=$1 wanted=$2 code=0

	shift 2
	"$program" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
	same "$code" "$wanted" && same "$(<"$scratch/out")" "" &&
		grep -q "^$program: " "$scratch/err"
}

broker=$(told share-broker.1 '' ' after wrong usage\. share-agent')
agent=$(told share-broker.1 'share-agent , .* exits with ' ' after wrong usage')
ctl=$(told sharectl.1 '' ' after wrong usage')
exporter=$(told share-exporter.1 '' ' after wrong usage')
run=$(told share-run.1 '' ' itself failed: it was used wrongly')

check "share-broker: an option that there is not" refuses share-broker "$broker" --frobnicate
check "share-broker: an option without its value" refuses share-broker "$broker" --config
check "share-broker: a level that there is not" refuses share-broker "$broker" --log-level=loud
check "share-broker: a descriptor that is not open" refuses share-broker "$broker" --listen-fd=77
check "share-broker: an argument" refuses share-broker "$broker" /etc/share/broker.json
check "share-broker: wrong usage is no wrong configuration" [ "$broker" != 2 ]

check "sharectl: an option that there is not" refuses sharectl "$ctl" --frobnicate status
check "sharectl: an option without its value" refuses sharectl "$ctl" --socket
check "sharectl: no command" refuses sharectl "$ctl"
check "sharectl: a command that there is not" refuses sharectl "$ctl" poools
check "sharectl: an argument too many" refuses sharectl "$ctl" pools default

check "share-exporter: an option that there is not" refuses share-exporter "$exporter" --frobnicate
check "share-exporter: an address that is none" refuses share-exporter "$exporter" --listen=here
check "share-exporter: an argument" refuses share-exporter "$exporter" 9756

check "share-run: an option that there is not" refuses share-run "$run" --frobnicate
check "share-run: an option without its value" refuses share-run "$run" --config
check "share-run: no command" refuses share-run "$run"

if [[ -x $SHARE_TEST_BIN/share-agent ]]; then
	check "share-agent: an option that there is not" refuses share-agent "$agent" --frobnicate
	check "share-agent: no socket" refuses share-agent "$agent"
	check "share-agent: no socket, but a file" refuses share-agent "$agent" --socket=0
	check "share-agent: an argument" refuses share-agent "$agent" now
else
	echo "SKIPPED: share-agent (it was not built)"
fi
finish
