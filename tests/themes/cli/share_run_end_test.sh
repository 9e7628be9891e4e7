#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The ways in which share-run, its command and its broker can end, and that none of them leaves
# anything behind.
#
# usage: share_run_end_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

broker_pid()
{
	sharectl status | awk '$1 == "pid" { print $2 }'
}

# Says who is who, then waits for a signal and says which: exit code 40 and what came.
await_signal()
{
	local signal

	for signal in INT QUIT TERM HUP; do
		# shellcheck disable=SC2064 # now: the loop goes on
		trap "echo $signal; exit $((40 + $(kill -l "$signal")))" "$signal"
	done
	echo "$(broker_pid) $$"
	while :; do
		read -r -t 60 <>"$scratch/never" || true
	done
}

# Starts share-run with this test's part $1 in the background and reads what it says of itself.
start()
{
	: >"$scratch/said"
	# what is started in the background ignores some signals, which no trap can change
	env --default-signal=INT,QUIT share-run -- "$0" "$1" >"$scratch/said" &
	run=$!
	until_true has_lines "$scratch/said" 1
	read -r broker command <"$scratch/said"
}

forwards()
{
	start await_signal
	kill -s "$1" "$run"
	exits $((40 + $(kill -l "$1"))) wait "$run" && is_dead "$broker"
}

# A connected process that stays when the command ends.
leave_something()
{
	cli-hold <>"$scratch/never" >"$scratch/hold" &
	until_true has_lines "$scratch/hold" 1
	echo "$(broker_pid) $!"
}

is_alive()
{
	! is_dead "$1"
}

kill_broker()
{
	kill_service "$(sharectl status | awk '$1 == "keeper" { print $2 }')"
	until_true is_lost
	exit 5
}

is_lost()
{
	! sharectl status >/dev/null 2>&1
}

# Counts what one ^C in the terminal makes of it.
count_interrupts()
{
	local n=0

	trap 'n=$((n + 1)); echo interrupted' INT
	trap 'echo "interrupts: $n"; exit 0' TERM
	echo "$PPID"
	while :; do
		read -r -t 60 <>"$scratch/never" || true
	done
}

# With a terminal of its own.
interrupt()
{
	local run

	mkfifo "$scratch/keys"
	env --default-signal=INT,QUIT script -qefc "share-run -- $0 count_interrupts" \
		"$scratch/typescript" <"$scratch/keys" >"$scratch/screen" &
	exec {keys}>"$scratch/keys"
	until_true has_lines "$scratch/screen" 1
	run=$(head -n 1 "$scratch/screen" | tr -d '\r')
	printf '\003' >&"$keys"
	until_true grep -q interrupted "$scratch/screen"
	# signals of a lower number come first, so this one follows what would come twice
	kill -TERM "$run"
	wait $!
	exec {keys}>&-
	grep -q 'interrupts: 1' "$scratch/screen" || cat "$scratch/screen"
	grep -q 'interrupts: 1' "$scratch/screen"
}

# In a terminal, where it stays.
stay()
{
	echo "$(broker_pid) $PPID $$"
	while :; do
		read -r -t 60 <>"$scratch/never" || true
	done
}

# hang_up COMMAND: it runs in a terminal, which goes, as when its window is closed
hang_up()
{
	local terminal run

	: >"$scratch/terminal"
	script -qefc "$1" /dev/null <>"$scratch/never" >"$scratch/terminal" 2>&1 &
	terminal=$!
	until_true has_lines "$scratch/terminal" 1
	read -r broker run command <<<"$(head -n 1 "$scratch/terminal" | tr -d '\r')"
	{
		kill -KILL "$terminal"
		wait "$terminal" || true
	} 2>/dev/null
	until_true is_dead "$command" && until_true is_dead "$run" && until_true is_dead "$broker" ||
		{
			kill -KILL "$command" "$run"
			return 1
		}
}

case ${1-} in
await_signal | leave_something | kill_broker | count_interrupts | stay)
	"$1"
	exit
	;;
esac

mkfifo "$scratch/never"

for signal in INT QUIT TERM HUP; do
	check "SIG$signal is passed on" forwards "$signal"
	check "and nothing is left behind" is_empty "$TMPDIR"
done

start await_signal
check "the broker's directory is there meanwhile" [ -n "$(ls "$TMPDIR")" ]
{
	kill -KILL "$run"
	wait "$run" || true
} 2>/dev/null
check "when share-run is killed, its broker ends" until_true is_dead "$broker"
check "the directory goes" until_true is_empty "$TMPDIR"
check "and the command is asked to end" until_true is_dead "$command"
check "with SIGTERM" same "$(tail -n 1 "$scratch/said")" TERM

trap '[[ -z ${hold-} ]] || kill "$hold" || true; rm -rf "$scratch"' EXIT
share-run -- "$0" leave_something >"$scratch/left"
read -r broker hold <"$scratch/left"
check "what a command leaves behind does not keep the broker" is_dead "$broker"
check "nor its directory" is_empty "$TMPDIR"
check "and is left alone" is_alive "$hold"

check "when the broker is killed, the command's exit code is passed on" \
	exits 5 share-run -- "$0" kill_broker
check "and the directory goes" is_empty "$TMPDIR"

if [[ $(script -qec 'echo works' /dev/null </dev/null 2>&1) == works* ]]; then
	check "a ^C reaches the command once" interrupt
	check "and ends nobody else" is_empty "$TMPDIR"
	# the kernel tells the first process of a terminal alone, and all when that has ended
	check "when the terminal hangs up, all of them end" hang_up "exec share-run -- $0 stay"
	check "and nothing is left behind" until_true is_empty "$TMPDIR"
	check "and with a shell in between" hang_up "share-run -- $0 stay; true"
	check "nothing is left behind either" until_true is_empty "$TMPDIR"
else
	echo "SKIPPED: terminals (there is no script(1))"
fi
finish
