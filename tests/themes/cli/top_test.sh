#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# sharectl top, of what cli-hold holds: as text, as JSON, and drawn on a terminal of 80 columns and
# 24 lines, where it ends by a key. And of cli-scene, which is at work all the time, live; then
# SHARE_UPDATE_PICTURE=1 draws docs/top.png anew.
#
# usage: top_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

user=$(id -un 2>/dev/null || id -u)

# Who runs this, as which processes, when; blanks are kept, as columns are what is looked at.
normalise()
{
	normalise_common |
		sed -E -e 's/pid [0-9]+, up [0-9]+d [0-9:]{8}/pid N, up TIME/' \
			-e 's/^( +[0-9]+) +[0-9]+ '"$user"' +/\1 PID USER /' \
			-e 's/ 0d 00:[0-9:]{5} / AGE /' \
			-e 's/  held by [0-9]+: /  held by PID: /' \
			-e 's/ +[0-9]+( +[0-9]+ +[0-9]+)$/ PID\1/' \
			-e 's/^ +[0-9]+ (PID .*sharectl)$/N \1/'
}

fits()
{
	! grep -nE '.{81}' "$1"
}

has_pools()
{
	sharectl top --json >"$scratch/json" &&
		grep -q '^{"left_out":\[\],"status":\[{.*"pools":\[{"pool":"default",.*"clients":\[{' "$scratch/json" &&
		sed 's/.*/[&]/' "$scratch/json" | cli-count-json >/dev/null
}

# What cursor movements leave of a line is not looked at.
draws()
{
	local keys=$1

	printf '%s' "$keys" |
		script -qec 'stty cols 80 rows 24; TERM=xterm sharectl top' /dev/null >"$scratch/drawn"
}

known_state()
{
	coproc HOLD { exec cli-hold; }
	local hold=$HOLD_PID
	read -r _ <&"${HOLD[0]}"

	golden top sharectl top --once
	golden top-sorted sharectl top --once --sort client --reverse
	check "it fits into 80 columns" fits "$scratch/out"
	check "--json is JSON" has_pools
	golden top-no-terminal sharectl top
	if [[ $(script -qec 'echo works' /dev/null </dev/null 2>&1) == works* ]]; then
		check "it is drawn until somebody ends it" draws srq
		check "with headings" grep -q 'POOL .*KIND .*LARGEST .*SEGMENTS' "$scratch/drawn"
		check "and what the keys are" grep -q 'q quit' "$scratch/drawn"
		check "s sorts by the next column" grep -q 'LEASES' "$scratch/drawn"
	else
		echo "SKIPPED: what a terminal gets (there is no script(1))"
	fi
	exec {HOLD[1]}>&-
	wait "$hold"
}

captures()
{
	tmux -L "$terminal" capture-pane -ep >"$scratch/captured"
	grep -qE -- "$1" "$scratch/captured"
}

# What is on the terminal as a page for a browser: only headings are drawn in another way.
draw_picture()
{
	local browser

	browser=$(command -v chromium-headless-shell || command -v chromium)
	{
		echo '<meta charset="utf-8"><style>body { margin: 12px; background: #1b1f24 }
			pre { font: 15px/19px monospace; color: #e6e6e6; margin: 0; width: 80ch }
			b { font-weight: normal; background: #e6e6e6; color: #1b1f24; display: block;
			float: left; clear: left; width: 80ch }</style><pre>'
		sed -E -e 's/&/\&amp;/g; s/</\&lt;/g' -e 's/\x1b\[7m([^\x1b]*)(\x1b\[0?m)?$/<b>\1<\/b>/' \
			-e 's/\x1b\([A-Z]//g; s/\x1b\[[0-9;]*m//g' "$scratch/captured"
		echo '</pre>'
	} >"$scratch/top.html"
	"$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$scratch/browser" \
		--window-size=780,480 --screenshot="$scratch/top.png" "file://$scratch/top.html" 2>"$scratch/browser.log"
	cp "$scratch/top.png" "$SHARE_TEST_SOURCE/docs/top.png"
}

live()
{
	coproc SCENE { exec cli-scene; }
	local scene=$SCENE_PID
	read -r _ <&"${SCENE[0]}"

	terminal=share-test-$$
	tmux -L "$terminal" -f /dev/null new-session -d -x 80 -y 24 "sharectl top"
	check "rates come with the second look" until_true captures 'frames/left +broadcast +[1-9][0-9]* '
	tmux -L "$terminal" send-keys s
	check "s sorts by another column" until_true captures 'scroll +LEASES'
	[[ ${SHARE_UPDATE_PICTURE-} != 1 ]] || draw_picture
	tmux -L "$terminal" send-keys q
	check "q ends it" until_true eval '! tmux -L "$terminal" list-sessions 2>/dev/null'
	tmux -L "$terminal" kill-server 2>/dev/null || true
	exec {SCENE[1]}>&-
	wait "$scene"
}

channels()
{
	coproc HOLD { exec cli-hold channels; }
	local hold=$HOLD_PID
	read -r _ <&"${HOLD[0]}"

	golden top-channels sharectl top --once
	exec {HOLD[1]}>&-
	wait "$hold"
}

case ${1-} in
known_state | channels | live)
	"$1"
	finish
	;;
esac

check "the known state is drawn" share-run --config="$cli/broker.json" -- "$0" known_state
check "channels are drawn" share-run --config="$cli/broker.json" -- "$0" channels
if command -v tmux >/dev/null; then
	check "a scene is drawn live" share-run --config="$cli/scene.json" -- "$0" live
else
	echo "SKIPPED: what is drawn live (there is no tmux)"
fi
check "without a broker there is nothing" exits 1 sharectl --socket="$scratch/nowhere" top --once
check "--once is for top" exits 2 sharectl pools --once
finish
