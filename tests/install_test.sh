#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What a stranger does with an installed libshare: it is installed into a fresh prefix, which is
# moved elsewhere (nothing but the unit may remember where it was made), and a program outside this
# tree is built against it with pkg-config, with its archive, and with find_package(); then each is
# run under the installed share-run. So is the program in libshare(7), and the configuration in
# share-broker.conf(5) loads.
#
# usage: install_test.sh BUILD_DIRECTORY

set -euo pipefail

skip()
{
	echo "SKIPPED: $*"
	exit 77
}

fail()
{
	echo "$*"
	exit 1
}

build=$(cd "${1:?usage: install_test.sh BUILD_DIRECTORY}" && pwd)
! grep -qE '^SHARE_SANITIZE:[A-Z]+=.' "$build/CMakeCache.txt" ||
	skip "programs without sanitizers cannot load a library with them"
command -v pkg-config >/dev/null || skip "there is no pkg-config"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/moved

cmake --install "$build" --prefix "$scratch/made" >"$scratch/log" 2>&1 ||
	fail "$(tail -20 "$scratch/log")"
unit=lib/systemd/system/share-broker.service

# names_prefix ROOT PREFIX: what is installed under ROOT names PREFIX and the program that is there
names_prefix()
{
	local key program=share-broker found

	for key in ExecStart ExecReload; do
		found=$(sed -n "s/^$key=\\([^ ]*\\) .*/\\1/p" "$1$2/$unit")
		[[ $found == "$2/bin/$program" && -x $1$found ]] ||
			fail "$key in the unit of $2 is $found"
		program=sharectl
	done
	grep -q "example to begin with is $2/share/doc/" "$1$2/$unit" ||
		fail "the unit of $2 names an example elsewhere"
	found=$(sed -n 's/^ExecStart=\([^ ]*\) .*/\1/p' "$1$2/${unit%broker.service}exporter.service")
	[[ $found == "$2/bin/share-exporter" && -x $1$found ]] ||
		fail "ExecStart in the exporter's unit of $2 is $found"
	[[ -e $1$(sed -n 's/^# An example to begin with is //p' "$1$2/$unit") ]] ||
		fail "the example that the unit of $2 names is not there"
}
names_prefix "" "$scratch/made"

# A package is put together elsewhere than where it will be: in the prefix that was configured, or
# in another one.
configured=$(sed -n 's/^CMAKE_INSTALL_PREFIX:PATH=//p' "$build/CMakeCache.txt")
DESTDIR=$scratch/package cmake --install "$build" >"$scratch/log" 2>&1 ||
	fail "$(tail -20 "$scratch/log")"
names_prefix "$scratch/package" "$configured"
DESTDIR=$scratch/package cmake --install "$build" --prefix /opt/share >"$scratch/log" 2>&1 ||
	fail "$(tail -20 "$scratch/log")"
names_prefix "$scratch/package" /opt/share
! grep -rl "$scratch" "$scratch/package"/opt/share/lib/{pkgconfig,*/pkgconfig,systemd} 2>/dev/null ||
	fail "these files of the package remember where it was put together"
(cd "$scratch" && cmake --install "$build" --prefix beside) >"$scratch/log" 2>&1 ||
	fail "$(tail -20 "$scratch/log")"
names_prefix "" "$scratch/beside"
rm -rf "$scratch/package" "$scratch/beside"

mv "$scratch/made" "$prefix"

libdir=$(dirname "$(find "$prefix" -name libshare.a)")
export PKG_CONFIG_PATH=$libdir/pkgconfig
export PATH=$prefix/bin:$PATH
unset SHARE_SOCKET SHARE_BROKER LD_LIBRARY_PATH

for file in include/share/share.h "$unit" lib/systemd/system/share-broker.socket share/man/man1/sharectl.1 \
	share/man/man1/share-exporter.1 share/doc/share/grafana.json share/doc/share/alerts.yaml share/doc/share/api.md \
	share/doc/share/examples.md share/doc/share/patterns.md share/bash-completion/completions/sharectl \
	share/man/man3/share_alloc.3 share/man/man5/share-broker.conf.5 share/man/man7/libshare.7; do
	[[ -e $prefix/$file ]] || fail "$file was not installed"
done
if command -v doxygen >/dev/null; then
	grep -q '^\.Fa "uint64_t size"' "$prefix/share/man/man3/share_alloc.3" ||
		fail "share_alloc(3) does not show share_alloc()"
fi
if command -v doxygen >/dev/null && command -v mandoc >/dev/null; then
	[[ -s $(find "$prefix/share/doc" -name share_alloc.3.html) ]] || fail "there is no HTML"
fi
if grep -rlE "$build|$scratch/made" "$PKG_CONFIG_PATH" "$libdir/cmake" "$prefix/include"; then
	fail "these files remember where they were made"
fi
version=$(pkg-config --modversion libshare)
# and they find their library without being told where it is
for program in share-broker share-exporter share-run sharectl; do
	[[ $("$prefix/bin/$program" --version) == "$program $version" ]] ||
		fail "$program --version does not say $program $version"
done
share-broker --check --socket="$scratch/s" --config="$(find "$prefix" -name broker.json)" ||
	fail "the example configuration does not load"

# What stands between the Nth .Bd of a manual page, counted from where the page says EXAMPLES or
# EXAMPLE, and its .Ed.
shown()
{
	awk -v n="${2:-1}" '/^\.Ed/ { on = 0 } on { gsub(/\\e/, "\\"); print }
		/^\.Sh EXAMPLE/ { there = 1 } /^\.Bd -literal/ && there && ++k == n { on = 1 }' \
		"$prefix/share/man/$1"
}
# users and groups that are called so elsewhere need not be here
for n in 1 2; do
	shown man5/share-broker.conf.5 $n |
		sed -E 's/"video"/44/; s/"camera"/"1000"/; s/"@[a-z]+"/"@44"/' >"$scratch/shown.json"
	share-broker --check --socket="$scratch/s" --config="$scratch/shown.json" ||
		fail "configuration $n in share-broker.conf(5) does not load"
done

mkdir "$scratch/project"
cat >"$scratch/project/program.c" <<'END'
#include <stdio.h>
#include <string.h>

#include <share/share.h>

static int check(const char *what, int result)
{
	if (result < 0)
		fprintf(stderr, "%s: %s: %s\n", what, share_strerror(result), share_error_detail());
	return result < 0;
}

int main(void)
{
	share_client *client;
	share_pool *pool;
	share_buffer *given, *got;
	int same;

	if (check("connect", share_connect(NULL, &client)) ||
	    check("open", share_pool_open(client, "default", &pool)) ||
	    check("alloc", share_alloc(pool, 4096, NULL, &given)))
		return 1;
	strcpy(share_ptr(given), "found");
	if (check("publish", share_publish(given, "there", NULL)) ||
	    check("look up", share_lookup(client, "there", SHARE_RDONLY, 0, NULL, &got)))
		return 1;
	same = strcmp(share_ptr(got), "found") == 0 && share_id(got) == share_id(given);
	if (check("release", share_release(got, NULL)) ||
	    check("release", share_release(given, NULL)))
		return 1;
	share_pool_close(pool);
	share_disconnect(client);
	printf("%s %s\n", same ? "found" : "not found", share_version());
	return !same;
}
END
cat >"$scratch/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(stranger C)
add_executable(package-shared program.c)
$(sed -nE 's/^    ((find_package|target_link_libraries)\()/\1/p' "${SHARE_TEST_SOURCE:?is not set}/README.md" |
	sed 's/(prog /(package-shared /')
add_executable(package-static program.c)
target_link_libraries(package-static PRIVATE share::static)
END

export LD_LIBRARY_PATH=$libdir
cd "$scratch/project"
# without the flags of this build: they are not the stranger's
unset CFLAGS LDFLAGS
read -ra flags <<<"$(pkg-config --cflags libshare) -std=c17 -Wall -Wextra -pedantic -Werror"
read -ra shared <<<"$(pkg-config --libs libshare)"
read -ra whole <<<"$(pkg-config --static --libs libshare)"
"${CC:-cc}" "${flags[@]}" program.c -o config-shared "${shared[@]}"
"${CC:-cc}" "${flags[@]}" program.c -o config-static "${whole[@]/#-lshare/-l:libshare.a}"
cmake -S . -B build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >"$scratch/log" 2>&1 ||
	fail "$(cat "$scratch/log")"
cmake --build build >"$scratch/log" 2>&1 || fail "$(cat "$scratch/log")"

shown man7/libshare.7 >text.c
"${CC:-cc}" "${flags[@]}" text.c -o text "${shared[@]}"
said=$(share-run sh -c './text hello; ./text') || fail "the program in libshare(7) failed"
[[ $said == hello ]] || fail "the program in libshare(7) said: $said"

for program in config-shared config-static build/package-shared build/package-static; do
	needed=$(readelf -d "$program" | grep -c 'NEEDED.*libshare' || true)
	case $program in
	*-shared) [[ $needed == 1 ]] || fail "$program does not load libshare" ;;
	*-static) [[ $needed == 0 ]] || fail "$program loads libshare, which it should contain" ;;
	esac
	said=$(share-run -- "./$program") || fail "$program failed under share-run"
	[[ $said == "found "* ]] || fail "$program said: $said"
	echo "$program: $said"
done
