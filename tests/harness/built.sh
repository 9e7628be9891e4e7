#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs a test's command, if what it needs has been built; else says how to build it.
#
# usage: built.sh BUILD_DIRECTORY [TARGET FILE]... -- COMMAND...

build=$1
shift
missing=
while [ "$1" != -- ]; do
	[ -e "$2" ] || missing="$missing $1"
	shift 2
done
shift
if [ -n "$missing" ]; then
	echo "Not built yet. This builds what the test needs:"
	echo "    cmake --build $build --target$missing"
	exit 1
fi
exec "$@"
