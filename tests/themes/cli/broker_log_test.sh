#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The log of share-broker, line by line, for the journal and for anybody else.
#
# usage: broker_log_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

socket=$scratch/s
log=$scratch/log
config=$scratch/broker.json
cat >"$config" <<-END
	{ "pools": [ { "name": "default", "kind": "host", "limit": "64MiB" },
	             { "name": "weights", "kind": "host", "limit": "1GiB" } ] }
END

normalise()
{
	normalise_common | sed -E -e 's/(descriptors:|raised from|\),) [0-9]+/\1 N/g' -e 's/, raised from N//' -e 's/0d 00:0[0-9]:[0-9]{2}/0d 00:00:SS/'
}

end_all()
{
	[[ -z ${pid-} ]] || kill_service "$pid"
	rm -rf "$scratch"
}
trap end_all EXIT

answers()
{
	sharectl --socket "$socket" --json status >/dev/null 2>&1
}

# broker COMMAND...: a broker whose log is $log, as long as the function "meanwhile" runs
broker()
{
	local code=0

	: >"$log"
	"$@" 2>>"$log" &
	pid=$!
	check "$1 serves" until_true answers
	meanwhile
	kill -TERM "$pid"
	wait "$pid" || code=$?
	pid=
	check "and ends" same "$code" 0
}

meanwhile()
{
	:
}

# What "[device]:[inode]" of the journal's stream would be, if $log were it.
stream()
{
	stat -c %d:%i "$log"
}

broker share-broker --socket "$socket" --config "$config"
golden log-dated cat "$log"

: >"$log"
broker env JOURNAL_STREAM="$(stream)" share-broker --socket "$socket" --config "$config"
golden log-journal cat "$log"

broker env JOURNAL_STREAM="$(stat -c %d:%i "$config")" share-broker --socket "$socket" \
	--config "$config"
golden log-dated cat "$log"

rm -f "$socket"
broker cli-activate "$socket" share-broker --config "$config"
golden log-activated cat "$log"

finish
