#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# sharectl metrics, read by the parser of Prometheus' client library: all of it is OpenMetrics by the
# book, and has the numbers of what cli-hold holds. Skipped without that library.
#
# usage: metrics_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

python=
for candidate in /usr/bin/python3 "$SHARE_TEST_SOURCE/.cache/python/bin/python3"; do
	! "$candidate" -c 'import prometheus_client.openmetrics.parser' 2>/dev/null || python=$candidate
done
[[ $python ]] || { echo "SKIPPED: there is no prometheus_client for Python" && exit 77; }

# reads FILE EXPECTATION...
reads()
{
	"$python" -B "$cli/openmetrics.py" "$@"
}

known_state()
{
	coproc HOLD { exec cli-hold; }
	local hold=$HOLD_PID
	read -r _ <&"${HOLD[0]}"

	! sharectl unpublish nothing 2>/dev/null || return 1
	sharectl metrics >"$scratch/metrics"
	check "metrics of memory, names and requests are OpenMetrics" reads "$scratch/metrics" \
		'share_buffers=4' 'share_leases=3' 'share_names=3' 'share_clients=3' \
		'share_pool_used_bytes{pool="default",kind="host"}=5448704' \
		'share_pool_limit_bytes{pool="weights",kind="auto"}=1610612736' \
		'share_pool_buffers{pool="frames"}=1' \
		'share_pool_allocation_failures_total{pool="frames",reason="full"}=0' \
		"share_user_used{uid=\"$(id -u)\",resource=\"names\"}=3" \
		'share_requests_total{request="UNPUBLISH"}=1' \
		'share_request_errors_total{request="UNPUBLISH",error="SHARE_ENOENT"}=1' \
		'share_request_duration_seconds_count{request="UNPUBLISH"}=1' \
		'share_request_duration_seconds_bucket{request="UNPUBLISH",le="+Inf"}=1'
	exec {HOLD[1]}>&-
	wait "$hold"
}

channels()
{
	coproc HOLD { exec cli-hold channels; }
	local hold=$HOLD_PID
	read -r _ <&"${HOLD[0]}"

	sharectl metrics >"$scratch/metrics"
	check "metrics of channels are OpenMetrics" reads "$scratch/metrics" \
		'share_channel_consumers{channel="frames"}=2' \
		'share_channel_info{channel="jobs/resize",mode="queue",pool="default"}=1' \
		'share_channel_in_flight{channel="frames",role="producer"}=128' \
		'share_channel_waiting{channel="frames",role="consumer",member="6"}=64' \
		'share_channel_dropped_total{channel="latest"}=3' \
		'share_channel_lost_total{channel="latest"}=3' \
		'share_channel_received_total{channel="jobs/resize",member="2"}=1'
	exec {HOLD[1]}>&-
	wait "$hold"
}

# A name that would end its label, and a line, if it were not escaped.
odd_names()
{
	sharectl metrics >"$scratch/metrics"
	check "what users call things is escaped" reads "$scratch/metrics" \
		'share_pool_limit_bytes{pool="a\b{c},=d"}=1048576'
	check "a quotation mark is" grep -qF 'share_pool_limit_bytes{pool="e\"} 1",' "$scratch/metrics"
}

case ${1-} in
known_state | channels | odd_names)
	"$1"
	finish
	;;
esac

cat >"$scratch/odd.json" <<'END'
{"pools": [{"name": "a\\b{c},=d", "kind": "host", "limit": "1MiB"},
           {"name": "e\"} 1", "kind": "host", "limit": "2MiB"}]}
END
check "the known state has metrics" share-run --config="$cli/broker.json" -- "$0" known_state
check "channels have metrics" share-run --config="$cli/broker.json" -- "$0" channels
check "odd names have metrics" share-run --config="$scratch/odd.json" -- "$0" odd_names
check "metrics are no JSON" exits 2 sharectl --json metrics
check "without a broker there are none" exits 1 sharectl --socket="$scratch/nowhere" metrics
check "nothing is left behind" is_empty "$TMPDIR"
finish
