#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The benchmarks of channels come to an end and report what docs/benchmarks.md promises, and
# scripts/bench-channels puts that into its place. Nothing is said about the figures, which mean
# nothing on a busy machine. What was not built in is said to be missing, and has no figures. The same
# of requests, and of the Redis that they are measured against.

set -euo pipefail
export PATH=${SHARE_TEST_BIN:?is not set}:$PATH
root=${SHARE_TEST_SOURCE:-$(dirname "$0")/..}
unset SHARE_SOCKET SHARE_BROKER
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail()
{
	cat "$scratch/out" "$scratch/err"
	echo "FAILED: $*"
	exit 1
}

has() # FIGURE
{
	grep -qE "\"name\":\"$1\",\"value\":[0-9].*\"floor\":[0-9]" "$scratch/out" ||
		fail "no $1, or without a floor"
}

mkdir "$scratch/tmp"
export TMPDIR=$scratch/tmp
share-bench --quick --json channel call idle channel-broadcast channel-peers \
	>"$scratch/out" 2>"$scratch/err" || fail "exit code $?"

share-bench --quick --compare "$(command -v share-bench)" --turns 1 call >"$scratch/compared" ||
	fail "a comparison with itself: exit code $?"
grep -qE '^call.sleep.together +[0-9.]+ +[0-9.]+ ns +[0-9.]+ +[0-9.]+ +[0-9.]+$' "$scratch/compared" ||
	fail "the comparison has no figures of both: $(cat "$scratch/compared")"
! share-bench --quick --compare "$scratch/nothing" call >"$scratch/compared" 2>"$scratch/why" ||
	fail "a comparison with nothing"
grep -qF "$scratch/nothing failed" "$scratch/why" || fail "nobody says what failed: $(cat "$scratch/why")"

for figure in sleep sleep.together asleep asleep.together; do
	has "channel.$figure"
done
has "call.sleep.together"
for figure in wakeups close.channel close.service; do
	grep -q "\"name\":\"idle.$figure\"" "$scratch/out" || fail "no idle.$figure"
done
if (($(nproc) > 1)); then
	for figure in spin spin.words batch batch.sleep; do
		has "channel.$figure.apart"
	done
	has "call.spin.apart"
	grep -q '"channel.batch.apart.each",.*"target":200' "$scratch/out" || fail "no rate"
else
	grep -q 'channel.spin.apart: SKIPPED' "$scratch/err" || fail "it did not say why"
fi
for n in 1 2 4 8 16; do
	grep -q "\"channel-broadcast.$n\",\"value\":[0-9]" "$scratch/out" || fail "no cost of $n"
done
grep -q '"channel-broadcast.slope",.*"target":100' "$scratch/out" || fail "no slope"
for carrier in zeromq nng pipe boost; do
	if grep -q "channel-peers.$carrier: SKIPPED: built without " "$scratch/err"; then
		! grep -q "channel-peers.*$carrier" "$scratch/out" || fail "$carrier is there after all"
		continue
	fi
	for size in 64B 4KiB 1MiB 64MiB; do
		grep -q "channel-peers.$size.$carrier: SKIPPED: " "$scratch/err" && continue
		has "channel-peers.$size.$carrier"
		has "channel-peers.$size.stream.$carrier"
	done
done
if grep -q 'channel-peers.pipe' "$scratch/err"; then
	fail "there are always pipes"
fi

share-bench --quick --json requests >"$scratch/requests" 2>"$scratch/err" || fail "requests: exit code $?"
floor='[0-9.]*'
! grep -q 'requests: SKIPPED against Redis: ' "$scratch/err" || floor=null
for figure in ping ping.rate ping.cpu; do
	grep -qE "\"requests.$figure\",\"value\":[0-9].*\"floor\":$floor," "$scratch/requests" ||
		fail "no requests.$figure, or another floor than $floor: $(cat "$scratch/requests")"
done
for figure in ping.bare ping.bare.cpu; do
	grep -qE "\"requests.$figure\",\"value\":[0-9].*\"floor\":[0-9]" "$scratch/requests" || fail "no requests.$figure"
done
[[ -z $(ls "$TMPDIR") ]] || fail "something was left: $(ls "$TMPDIR")"

# the same into a copy of the page
if ! command -v gnuplot >/dev/null; then
	echo "the benchmarks of channels report what they should (no gnuplot: no plot)"
	exit 0
fi
cat "$scratch/out" "$scratch/err" >"$scratch/figures"
mkdir "$scratch/docs"
cp "$root/docs/benchmarks.md" "$scratch/docs"
"$root/scripts/bench-channels" --from "$scratch/figures" --machine 'this test' \
	--output "$scratch/docs" >/dev/null 2>"$scratch/err" || fail "scripts/bench-channels"
page=$scratch/docs/benchmarks.md
grep -q 'Measured on: this test\.' "$page" || fail "it does not say where"
# shellcheck disable=SC2016 # not a command
grep -qE '^\| `channel-broadcast.slope` \| [0-9.-]+ ns \|' "$page" || fail "no figures in the page"
(($(grep -cE '^\| 64 MiB \| [0-9.]+ µs \|' "$page") == 2)) || fail "no payloads in the page"
grep -q '</svg>' "$scratch/docs/channels.svg" || fail "no plot"
diff <(sed '/^<!-- channels -->/,/^<!-- .channels -->/d' "$root/docs/benchmarks.md") \
	<(sed '/^<!-- channels -->/,/^<!-- .channels -->/d' "$page") || fail "it changed the rest"
echo "the benchmarks of channels report what they should"
