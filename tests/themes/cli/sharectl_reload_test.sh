#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The configuration, read again: what sharectl reload prints, what SIGHUP does to brokers that were
# started in each of the ways there are, and what they do when their terminal goes.
#
# usage: sharectl_reload_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

config=$scratch/broker.json
socket=$scratch/s
log=$scratch/log

first()
{
	cat >"$config" <<-'END'
		{ "limits": { "bytes": "8GiB" },
		  "pools": [ { "name": "frames", "kind": "host", "limit": "1GiB" },
		             { "name": "old", "kind": "host" } ] }
	END
}

second()
{
	cat >"$config" <<-'END'
		{ "socket": "/run/elsewhere",
		  "limits": { "bytes": "16GiB" },
		  "pools": [ { "name": "frames", "kind": "host", "limit": "2GiB",
		               "segment_size": "128MiB", "release_threshold": 0,
		               "access": [ { "user": "*", "mode": "ro" } ] },
		             { "name": "new", "kind": "host" } ] }
	END
}

wrong()
{
	cat >"$config" <<-'END'
		{ "limits": { "bytes": "16GiB" },
		  "pools": [ { "name": "frames",
		               "kind": "hots" } ] }
	END
}

answers()
{
	sharectl --socket "$socket" --json status >/dev/null 2>&1
}

reload()
{
	sharectl --socket "$socket" reload "$@"
}

has_pool()
{
	sharectl --socket "$socket" --json pools | grep -q "\"pool\": *\"$1\""
}

lacks_pool()
{
	! has_pool "$1"
}

log_has()
{
	grep -qF -- "$1" "$log"
}

# Inside a share-run, whose broker is nobody else's.
private()
{
	kill -HUP "$(sharectl status | awk '$1 == "pid" { print $2 }')"
	sharectl reload 2>&1 || echo "exit code $?"
	sharectl status >/dev/null && echo "it serves"
}

case ${1-} in
private)
	private
	exit
	;;
esac

pids=()
end_all()
{
	kill_service "${pids[@]}"
	rm -rf "$scratch"
}
trap end_all EXIT

# serve COMMAND...: a broker whose log is $log, until finish_broker
serve()
{
	: >"$log"
	rm -f "$socket"
	"$@" 2>>"$log" &
	pid=$!
	pids+=("$pid")
	check "$* serves" until_true answers
}

finish_broker()
{
	local code=0

	kill -TERM "$pid"
	wait "$pid" || code=$?
	check "it ends as ever" same "$code" 0
	check "and has found no bug" exits 1 grep BUG: "$log"
}

# What SIGHUP and reload do to a broker that has a file.
reads_again()
{
	first
	serve "$@" --config "$config"
	second
	kill -HUP "$pid"
	check "SIGHUP: it has read the file" until_true has_pool new
	check "the log has what changed" log_has 'info: limits.bytes: 8GiB -> 16GiB'
	check "and what did not" \
		log_has 'warning: pools["frames"].segment_size: stays 64MiB; 128MiB takes a restart'
	check "a pool that was removed has gone" lacks_pool old
	wrong
	kill -HUP "$pid"
	check "a wrong file is refused with line and key" until_true \
		log_has "error: the configuration stays as it was: $config:3: pools[0].kind: \"hots\""
	check "as a whole" has_pool new
	first
	check "and the next one is read" reload
	check "with its pools" has_pool old
	finish_broker
}

reads_again share-broker --socket "$socket"
reads_again cli-activate "$socket" share-broker

# ----------------------------------------------------------------------------------------------

first
serve share-broker --socket "$socket" --config "$config"
golden reload-nothing reload
second
golden reload reload
golden reload-again reload
wrong
golden reload-wrong reload
golden reload-wrong-json reload --json
rm "$config"
golden reload-gone reload
first
golden reload-json reload --json
golden reload-argument reload now
forbids()
{
	exits 1 as_alice sharectl --socket "$socket" reload 2>"$scratch/err" &&
		same "$(<"$scratch/err")" "sharectl: only administrators may have the configuration \
read again (\"admins\")"
}
chmod 755 "$scratch"
if as_alice sharectl --version >/dev/null 2>&1; then
	check "who is no administrator may not" forbids
else
	echo "SKIPPED: somebody who may not (this user cannot be somebody else)"
fi
to_full_disk()
{
	reload "$@" >/dev/full
}
check "a full disk is an error" exits 1 to_full_disk 2>"$scratch/err"
finish_broker

# ----------------------------------------------------------------------------------------------

serve share-broker --socket "$socket"
kill -HUP "$pid"
check "without a file, SIGHUP says so" until_true \
	log_has 'SIGHUP: there is no configuration to read again'
check "and ends nobody" answers
golden reload-without reload
finish_broker

share-run -- "$0" private >"$scratch/private"
check "a private broker without a file says so, and serves" same "$(<"$scratch/private")" \
	"sharectl: there is no configuration to read again, as this broker was started without a file
exit code 1
it serves"
first
share-run -c "$config" -- "$0" private >"$scratch/private"
check "one with a file reads it" same "$(<"$scratch/private")" "nothing has changed
it serves"
check "and leaves nothing behind" is_empty "$TMPDIR"

# ----------------------------------------------------------------------------------------------
# Terminals

broker_pid()
{
	sharectl --socket "$socket" status | awk '$1 == "pid" { print $2 }'
}

# in_terminal COMMAND: a broker in a terminal of its own, which ends with $terminal
in_terminal()
{
	: >"$log"
	rm -f "$socket"
	script -qefc "$1" /dev/null <>"$scratch/keys" >>"$scratch/screen" 2>&1 &
	terminal=$!
	pids+=("$terminal")
	check "$1 serves" until_true answers
	broker=$(broker_pid)
	pids+=("$broker")
	kill -HUP "$broker"
	check "SIGHUP does not end it as long as its terminal is there" until_true \
		log_has 'SIGHUP: there is no configuration to read again'
	check "it serves" answers
	{
		kill -KILL "$terminal"
		wait "$terminal" || true
	} 2>/dev/null
}

serve_here="share-broker --socket $socket 2>>$log"
if [[ $(script -qec 'echo works' /dev/null </dev/null 2>&1) == works* ]]; then
	mkfifo "$scratch/keys"
	in_terminal "exec $serve_here"
	check "it ends with its terminal" until_true is_dead "$broker"
	check "and its socket is gone" test ! -e "$socket"
	check "the log says why" log_has 'as its terminal is gone'

	in_terminal "$serve_here; true"
	check "so does one that has the terminal from a shell" until_true is_dead "$broker"
	check "and its socket is gone, too" test ! -e "$socket"

	in_terminal "nohup $serve_here; true"
	check "one under nohup goes on" answers
	kill -TERM "$broker"
	check "until it is told to end" until_true is_dead "$broker"
else
	echo "SKIPPED: terminals (there is no script(1))"
fi
finish
