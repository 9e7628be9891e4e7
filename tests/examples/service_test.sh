#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The service takes jobs that were there before it came and such that come later, from several
# clients; more at a time than are reported one by one, which it learns by listing; SIGTERM ends it
# cleanly; and it does not outlive its broker.

# shellcheck disable=SC2016 # the scripts are for the shell under share-run
set -euo pipefail
. "$(dirname "$0")/lib.sh"

run_example share-run -- sh -c '
	service_client 20 & early=$!
	service & service=$!
	service_client 100 && wait $early || exit 1
	kill -STOP $service
	service_client 1000 & late=$!
	until [ "$(sharectl names --json | grep -c jobs/)" = 1000 ]; do :; done
	kill -CONT $service
	service_client 10 && wait $late || exit 1
	kill -TERM $service
	wait $service'
expect 0 '^service: ended jobs=1130$'

export SHARE_SOCKET=$scratch/nobody
run_example service_client
expect 1 '^$'
grep -q 'no broker answers' "$scratch/err"
unset SHARE_SOCKET

# the broker is killed
run_example share-run -- sh -c '
	service & service=$!
	service_client 1 || exit 2
	for process in /proc/[0-9]*; do
		read -r name <"$process/comm" && [ "$name" = share-broker ] &&
			grep -qzxF -- "$SHARE_SOCKET" $process/cmdline &&
			kill -KILL "${process#/proc/}"
	done 2>/dev/null
	wait $service; echo "code=$?"'
expect 0 '^code=1$'
