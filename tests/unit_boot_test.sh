#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The units as systemd runs them: this machine's files with what `cmake --install` adds (an overlay
# that is gone afterwards) are booted by systemd-nspawn, without a network, and inside of that the
# broker is started by its socket, used by an ordinary user, reloaded, killed and stopped. Its
# log must not say that it could not do something there. Takes root and systemd-nspawn; skipped
# where they, or what they need of the kernel, cannot be had.
#
# usage: unit_boot_test.sh BUILD_DIRECTORY SOURCE_DIRECTORY

set -euo pipefail

source "$(dirname "$(readlink -f "$0")")/harness/boot.sh"

# ------------------------------------------------------------------------------------------------
# Inside

# Somebody without rights and without an account.
user()
{
	setpriv --reuid 4242 --regid 4242 --clear-groups "$@"
}

property()
{
	systemctl show -P "$1" share-broker.service
}

has_what_it_should()
{
	local pid
	pid=$(property MainPID)
	grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' "/proc/$pid/status"
	awk '/^Uid:/ && $2 == 0 || /^Cap(Eff|Bnd):/ && $2 !~ /^0*$/ || /^NoNewPrivs:/ && $2 != 1 ||
		/^Seccomp:/ && $2 != 2 { exit 1 }' "/proc/$pid/status" ||
		fail "the broker has more rights than it needs"
	systemd-analyze security --no-pager --threshold=20 share-broker.service | tail -n 1
}

is_activated()
{
	systemctl start share-broker.socket
	[[ $(stat -c %a /run/share/broker.sock) == 666 ]] || fail "not everybody may connect"
	[[ $(property ActiveState) == inactive ]] || fail "nobody has asked for a broker yet"
	user sharectl status
	[[ $(property ActiveState) == active ]] || fail "the broker was not started by its socket"
}

is_used()
{
	user workers
	user fences
	user sharectl pools
	user sharectl devices || true # an agent that finds no driver is all there may be
}

is_exported()
{
	systemctl start share-exporter.service
	until { exec 3<>/dev/tcp/127.0.0.1/9756; } 2>/dev/null; do sleep 0.05; done
	printf 'GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3
	grep -E '^share_(up|clients) ' <&3 >/tmp/metrics
	cat /tmp/metrics
	grep -q '^share_up 1$' /tmp/metrics || fail "the exporter does not reach the broker"
	systemd-analyze security --no-pager --threshold=20 share-exporter.service | tail -n 1
	systemctl stop share-exporter.service
	[[ $(systemctl show -P Result share-exporter.service) == success ]] || fail "the exporter did not end well"
}

is_reloaded()
{
	local config=/etc/share/broker.json
	cp "$config" /tmp/broker.json
	sed -i 's/"name": "host",/"name": "another", "kind": "host" }, { "name": "host",/' "$config"
	systemctl reload share-broker.service
	sharectl --no-headings pools | grep '^another ' >/dev/null || fail "the new pool is not there"
	sed -i 's/"kind": "host"/"kind": "hots"/' "$config"
	! systemctl reload share-broker.service || fail "a configuration that is wrong was taken"
	journalctl --sync
	journalctl -u share-broker.service | grep 'broker.json:[0-9]*: .*"hots" is not' >/dev/null ||
		fail "nothing says what is wrong in it"
	sharectl --no-headings pools | grep '^another ' >/dev/null || fail "it changed something"
	cp /tmp/broker.json "$config"
}

is_killed()
{
	local pid broker
	pid=$(property MainPID)
	broker=$(user sharectl status | grep '^pid ')
	kill -KILL "$pid"
	# 0: the deputy has not said yet that it is the keeper
	until [[ $(property MainPID) != @("$pid"|0) ]]; do sleep 0.05; done
	[[ $(user sharectl status | awk '$1 == "keeper" { print $2 }') == "$(property MainPID)" ]] ||
		fail "systemd does not know who is keeper"
	[[ $(user sharectl status | grep '^pid ') == "$broker" ]] || fail "the broker went with its keeper"
	[[ $(property ActiveState) == active ]] || fail "the service is $(property ActiveState)"
	[[ $(property NRestarts) == 0 ]] || fail "the service was started again"
	pid=$(property MainPID)
	systemctl kill --kill-who=all --signal=KILL share-broker.service
	until [[ $(property NRestarts) == 1 ]]; do sleep 0.05; done
	user sharectl status | grep '^pid '
}

is_stopped()
{
	user sharectl status >/dev/null
	systemctl stop share-broker.socket share-broker.service
	[[ $(property Result) == success ]] || fail "the broker did not end well"
	[[ ! -e /run/share/broker.sock ]] || fail "the socket is still there"
}

is_not_started()
{
	echo '{' >/etc/share/broker.json
	systemctl start share-broker.service || true
	until [[ $(property ActiveState) == failed ]]; do sleep 0.05; done
	[[ $(property ExecMainStatus) == 2 ]] || fail "the exit code is $(property ExecMainStatus)"
	[[ $(property NRestarts) == 0 ]] || fail "a configuration that is wrong was tried again"
}

if [[ ${1:-} == inside ]]; then
	trap 'systemctl exit $?' EXIT
	for step in is_activated has_what_it_should is_used is_exported is_reloaded is_killed has_what_it_should \
		is_stopped is_not_started; do
		echo "== $step"
		$step
	done
	journalctl --sync
	journalctl --no-pager --output=cat -u share-broker.service
	! journalctl --output=cat -u share-broker.service | grep -E '^cannot|BUG:' ||
		fail "there was something that the broker could not do"
	exit 0
fi

# ------------------------------------------------------------------------------------------------
# Outside

build=$(cd "${1:?usage: unit_boot_test.sh BUILD_DIRECTORY SOURCE_DIRECTORY}" && pwd)
source=${2:?usage: unit_boot_test.sh BUILD_DIRECTORY SOURCE_DIRECTORY}
! grep -qE '^SHARE_SANITIZE:[A-Z]+=.' "$build/CMakeCache.txt" ||
	skip "a sanitizer does not let the broker give up what it should"

make_root "$0" "$build" "$source"
DESTDIR=$root cmake --install "$build" --prefix /usr >"$scratch/log" 2>&1 ||
	fail "$(tail -n 20 "$scratch/log")"
cp "$build/bin/workers" "$build/bin/fences" "$root/usr/bin/"
mkdir -p "$root/etc/share"
cp "$source/packaging/broker.json" "$root/etc/share/"
boot_root 100
