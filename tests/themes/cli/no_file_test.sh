#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Where a file is to be, there may be a FIFO, to which nobody writes, or a folder. Whoever opens it says
# so, and waits for nobody.
#
# usage: no_file_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

mkfifo "$scratch/fifo"
mkdir "$scratch/folder"
own=$scratch/own
mkdir "$own"
cp -L "$SHARE_TEST_BIN/share-broker" "$own"

# refuses TEXT COMMAND...: it ends with an error that says so
refuses()
{
	local text=$1 code=0

	shift
	timeout 60 "$@" >"$scratch/said" 2>&1 </dev/null || code=$?
	{ ((code != 0 && code != 124)) && grep -qF "$text" "$scratch/said"; } ||
		{ echo "exit code $code" && cat "$scratch/said" && return 1; }
}

# Its module, its configuration and its socket.
for wrong in fifo:'this is no file':'there is a file that is no socket' \
	folder:'Is a directory':'this is a directory, not a socket'; do
	IFS=: read -r what said not <<<"$wrong"
	check "a configuration that is a $what" refuses "$scratch/$what: $said" \
		share-broker --socket="$scratch/s" --config="$scratch/$what"
	check "when it is looked at" refuses "$scratch/$what: $said" \
		share-broker --check --socket="$scratch/s" --config="$scratch/$what"
	check "of a private broker" refuses "$scratch/$what: $said" \
		share-run --config="$scratch/$what" -- true
	cp -r "$scratch/$what" "$own/share-broker.so" 2>/dev/null || mkfifo "$own/share-broker.so"
	check "a module that is a $what" refuses "$own/share-broker.so: $said" \
		"$own/share-broker" --socket="$scratch/s"
	rm -rf "$own/share-broker.so"
	check "a socket that is a $what" refuses "$scratch/$what: $not" \
		share-broker --socket="$scratch/$what"
	check "to who asks it" refuses "no broker answers at $scratch/$what, which is no socket" \
		sharectl --socket="$scratch/$what" status
	check "a private broker that is a $what" refuses "\$SHARE_BROKER is $scratch/$what, which cannot be run" \
		env SHARE_SOCKET=embedded SHARE_BROKER="$scratch/$what" cli-probed
	if [[ -x $SHARE_TEST_BIN/share-bridge ]]; then
		check "the key of a bridge that is a $what" refuses "$scratch/$what: $said" \
			share-bridge --key "$scratch/$what" --listen 127.0.0.1:0
		check "its configuration" refuses "$scratch/$what: $said" share-bridge --config "$scratch/$what"
	fi
done

# The module of an upgrade, and the configuration that is read again.
cp -L "$SHARE_TEST_BIN/share-broker.so" "$own"
echo '{}' >"$scratch/config.json"
"$own/share-broker" --socket="$scratch/s" --config="$scratch/config.json" 2>"$scratch/log" &
broker=$!
trap 'kill "$broker" 2>/dev/null; wait; rm -rf "$SHARE_TEST_SCRATCH"' EXIT
export SHARE_SOCKET=$scratch/s
until_true sharectl status >/dev/null 2>&1
serving=$(sharectl status | sed -n 's/^pid *//p')
mv "$own/share-broker.so" "$own/before.so"
mkfifo "$own/share-broker.so"
check "an upgrade to a FIFO" refuses "share-broker.so: this is no file" sharectl upgrade
mv "$scratch/fifo" "$scratch/config.json"
check "a configuration that has become a FIFO" refuses "config.json: this is no file" sharectl reload
check "the broker goes on as it was" same "$(sharectl status | sed -n 's/^pid *//p')" "$serving"
finish
