#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# sharectl watch: a line for each thing that happens, as it happens; what is asked for and nothing
# else; and how it ends.
#
# usage: watch_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

user=$(id -un 2>/dev/null || id -u)

# When, who, as which process.
normalise()
{
	normalise_common |
		sed -E -e 's/ +/ /g' -e 's/ $//' -e 's/^[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3} /TIME /' \
			-e "s/^(TIME [a-z-]+) $user /\\1 USER /" -e 's/^(TIME [a-z-]+ USER) [0-9]+/\1 PID/' \
			-e 's/ client=[0-9]+/ client=N/' \
			-e 's/"(client|pid|uid|time_ms)":[0-9]+/"\1":N/g'
}

pids=()
end_all()
{
	kill -KILL "${pids[@]}" 2>/dev/null || true
}

# watch FILE OPTION...: sharectl watch in the background, from now on
watch()
{
	local file=$1

	shift
	sharectl watch "$@" >"$file" 2>"$file.err" &
	watcher=$!
	pids+=("$watcher")
	until_true grep -q start "$file" >/dev/null
}

ended()
{
	local code=0

	wait "$watcher" || code=$?
	same "$code" "$1"
}

# What this does is the same each time.
hold()
{
	coproc HOLD { exec cli-hold "$@"; }
	local hold=$HOLD_PID
	read -r _ <&"${HOLD[0]}"
	exec {HOLD[1]}>&-
	wait "$hold"
}

everything()
{
	watch "$scratch/all" --count 18
	hold
	check "it ends after so many lines" ended 0
	golden watch cat "$scratch/all"
}

of_a_user()
{
	watch "$scratch/json" --json --count 10 --user "$(id -u)"
	hold ends
	check "of a user, as JSON" ended 0
	golden watch-json cat "$scratch/json"
}

of_names()
{
	watch "$scratch/names" --name weights/ --count 3 --no-headings
	hold
	check "of names that start so" ended 0
	golden watch-names cat "$scratch/names"
}

of_a_pool()
{
	watch "$scratch/pool" --pool frames --bytes --count 4
	hold
	check "of a pool" ended 0
	golden watch-pool cat "$scratch/pool"
}

endings()
{
	check "the time that it was given ends it" exits 0 sharectl watch --timeout 0.05 >"$scratch/out"
	check "and it has a line that says from when on it has watched" grep -q start "$scratch/out"

	mkfifo "$scratch/pipe"
	sharectl watch --no-headings --name first --json >"$scratch/pipe" &
	watcher=$!
	pids+=("$watcher")
	grep --line-buffered publish <"$scratch/pipe" >"$scratch/live" &
	pids+=("$!")
	until_true names_are_seen
	check "a line goes through a pipe at once" grep -q '"name":"first"' "$scratch/live"
	kill -TERM "$watcher"
	check "a signal ends it as any program" ended 143 2>/dev/null

	check "who reads no more ends it as any program" exits 141 into_head
	check "a full disk is an error" exits 1 to_full_disk
}

# Something happens again and again until it is seen: it may have been too early.
names_are_seen()
{
	hold ends
	[[ -s $scratch/live ]]
}

into_head()
{
	local codes

	(while sharectl status >/dev/null; do :; done) &
	pids+=("$!")
	sharectl watch | head -1 >/dev/null || codes=("${PIPESTATUS[@]}")
	kill "${pids[-1]}"
	return "${codes[0]}"
}

to_full_disk()
{
	sharectl watch --count 1 >/dev/full 2>/dev/null
}

case ${1-} in
everything | of_a_user | of_names | of_a_pool | endings)
	trap end_all EXIT
	"$1"
	finish
	;;
esac

for part in everything of_a_user of_names of_a_pool endings; do
	check "$part" share-run -c "$cli/broker.json" -- "$0" "$part"
done

share-broker --socket "$scratch/s" 2>/dev/null &
broker=$!
trap 'kill_service "$broker"; rm -rf "$scratch" || true' EXIT
until_true sharectl --socket "$scratch/s" status >/dev/null 2>&1
watch "$scratch/gone" --socket "$scratch/s"
kill -TERM "$broker"
check "the end of the broker is an error" ended 1
check "which is told" grep -q '^sharectl: ' "$scratch/gone.err"

for wrong in '--count 0' '--count x' '--timeout soon' '--user nobody-of-that-name' now; do
	# shellcheck disable=SC2086
	check "watch $wrong is wrong usage" exits 2 sharectl watch $wrong 2>/dev/null
done
check "its options are for nothing else" exits 2 sharectl clients --count 1 2>/dev/null
finish
