#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# two_hosts on one host: each version is taken whole, in its turn, and whoever publishes hears of it.
# That it is the same over bridges is for scripts/demo --two-hosts to show.

set -euo pipefail

# What share-run runs: both processes, and both have to end well.
if [[ ${1-} == both ]]; then
	mkfifo "$2"
	two_hosts take weights 5 <"$2" &
	exec {end}>"$2"
	two_hosts publish weights 5 100000
	exec {end}>&-
	wait $!
	exit
fi

. "$(dirname "$0")/lib.sh"
echo '{ "pools": [ { "name": "weights", "kind": "host" } ] }' >"$scratch/broker.json"
run_example share-run --config "$scratch/broker.json" -- bash "$0" both "$scratch/end"
expect 0 '^two_hosts: ok versions=5 bytes=500000$'

run_example two_hosts --help
expect 0 'take POOL VERSIONS$'
run_example share-run -- two_hosts take nowhere 1
fails '^two_hosts: FAILED share_pool_open: no such object'
run_example share-run -- two_hosts take default none
fails '^two_hosts: FAILED what should be a number is none$'
