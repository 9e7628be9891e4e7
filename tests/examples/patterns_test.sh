#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The programs of docs/patterns.md do what it says of them, and each program in examples/patterns is
# in it.

# shellcheck disable=SC2016 # the scripts are for the shell under share-run
set -euo pipefail
. "$(dirname "$0")/lib.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)

for program in "$root"/examples/patterns/*.c; do
	grep -qF "patterns/$(basename "$program")" "$root/docs/patterns.md" ||
		{ echo "FAILED: docs/patterns.md does not name $(basename "$program")" && exit 1; }
done

run_example newest
expect 0 '^newest: frame 100; 99 were skipped$'

run_example acknowledged
expect 0 '^acknowledged: done=9 given_up=1$'
grep -qx 'acknowledged: nobody could do job 3, of 3 who tried' "$scratch/out"

run_example plugin_host "$SHARE_TEST_BIN/plugin_filter.so"
expect 0 '^plugin_host: a pixel is 40$'

run_example share-run -- sh -c '
	epoll_server & server=$!
	epoll_server ask "how are you" && epoll_server ask fine || exit 1
	kill -TERM $server
	wait $server'
expect 0 '^epoll_server: ended answered=2$'
grep -qx 'epoll_server: HOW ARE YOU' "$scratch/out"

# Whoever has begun before there is a broker goes on with each that comes.
export SHARE_SOCKET=$scratch/socket
serve()
{
	share-broker --socket "$SHARE_SOCKET" >>"$scratch/broker" 2>&1 &
	broker=$!
}
reconnect >"$scratch/received" 2>"$scratch/complaints" &
consumer=$!
for time in 1 2; do
	serve
	# the first reading waits in the queue until the consumer has come back
	until run_example reconnect send 3 && [[ $code == 0 ]]; do
		kill -0 $broker
	done
	kill -TERM $broker
	wait $broker || { cat "$scratch/broker" && exit 1; }
	: "$time"
done
kill -TERM $consumer
code=0
wait $consumer || code=$?
cp "$scratch/received" "$scratch/out"
command=reconnect
expect 0 '^reconnect: ended received=6 connections=2$'
