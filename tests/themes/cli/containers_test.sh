#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What docs/containers.md says of namespaces, with those that unshare(1) makes; and the recipe for
# images takes packages that scripts/package makes.
#
# usage: containers_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

recipe=$SHARE_TEST_SOURCE/packaging/container/Containerfile
for package in $(grep -o '/packages/[a-z0-9-]*_' "$recipe" | sed 's|.*/||; s/_$//'); do
	check "the recipe takes $package, which there is" \
		grep -q "^# .*$package" "$SHARE_TEST_SOURCE/scripts/package"
done

if ! unshare --user --pid --fork --mount-proc --ipc --net true 2>/dev/null; then
	echo "skipped: no namespaces can be made here"
	((failures == 0)) || finish
	exit 77
fi

export SHARE_SOCKET=$scratch/s

# serves COMMAND...: a broker, started by that.
serves()
{
	"$@" share-broker --socket "$SHARE_SOCKET" >"$scratch/log" 2>&1 &
	broker=$!
	trap 'stop_broker; rm -rf "$scratch"' EXIT
	until_true sharectl status >/dev/null 2>&1
}

# unshare takes no signal while its child runs
stop_broker()
{
	pkill -P "$broker" 'share-(broker|keeper)' || kill "$broker" 2>/dev/null || true
}

ends()
{
	stop_broker
	wait "$broker" || true
	rm -f "$SHARE_SOCKET"
}

deaths()
{
	grep -cE "pid $1, uid $(id -u), .cli-probed.\) died" "$scratch/log"
}

has_deaths()
{
	(($(deaths '[1-9][0-9]*') == $1))
}

serves env
n=0
for own in --pid\ --fork --ipc --net --mount --user '--user --pid --fork --mount-proc --ipc --net --uts'; do
	# shellcheck disable=SC2086
	check "a program with its own namespaces ($own) does all it does elsewhere" unshare $own cli-probed
	n=$((n + 1))
done
# as packaging/share-cdi.json mounts it
cat >"$scratch/read-only" <<'END'
mount --bind "$1" "$1" && mount -o remount,bind,ro,nosuid,nodev,noexec "$1" || exit 1
! touch "$1/file" 2>/dev/null && exec cli-probed
END
check "a program does all it does elsewhere where the folder of the socket is mounted for reading only" \
	unshare --user --map-root-user --mount sh "$scratch/read-only" "$scratch"
n=$((n + 1))
# each time its number and its user are those of the host
check "the broker knows each of them, and sees it die" until_true has_deaths "$n"
ends

serves unshare --user --map-root-user --pid --fork --mount-proc --ipc --net
check "a broker with its own namespaces serves programs outside" cli-probed
check "it sees that they die, but has no number for them" until_true deaths 0
ends
finish
