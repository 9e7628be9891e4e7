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

normalise()
{
	normalise_common | sed -e "s/uid $EUID /uid UID /"
}

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
golden broker-bad-drain share-broker --drain-ms=60001

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

# checks GOLDEN PATH: the same for a good configuration with this socket
checks()
{
	printf '{\n  "pools": [{"name": "a", "limit": "1GiB"}],\n  "socket": "%s"\n}\n' "$2" >"$config"
	golden "broker-$1" share-broker --check --config "$config"
}
mkdir "$scratch/there"
touch "$scratch/file" "$scratch/there/file"
checks check "$socket"
checks check-directory-to-be-made "$scratch/there/share/s"
check "it has made nothing" exits 2 ls "$scratch/there/share" 2>/dev/null
checks check-no-directory "$scratch/nowhere/share/s"
checks check-directory-is-file "$scratch/file/s"
checks check-directory-in-file "$scratch/file/share/s"
checks check-file "$scratch/there/file"
checks check-is-directory "$scratch/there"
golden broker-check-option share-broker --check --config "$config" --socket "$scratch/nowhere/share/s"
golden broker-check-overridden share-broker --check --config "$config" --socket "$socket"
golden broker-check-too-long share-broker --check --socket "/$(printf '%0107d' 0)"
if as_alice true 2>/dev/null; then
	chmod 755 "$scratch" "$scratch/there"
	checks_as_alice()
	{
		check "somebody else is told: $1" \
			exits 1 as_alice share-broker --check --socket "$2" 2>"$scratch/err"
		check "with the reason" grep -q "uid 4711 cannot make .*: Permission denied (" \
			"$scratch/err"
	}
	checks_as_alice "a directory of others" "$scratch/there/s"
	checks_as_alice "a directory to be made in one of others" "$scratch/there/share/s"
fi

# ----------------------------------------------------------------------------------------------

started=()
end_all()
{
	kill_service "${started[@]}"
	rm -rf "$scratch"
}
trap end_all EXIT

check "a broker does not serve in a directory that it cannot make" \
	exits 1 share-broker --socket "$scratch/nowhere/share/s" 2>"$scratch/err"
check "and says what is missing" grep -q "there is no directory $scratch/nowhere/share" "$scratch/err"

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

kill_service "$first"
check "its socket is left" test -S "$socket"
start "$socket"
check "a stale socket is replaced" until_true answers "$socket"
start "$scratch/made/s"
check "a directory is made for it" until_true answers "$scratch/made/s"
check "that all can enter" same "$(stat -c %a "$scratch/made")" 755
kill -TERM "$pid"
wait "$pid" || true
pid=${started[-2]}
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
check "SIGTERM ends it with success" same "$code" 0
check "and its socket is gone" test ! -e "$socket"
# How long it waits for who holds something is in its configuration, too.
echo '{ "drain_ms": 60000, "create_pools": ["*"] }' >"$config"
share-broker --config "$config" --socket "$socket" 2>>"$scratch/log" &
pid=$!
started+=("$pid")
check "a broker serves that drains" until_true answers "$socket"
coproc HOLD { SHARE_SOCKET=$socket exec cli-hold 1; }
read -r -u "${HOLD[0]}" _
kill -TERM "$pid"
check "it waits for who holds something" until_true grep -q \
	'is to end on SIGTERM, and waits until 1 client no longer holds anything, for 60000 ms at most' "$scratch/log"
check "and names it" until_true grep -q "(pid $HOLD_PID, .*) is waited for: it holds 1 lease (.*)" "$scratch/log"
check "an administrator comes in meanwhile" answers "$socket"
check "and sees who that is" grep -q "^ *[0-9]* $HOLD_PID " <(sharectl --socket "$socket" clients)
SHARE_SOCKET=$socket cli-hold 1 2>"$scratch/refused" </dev/null || true
check "others are refused, with the reason" grep -q 'the broker is about to end' "$scratch/refused"
kill -KILL "$HOLD_PID"
code=0
wait "$pid" || code=$?
check "and ends with success when that is gone" same "$code" 0
check "and its socket with it" test ! -e "$socket"
check "nothing was logged as a bug" exits 1 grep -q BUG "$scratch/log"

finish
