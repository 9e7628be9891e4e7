#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The service answers those who asked before it came and those who come later, several clients at a
# time, and those who asked while it was stopped; what one service had when it was killed is
# answered by another; SIGTERM ends it cleanly; and it does not outlive its broker.

# shellcheck disable=SC2016 # the scripts are for the shell under share-run
set -euo pipefail
. "$(dirname "$0")/lib.sh"

run_example share-run -- sh -c '
	service_client 20 & early=$!
	service & service=$!
	service_client 100 && wait $early || exit 1
	kill -STOP $service
	service_client 1000 & late=$!
	service_client 10 & later=$!
	kill -CONT $service
	wait $late && wait $later || exit 1
	kill -TERM $service
	wait $service'
expect 0 '^service: ended jobs=1130$'

# of two, one is killed in the middle of it
run_example share-run -- sh -c '
	service & service=$!
	service_client 1 || exit 1
	service >"$0/victim" & victim=$!
	until grep -q ready "$0/victim"; do :; done
	service_client 5000 & client=$!
	service_client 1 || exit 1
	kill -KILL $victim
	wait $client || exit 1
	kill -TERM $service
	wait $service' "$scratch"
expect 0 '^service: ended jobs=[0-9]+$'
grep -q '^service_client: ok jobs=5000$' "$scratch/out"

export SHARE_SOCKET=$scratch/nobody
run_example service_client
expect 1 '^$'
grep -q 'no broker answers' "$scratch/err"
unset SHARE_SOCKET

# The broker is killed, and what would start another one: all are stopped first, as a deputy whose
# keeper has died has another deputy at once.
run_example share-run -- sh -c '
	service & service=$!
	service_client 1 || exit 2
	keepers=
	for process in /proc/[0-9]*; do
		read -r name <"$process/comm" && [ "$name" = share-keeper ] &&
			grep -qzxF -- "$SHARE_SOCKET" $process/cmdline &&
			keepers="$keepers ${process#/proc/}"
	done 2>/dev/null
	kill -STOP $keepers
	kill -KILL $keepers
	wait $service; echo "code=$?"'
expect 0 '^code=1$'
