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

# as its usage says, in the folder of both
run_example plugin_host
plugin=$(sed -n 's/^usage: plugin_host //p' "$scratch/err")
cd "$SHARE_TEST_BIN"
run_example plugin_host "$plugin"
expect 0 '^plugin_host: a pixel is 40$'
cd - >/dev/null

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

# A server says why it ends: the broker does.
serve
until sharectl status >/dev/null 2>&1; do
	kill -0 $broker
done
: >"$scratch/server"
epoll_server >"$scratch/server" 2>"$scratch/complaints" &
server=$!
until grep -qx 'epoll_server: ready' "$scratch/server"; do
	kill -0 $server
done
run_example epoll_server ask "are you there"
expect 0 '^epoll_server: ARE YOU THERE$'
kill -TERM $broker
code=0
wait $server || code=$?
cp "$scratch/complaints" "$scratch/err"
command=epoll_server
fails '^epoll_server: the broker is about to end$'
wait $broker
