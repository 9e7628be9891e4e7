#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The Debian packages: together they have every file that is installed, each once, and lintian finds
# nothing but what is named below. Then they are installed by dpkg in an overlay of this machine that
# systemd-nspawn boots (harness/boot.sh): the broker serves, a user compiles a program of the -dev
# package and runs it, an upgrade keeps the configuration and what runs, and after a purge nothing is left.
# What they have is the same without ccache, and nothing in it can be broken on purpose.
#
# usage: package_test.sh SOURCE_DIRECTORY [MUTANT]
#
# MUTANT: a program that can be (tests/themes/checker/mutants), to see whether that would be found.

set -euo pipefail

source "$(dirname "$(readlink -f "$0")")/harness/boot.sh"

# ------------------------------------------------------------------------------------------------
# Inside

all=(share-broker libshare0 libshare-dev share-tools share-exporter)
! compgen -G '/packages/1/share-bridge_*' >/dev/null || all+=(share-bridge) # where there is UCX
units=(share-broker.socket share-broker.service share-exporter.service)

user()
{
	setpriv --reuid 4242 --regid 4242 --clear-groups env HOME=/tmp SHARE_SOCKET=/run/share/broker.sock "$@"
}

is_installed()
{
	local unit
	dpkg --install /packages/1/*.deb
	for unit in "${units[@]}"; do
		systemctl --quiet is-active "$unit" || fail "$unit does not run"
		systemctl --quiet is-enabled "$unit" || fail "$unit would not run after a boot"
	done
	user sharectl status
}

is_built_against()
{
	mkdir --mode=1777 /tmp/stranger
	cp /usr/share/share/examples/hello.c /tmp/stranger
	# shellcheck disable=SC2046 # flags are words
	user cc /tmp/stranger/hello.c -o /tmp/stranger/hello $(pkg-config --cflags --libs libshare)
	user /tmp/stranger/hello
	readelf -d /tmp/stranger/hello | grep -q 'NEEDED.*libshare.so.0' || fail "hello has no libshare"
	# each function that a program calls names the version that it was linked with
	nm -D /tmp/stranger/hello | grep -q 'share_alloc_with@LIBSHARE_0.1' || fail "symbols have no version"
}

is_upgraded()
{
	local pid
	pid=$(systemctl show -P MainPID share-broker.service)
	sed -i 's/"pools": 16/"pools": 17/' /etc/share/broker.json
	cp /etc/share/broker.json /tmp/broker.json
	dpkg --install /packages/2/*.deb | tee /tmp/upgrade.log
	[[ $(dpkg-query -W -f '${Version}' share-broker) == *-2 ]] || fail "it was not upgraded"
	cmp /tmp/broker.json /etc/share/broker.json || fail "the configuration is not the administrator's"
	[[ $(systemctl show -P MainPID share-broker.service) == "$pid" ]] || fail "the broker was restarted"
	grep -q 'goes on from version' /tmp/upgrade.log || fail "the new program does not go on"
	user sharectl status >/dev/null
	systemctl restart share-broker.service
	user sharectl status | grep '^pid '
}

is_removed()
{
	local unit
	dpkg-query --listfiles "${all[@]}" | sort -u >/tmp/files
	dpkg --remove "${all[@]}"
	for unit in "${units[@]}"; do
		! systemctl --quiet is-active "$unit" || fail "$unit still runs"
	done
	[[ ! -e /run/share ]] || fail "the folder of the socket is still there"
	cmp /tmp/broker.json /etc/share/broker.json || fail "the configuration is gone with the programs"
}

is_purged()
{
	local path
	dpkg --purge "${all[@]}"
	while read -r path; do
		if [[ -f $path || -L $path ]]; then
			fail "$path is left"
		fi
	done </tmp/files
	for path in /etc/share /usr/share/share /usr/include/share; do
		[[ ! -e $path ]] || fail "$path is left"
	done
	! find /etc/systemd /var/lib/systemd -name 'share-broker*' -o -name 'share-exporter*' | grep . ||
		fail "systemd still knows it"
}

if [[ ${1:-} == inside ]]; then
	trap 'systemctl exit $?' EXIT
	for step in is_installed is_built_against is_upgraded is_removed is_purged; do
		echo "== $step"
		$step
	done
	exit 0
fi

# ------------------------------------------------------------------------------------------------
# Outside

source=${1:?usage: package_test.sh SOURCE_DIRECTORY [MUTANT]}
mutant=${2:-}
command -v dpkg-shlibdeps >/dev/null || skip "there is no dpkg-dev"
made=$source/build/package-test # which is in the way of nobody, and looked at after a failure

have_every_file_once()
{
	DESTDIR=$made/whole cmake --install "$source/build/package" >"$made/log" 2>&1 ||
		fail "$(tail -n 20 "$made/log")"
	(cd "$made/whole" && find . -type f -o -type l) | sort >"$made/installed"
	[[ -s $made/installed ]] || fail "nothing was installed"
	for package in "$made"/1/*.deb; do
		dpkg-deb --fsys-tarfile "$package" | tar -t | grep -v '/$'
	done | sed 's/\.gz$//' | sort >"$made/packed"
	# what only packages have
	grep -vE '^\./(etc/share/broker\.json|usr/share/doc/(lib)?share[a-z0-9-]*/(copyright|changelog\.Debian))$' \
		"$made/packed" | diff "$made/installed" - ||
		fail "what is installed (<) and what packages have (>) differ"
}

# Some sources of each room, compiled by the compiler alone in another copy of the tree and another
# folder there: what is linked is the same then, byte for byte.
are_the_same_without_ccache()
{
	local copy=$made/copy object command

	mkdir -p "$copy/build/another"
	(cd "$source" && cp -r agent base broker include libshare memory pages ring tools wire "$copy")
	cd "$copy/build/another"
	for object in base/CMakeFiles/share-base.dir/table.c.o broker/CMakeFiles/share-broker-core.dir/journal/journal.c.o \
		libshare/CMakeFiles/share-objects.dir/{program/embedded,buffer/magazine}.c.o \
		ring/CMakeFiles/share-ring.dir/consumer/consumer.c.o tools/CMakeFiles/sharectl.dir/sharectl/sharectl.c.o; do
		command=$(ninja -C "$source/build/package" -t commands "$object" | tail -n 1)
		command=${command//"$source"/"$copy"}
		mkdir -p "${object%/*}"
		CCACHE_DISABLE=1 bash -c "${command//"$copy/build/package"/"$copy/build/another"}" ||
			fail "$object does not compile elsewhere"
		cmp "$object" "$source/build/package/$object" || fail "$object is not what the compiler makes of it"
	done
	cd "$OLDPWD"
}

can_be_broken()
{
	grep -la SHARE_MUTATION "$@" || { nm -A "$@" 2>/dev/null || true; } | grep '\bmutation_on\b'
}

cannot_be_broken()
{
	local files
	mapfile -t files < <(find "$made/whole" -type f)
	! can_be_broken "${files[@]}" || fail "what is installed can be broken on purpose"
	[[ ! $mutant ]] || can_be_broken "$mutant" >/dev/null || fail "a mutant is not found"
}

# Who installs one gets the library that its programs are linked with, which dpkg-shlibdeps does not know yet.
have_their_library()
{
	local package needed
	for package in "$made"/1/*.deb; do
		rm -rf "$made/one"
		dpkg-deb --extract "$package" "$made/one"
		# readelf is not content with what is no program
		needed=$(find "$made/one" -type f -exec readelf -d {} + 2>/dev/null || true)
		! grep -q 'NEEDED.*libshare\.so\.0' <<<"$needed" ||
			[[ $(dpkg-deb --field "$package" Depends) =~ libshare0\ \(= ]] ||
			fail "${package##*/} does not depend on the library that its programs need"
	done
}

# As nobody uploads these packages to Debian, nobody mails the maintainer there or closes a bug; the
# scripts in Python are examples to be read; CPack writes the scripts of the library, and the agent is
# for the broker alone.
allowed=bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs
allowed+=,python3-script-but-no-python3-dep,maintscript-calls-ldconfig,no-manual-page

please_lintian()
{
	command -v lintian >/dev/null || { echo "there is no lintian: it has not looked" && return; }
	lintian --allow-root --fail-on error,warning --suppress-tags "$allowed" -X documentation/manual \
		"$made"/1/*.deb || fail "lintian is not content"
	can_be_read "$made"/whole/usr/share/man/man*/*
}

# Lintian has each of 200 pages read by programs of its own, which takes longer than all else that it does.
can_be_read()
{
	local package
	! groff -mandoc -ww -Z -Tutf8 "$@" 2>&1 >/dev/null | grep . || fail "groff is not content"
	lexgrog "$@" >"$made/whatis" || fail "$(grep -v ' - ' "$made/whatis")"
	for package in "$made"/1/*.deb; do
		! dpkg-deb --contents "$package" | grep 'usr/share/man/.*[^z/]$' || fail "a page is not compressed"
	done
}

if [[ ! ${SHARE_UNIT_TEST_MOUNTS:-} ]]; then # that is, not yet in make_root's
	rm -rf "$made"
	mkdir -p "$made"
	"$source/scripts/package" "$made/1"
	"$source/scripts/package" "$made/2" 2
	"$source/scripts/package" "$made/again" 1
	have_every_file_once
	have_their_library
	are_the_same_without_ccache
	cannot_be_broken
	diff -r "$made/1" "$made/again" || fail "the same commit gave other packages"
	please_lintian
fi

make_root "$0" "$source"
mkdir "$root/packages"
cp -r "$made/1" "$made/2" "$root/packages/"
# nothing here but what the packages start, and no index of manual pages of the whole machine
rm -f "$root/usr/sbin/policy-rc.d" "$root/var/lib/man-db/auto-update"
boot_root 300
