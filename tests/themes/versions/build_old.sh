#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Builds the programs of an older version, from the history: what versions_test needs of it, and not
# optimised. Skipped where there is no history, as in a source archive or a shallow clone.
#
# usage: build_old.sh SOURCE FOLDER
#
# FOLDER then has bin/ (programs), lib/ (the library), python/ (the package), and peer (peer.c of this
# version, compiled with the headers of that one).

set -euo pipefail
source=${1:?usage: build_old.sh SOURCE FOLDER} folder=${2:?usage: build_old.sh SOURCE FOLDER}
# The first one that others have: what is older cannot be upgraded from.
commit=9e429ec06814d75645c3e861f7f13189d91394b0

if [[ $(cat "$folder/commit" 2>/dev/null) == "$commit" ]]; then
	echo "old version: it is built already"
else
	if ! git -C "$source" cat-file -e "$commit^{tree}" 2>/dev/null; then
		rm -rf "$folder"
		echo "old version: there is no commit $commit in the history of $source, so it cannot be built: skipped"
		exit 77
	fi
	rm -rf "$folder"
	mkdir -p "$folder/source"
	git -C "$source" archive "$commit" | tar -x -C "$folder/source"

	# as cmake/ShareTarget.cmake has it
	launcher=()
	if command -v ccache >/dev/null; then
		export CCACHE_BASEDIR=$folder CCACHE_NOHASHDIR=true
		launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
	fi
	cmake -S "$folder/source" -B "$folder" -G Ninja "${launcher[@]}" -DCMAKE_BUILD_TYPE= -DSHARE_BUILD_TESTS=OFF \
		-DSHARE_BUILD_EXAMPLES=OFF -DSHARE_BUILD_BENCH=OFF -DSHARE_BUILD_PYTHON=ON >"$folder/log" 2>&1
	bridge=
	! grep -q '^build share-bridge:' "$folder/build.ninja" || bridge=share-bridge
	if ! cmake --build "$folder" --target share share-broker share-agent sharectl python-core $bridge \
		>>"$folder/log" 2>&1; then
		tail -n 40 "$folder/log"
		exit 1
	fi
	mkdir "$folder/python/libshare"
	ln -s "$folder"/source/python/libshare/* "$folder/python/_core.abi3.so" "$folder/python/libshare"
	echo "$commit" >"$folder/commit"
	echo "old version: built"
fi
"${CC:-cc}" -I "$folder/source/include" "$source/tests/themes/versions/peer.c" -o "$folder/peer" \
	-L "$folder/lib" -lshare
