#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The examples as they are installed: built by somebody else, with what is installed, in another
# place. Also each alone, as C17 with GNU extensions and nothing defined, which is what cc does.
#
# usage: installed_test.sh BUILD_DIRECTORY

set -euo pipefail
. "$(dirname "$0")/lib.sh"

cmake --install "${1:?usage: installed_test.sh BUILD_DIRECTORY}" --prefix "$scratch/prefix" \
	>"$scratch/log" || { cat "$scratch/log" && exit 1; }
cp -r "$scratch/prefix/share/share/examples" "$scratch/a project"
cd "$scratch/a project"

# without the flags of this build
unset CFLAGS LDFLAGS
{
	cmake -B build -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_BUILD_TYPE=Release &&
		cmake --build build
} >"$scratch/log" 2>&1 || { cat "$scratch/log" && exit 1; }

library=$(dirname "$(find "$scratch/prefix" -name libshare.so)")
for example in *.c; do
	"${CC:-cc}" -std=gnu17 -Wall -Wextra -Werror -fsyntax-only "$example" \
		-I "$scratch/prefix/include"
done
"${CC:-cc}" hello.c -o hello -I "$scratch/prefix/include" -L "$library" -lshare

export PATH=$scratch/prefix/bin:$PATH LD_LIBRARY_PATH=$library
run_example share-run -- ./hello
expect 0 '^child '
run_example share-run -- build/fences
expect 0 '^fences: ok '
run_example share-run -- build/pipeline --kind host --frames 4 data/picture.ppm
expect 0 '^pipeline: ok kind=host consumers=3 bytes=2764800 copies=0$'
run_example share-run -- build/workers 2 1
expect 0 '^workers: ok '
if [[ -x build/service ]]; then
	run_example share-run -- sh -c \
		'build/service & build/service_client && kill $! && wait $!'
	expect 0 '^service: ended jobs=8$'
fi
