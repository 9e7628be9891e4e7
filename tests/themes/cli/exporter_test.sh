#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# share-exporter as those see it who ask it by HTTP: what it serves and to whom, that many who ask at
# the same time cost the broker no more than one, and what it does while the broker is gone, comes
# back, or hangs.
#
# usage: exporter_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

socket=$scratch/s
started=()
trap 'kill -CONT "${started[@]}" 2>/dev/null; kill "${started[@]}" 2>/dev/null; wait; rm -rf "$SHARE_TEST_SCRATCH"' EXIT

# start_broker [CONFIGURATION]
start_broker()
{
	share-broker --config="${1-$scratch/broker.json}" --socket="$socket" 2>>"$scratch/broker.log" &
	broker=$!
	started+=("$broker")
	until_true sharectl --socket="$socket" --json status >/dev/null 2>&1
	serving=$(pgrep -x -P "$broker" share-broker)
}

# start_exporter [LISTEN [COMMAND...]]: COMMAND becomes it
start_exporter()
{
	: >"$scratch/exporter.log" # what the one before has said
	"${@:2}" share-exporter --socket="$socket" --listen="${1-:0}" 2>"$scratch/exporter.log" &
	exporter=$!
	started+=("$exporter")
	until_true grep -q 'serves at' "$scratch/exporter.log"
	port=$(sed -n 's|.*:\([0-9]*\)/$|\1|p' "$scratch/exporter.log")
}

# ask METHOD PATH [HOST]: the answer, headers and all, without carriage returns in the headers.
ask()
{
	local line

	exec {connection}<>"/dev/tcp/127.0.0.1/$port"
	printf '%s %s HTTP/1.0\r\nHost: %s\r\n\r\n' "$1" "$2" "${3-localhost}" >&"$connection"
	while IFS= read -r line <&"$connection" && [[ $line != $'\r' ]]; do
		echo "${line%$'\r'}"
	done
	echo
	cat <&"$connection"
	exec {connection}>&-
}

body()
{
	ask GET "$@" | sed '1,/^$/d'
}

status()
{
	ask "$@" | sed -n '1s/^HTTP[^ ]* \([0-9]*\).*/\1/p'
}

header()
{
	ask GET "$1" | sed -n "/^\$/q; s/^$2: //p"
}

is_up()
{
	[[ $(body /metrics | sed -n 's/^share_up //p') == "$1" ]]
}

serves_channels()
{
	body /metrics >"$scratch/metrics"
	grep -q '^share_request_errors_total{request="UNPUBLISH"' "$scratch/metrics" &&
		grep -q '^share_channel_sent_total{' "$scratch/metrics"
}

lacks()
{
	! grep -n "$1" "$2"
}

lacks_state()
{
	[[ $(status GET /state.json) == 503 ]]
}

# The exporter says so itself if the library takes as long to find out.
names_who_hangs()
{
	grep -q "process $serving (share-broker) .* is stopped (state T)" <(body /state.json)
}

queries()
{
	sharectl --socket="$socket" --json requests |
		sed -n 's/.*"request":"QUERY","arrived":\([0-9]*\).*/\1/p'
}

# What is written in the page, and what the policy allows, is one number, and another one each time.
has_a_number_of_its_own()
{
	local policy page

	ask GET / >"$scratch/answer"
	policy=$(sed -n "s/^Content-Security-Policy: .*script-src 'nonce-\([0-9a-f]*\)'.*/\1/p" "$scratch/answer")
	page=$(grep -o 'nonce="[^"]*"' "$scratch/answer" | sort -u)
	same "$page" "nonce=\"$policy\"" && [[ ${#policy} == 32 && $policy != "${number-}" ]] || return 1
	number=$policy
}

asks_nobody_else()
{
	ask GET / >"$scratch/answer"
	grep -q "default-src 'none'" "$scratch/answer" &&
		! sed '1,/^$/d' "$scratch/answer" | grep -nE '(src|href)="?(https?:)?//|@import|url\(|https?://[^w]'
}

is_shared()
{
	local before after asks=()

	for ((i = 0; i < 40; i++)); do
		body /state.json >"$scratch/body.$i" &
		asks+=($!)
	done
	wait "${asks[@]}"
	after=$(queries)
	for ((i = 0; i < 40; i++)); do
		grep -q '"status"' "$scratch/body.$i" || echo "no state: $(<"$scratch/body.$i")"
		grep -q '"status"' "$scratch/body.$i" || return 1
	done
	# each of 40 would have asked for 8 reports
	before=$1
	echo "$((after - before)) requests for 40 readers"
	((after - before < 40 * 8 / 2))
}

# A request that never ends, a byte at a time, to an exporter that lives as long as this test.
drips()
{
	trap '' PIPE
	exec {dripping}<>"/dev/tcp/127.0.0.1/$1"
	while printf x >&"$dripping" 2>/dev/null; do
		sleep 0.5
	done
}

# which its keeper leaves alone for as long as it is stopped
sed '1s/{/{ "hang_ms": 0,/' "$cli/broker.json" >"$scratch/broker.json"
start_broker
start_exporter
drips "$port" &
dripper=$!
start_exporter

check "it says where it serves" grep -q 'serves at http://127.0.0.1:[1-9]' "$scratch/exporter.log"
check "metrics are served" until_true is_up 1
check "as OpenMetrics" same "$(header /metrics Content-Type)" \
	"application/openmetrics-text; version=1.0.0; charset=utf-8"
check "the same that sharectl shows" diff <(body /metrics | grep '^# ' | sed '1,2d') \
	<(sharectl --socket="$socket" metrics | grep '^# ')
# with members of channels, buffers and refusals
coproc HOLD { SHARE_SOCKET=$socket exec cli-hold channels; }
hold=$HOLD_PID
read -r _ <&"${HOLD[0]}"
! sharectl --socket="$socket" unpublish nothing 2>/dev/null
until_true serves_channels
check "Grafana's dashboard and the alert rules ask for what there is" python3 -B "$cli/dashboard.py" \
	"$SHARE_TEST_SOURCE"/packaging/{grafana.json,alerts.yaml} "$scratch/metrics"
exec {HOLD[1]}>&-
wait "$hold"
check "the page is served" same "$(header / Content-Type)" "text/html; charset=utf-8"
check "with a number of its own" has_a_number_of_its_own
check "which is used once" has_a_number_of_its_own
check "the page asks nobody else" asks_nobody_else
check "the state is JSON" same "$(header /state.json Content-Type)" "application/json"
check "with the names of users" grep -q "\"uid\":$(id -u),.*\"user\":\"$(id -un)\"" <(body /state.json)
check "nothing is to be taken for something else" same "$(header /metrics X-Content-Type-Options)" nosniff
check "it says that it is there" same "$(body /healthz)" ok
check "other paths are not there" same "$(status GET /etc/passwd)" 404
check "nothing can be changed" same "$(status POST /metrics)" 501
check "HEAD has no body" same "$(ask HEAD /metrics | sed '1,/^$/d')" ""
check "a site that calls itself this host is refused" same "$(status GET /metrics attacker.example)" 403
for host in '127.0.0.1]evil.example' '[::1]evil.example' '[::1' '[evil.example]' '['; do
	check "and so is one called $host" same "$(status GET /metrics "$host")" 403
done
check "addresses are not" same "$(status GET /healthz 127.0.0.1:9756)" 200
check "and not those of IPv6" same "$(status GET /healthz '[::1]:9756')" 200
check "many readers cost as much as one" is_shared "$(queries)"

kill "$broker"
wait "$broker" || true
# what was read before may be served again for half a second
check "without a broker it says so" until_true is_up 0
check "the state is an error" until_true lacks_state
check "and says which" grep -q '"error"' <(body /state.json)
check "it is there itself" same "$(body /healthz)" ok
start_broker
check "a broker that comes back is found" until_true is_up 1

freeze "$serving"
check "while the broker hangs, it is there" same "$(body /healthz)" ok
check "and says that nothing comes of it" until_true is_up 0
check "and which process hangs, and how" until_true names_who_hangs
check "in its log, too" grep -q "^share-exporter: .*process $serving (share-broker)" "$scratch/exporter.log"
kill -CONT "$serving"
check "when it goes on, so do metrics" until_true is_up 1
check "which is said each time" same "$(grep -c 'answers again' "$scratch/exporter.log")" 2

check "it ends when it is told to" kill "$exporter"
check "and ends well" wait "$exporter"
start_exporter
freeze "$serving"
check "another one asks in vain" is_up 0
check "it ends as well while the broker hangs" kill "$exporter"
check "without waiting for it" wait "$exporter"
kill -CONT "$serving"

# What another user may not see, the exporter of that user does not show to anybody.
if as_alice true 2>/dev/null; then
	kill "$broker"
	wait "$broker" || true
	chmod 755 "$scratch"
	cat >"$scratch/two.json" <<-'END'
		{ "socket_mode": "0666",
		  "pools": [ { "name": "hidden", "kind": "host" },
		             { "name": "open", "kind": "host", "access": [{ "user": "*", "mode": "rw" }] } ] }
	END
	start_broker "$scratch/two.json"
	# as as_alice() does, and as a process that can be told to end
	start_exporter :0 setpriv --reuid=4711 --regid=4711 --clear-groups
	check "another user's exporter is served" until_true is_up 1
	body /metrics >"$scratch/metrics"
	check "it shows what that user may use" grep -q '^share_pool_limit_bytes{pool="open"' "$scratch/metrics"
	check "and nothing else" lacks hidden "$scratch/metrics"
	body /state.json >"$scratch/state"
	check "nor does the page" lacks hidden "$scratch/state"
	check "the broker's own user sees both" grep -q '^share_pool_limit_bytes{pool="hidden"' \
		<(sharectl --socket="$socket" metrics)
	kill "$exporter"
	wait "$exporter" || true
else
	echo "SKIPPED: what another user sees (only root can be somebody else)"
fi

# Connections that say nothing take all descriptors that there are. When they go, it goes on.
is_exhausted_and_recovers()
{
	local held=() one

	for ((i = 0; i < 40; i++)); do
		exec {one}<>"/dev/tcp/127.0.0.1/$port"
		held+=("$one")
	done
	until_true has_descriptors 32 || return 1
	for one in "${held[@]}"; do
		exec {one}>&-
	done
	until_true answers
}

has_descriptors()
{
	(($(find "/proc/$exporter/fd" -mindepth 1 | wc -l) >= $1))
}

# Who still writes when the connection is closed may not get to read the answer.
is_refused()
{
	[[ $(status GET "/$1" 2>/dev/null) == @(400|) ]]
}

answers()
{
	[[ $(body /healthz) == ok ]]
}

start_exporter :0 prlimit --nofile=32
check "it lives through having no descriptor left" is_exhausted_and_recovers
check "a request that has no end is refused" is_refused "$(printf '%100000s' | tr ' ' x)"
check "and the next one is answered" answers
kill "$exporter"
wait "$exporter" || true

# Requests that are never whole, more than there are descriptors for.
keep_nobody_out()
{
	local one

	for ((i = 0; i < 400; i++)); do
		exec {one}<>"/dev/tcp/127.0.0.1/$port" && printf 'GET /' >&"$one" || return 1
		answers || return 1
	done 2>/dev/null
}

start_exporter :0 prlimit --nofile=300
check "connections that say nothing keep nobody out" bash -c "$(declare -f ask body answers keep_nobody_out); port=$port; keep_nobody_out"
kill "$exporter"
wait "$exporter" || true
check "who takes too long for a request is hung up on" wait "$dripper"

start_exporter 0.0.0.0:0
check "elsewhere than at the loopback device, hosts have names" \
	same "$(status GET /metrics machine.example)" 200
check "a port that is taken is an error" exits 1 share-exporter --listen="0.0.0.0:$port"
for wrong in 9756 localhost:9756 127.0.0.1 :65536 :x; do
	check "--listen=$wrong is wrong" bash -c "! share-exporter --socket='$socket' --listen='$wrong' 2>/dev/null"
done
finish
