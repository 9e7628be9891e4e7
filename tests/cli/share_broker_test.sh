#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# How share-broker starts, or does not: configurations that are wrong, and socket paths that are
# too long, taken or stale.
#
# usage: share_broker_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

config=$scratch/broker.json
socket=$scratch/s

# refuses GOLDEN TEXT: a configuration the broker does not start with
refuses()
{
	printf '%s\n' "$2" >"$config"
	golden "broker-$1" share-broker --check --config "$config"
}

golden broker-help share-broker --help
golden broker-version share-broker --version
golden broker-no-file share-broker --config "$scratch/nowhere.json"
golden broker-bad-option share-broker --frobnicate
golden broker-bad-level share-broker --log-level=loud
golden broker-bad-fd share-broker --listen-fd=77

refuses unknown-key '{
  "pools": [
    { "name": "frames", "limitt": "1GiB" }
  ]
}'
refuses wrong-type '{ "pools": [ { "name": 7 } ] }'
refuses duplicate-key '{
  "socket": "/a",
  "socket": "/b"
}'
refuses duplicate-pool '{
  "pools": [ { "name": "a" },
             { "name": "a" } ]
}'
refuses impossible-value '{
  "pools": [ { "name": "a",
               "alignment": 513 } ]
}'
refuses bad-size '{ "pools": [ { "name": "a", "limit": "10 parsecs" } ] }'
refuses syntax '{ "pools": [ }'

printf '{"pools": [{"name": "a", "limit": "1GiB"}]}' >"$config"
golden broker-check share-broker --check --config "$config"

# ----------------------------------------------------------------------------------------------

started=()
end_all()
{
	for pid in "${started[@]}"; do
		kill -KILL "$pid" 2>/dev/null || true
	done
	rm -rf "$scratch"
}
trap end_all EXIT

answers()
{
	sharectl --socket "$1" --json status >/dev/null 2>&1
}

# start SOCKET: leaves the broker's number in $pid
start()
{
	share-broker --log-level=error --socket "$1" 2>>"$scratch/log" &
	pid=$!
	started+=("$pid")
}

long=$scratch/$(printf 'x%.0s' {1..120})
check "a path that is too long is refused" exits 1 share-broker --socket "$long" 2>"$scratch/err"
check "and said to be" grep -q 'has at most 107 bytes' "$scratch/err"

touch "$socket"
check "a file that is no socket is not replaced" exits 1 share-broker --socket "$socket" \
	2>"$scratch/err"
check "and is still there" test -f "$socket"
rm "$socket"

start "$socket"
first=$pid
check "a broker serves at its path" until_true answers "$socket"
check "a second one is refused there" exits 1 share-broker --socket "$socket" 2>"$scratch/err"
check "because a broker is there" grep -q 'a broker is serving there already' "$scratch/err"
check "the first one still serves" answers "$socket"

kill -KILL "$first"
check "it is dead" until_true is_dead "$first"
check "its socket is left" test -S "$socket"
start "$socket"
check "a stale socket is replaced" until_true answers "$socket"
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
check "SIGTERM ends it with success" same "$code" 0
check "and its socket is gone" test ! -e "$socket"
check "nothing was logged as a bug" exits 1 grep -q BUG "$scratch/log"

finish
