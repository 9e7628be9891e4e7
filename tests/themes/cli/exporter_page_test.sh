#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The exporter's page as a browser has it, without a screen: it draws the pools, who holds what,
# channels and rates of cli-scene, with names of users as text and nothing else, and says when there
# is no broker. Skipped without a Chromium. SHARE_UPDATE_PICTURE=1 draws docs/page.png anew.
#
# usage: page_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

browser=
for candidate in chromium-headless-shell chromium; do
	[[ $browser ]] || browser=$(command -v $candidate) || true
done
[[ $browser ]] || { echo "SKIPPED: there is no chromium-headless-shell and no chromium" && exit 77; }
unset SHARE_MAGAZINES # what is shown here is what programs have, and not what each of them uses

# browse SECONDS ARGUMENT...: has the page run for so long by its own clock, which does not wait for
# ours; what it asks for takes as long as it takes.
browse()
{
	# in a container there is no other container to be had for what a page may do
	"$browser" --headless --no-sandbox --disable-gpu --no-proxy-server --hide-scrollbars \
		--user-data-dir="$scratch/browser" --virtual-time-budget="$1"000 "${@:2}" 2>"$scratch/browser.log"
}

start_exporter()
{
	: >"$scratch/exporter.log" # what the one before has said
	share-exporter --listen=:0 "$@" 2>"$scratch/exporter.log" &
	exporter=$!
	until_true grep -q 'serves at' "$scratch/exporter.log"
	url=$(sed 's/.*serves at //' "$scratch/exporter.log")
}

# shows REGULAR-EXPRESSION...: each of them is in the document as the browser has it now.
shows()
{
	local wanted

	for wanted in "$@"; do
		grep -qE -- "$wanted" "$scratch/dom" || echo "not on the page: $wanted"
		grep -qE -- "$wanted" "$scratch/dom" || return 1
	done
}

lacks()
{
	! grep -nE -- "$1" "$scratch/dom"
}

# The recorder needs a moment to fall behind.
draws_who_is_behind()
{
	browse 3 --dump-dom "$url" >"$scratch/dom"
	grep -q '>recorder</text>' "$scratch/dom" && grep -qE '[0-9]+ waiting' "$scratch/dom" &&
		grep -qE '[0-9]+ lost' "$scratch/dom"
}

# Two looks at the broker are enough for a rate, which the page takes when they are far enough apart.
draws_rates()
{
	browse 100 --dump-dom "$url" >"$scratch/dom"
	grep -qE '>[1-9][0-9.]*k?/s' "$scratch/dom"
}

scene()
{
	coproc SCENE { exec cli-scene; }
	local scene=$SCENE_PID
	read -r _ <&"${SCENE[0]}"
	start_exporter

	browse 3 --dump-dom "$url" >"$scratch/dom"
	check "the page is live" shows '<span id="live" class="good"[^>]*>live<'
	check "it draws each pool" shows '<b>frames</b>' '<b>weights</b>' '<b>scratch</b>'
	check "and its segments" shows '<title>segment 0x[0-9a-f]+, [0-9.]+ [KM]iB of 64 MiB used'
	check "buffers have the colour of who holds them" shows \
		'class="c[0-9]+ pick"[^>]*><title>buffer 0x[0-9a-f]+, 40 MiB at 0x0 of segment 0x[0-9a-f]+: held by weight server'
	check "what a name keeps is nobody's" shows 'class="kept pick"[^>]*><title>[^<]*20 MiB[^<]*kept by a name'
	check "it says what was refused" shows 'refused: 3 full'
	check "it lists processes" shows '>camera</td>' '>recorder</td>' '>weight server</td>'
	check "it draws channels" shows 'frames/left: 1 producers, 2 consumers' 'jobs: 1 producers, 2 consumers'
	check "and who is behind" until_true draws_who_is_behind
	check "it lists requests" shows '<td>ALLOC</td>' '[0-9]+ SHARE_ENOMEM'
	check "a name that looks like HTML is text" shows \
		'&lt;img src=x onerror="document.title='\''broken'\''"&gt;</td>'
	check "and no element" lacks '<img|title>broken'
	check "rates are drawn when they are known" until_true draws_rates

	if [[ ${SHARE_UPDATE_PICTURE-} == 1 ]]; then
		browse 150 --window-size=1000,1440 --screenshot="$scratch/page.png" "$url"
		cp "$scratch/page.png" "$SHARE_TEST_SOURCE/docs/page.png"
	fi
	browse 3 --window-size=390,2000 --screenshot="$scratch/phone.png" "$url"
	check "it is drawn for a phone" test -s "$scratch/phone.png"
	kill "$exporter"
	exec {SCENE[1]}>&-
	wait "$scene"
}

no_broker()
{
	start_exporter --socket="$scratch/nowhere"
	browse 3 --dump-dom "$url" >"$scratch/dom"
	check "without a broker the page says so" shows '<span id="live" class="bad"[^>]*>no answer: ' \
		'<body class="stale">'
	kill "$exporter"
}

case ${1-} in
scene)
	"$1"
	finish
	;;
esac

check "a scene is drawn" share-run --config="$cli/scene.json" -- "$0" scene
no_broker
finish
