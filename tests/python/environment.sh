#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# An environment for the tests of the Python package: fresh, with NumPy, pyarrow, cuda-bindings, pytest and
# the wheel, and tritonclient where it can be had; or, as an extension with sanitizers is not for a wheel, with the package from the tree and
# that extension.
#
# usage: environment.sh FOLDER [EXTENSION]
#
# $SHARE_TEST_PACKAGES: what pip is to install there besides, for the tests of frameworks.

set -euo pipefail
folder=${1:?usage: environment.sh FOLDER [EXTENSION]}
source=$(cd "$(dirname "$0")/../.." && pwd)

rm -rf "$folder"
mkdir -p "$folder/staged"
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy pyarrow cuda-bindings pytest
read -ra packages <<<"${SHARE_TEST_PACKAGES:-}"
((${#packages[@]} == 0)) || "$folder/venv/bin/pip" install --quiet "${packages[@]}"

if [[ -n ${2:-} ]]; then
	mkdir "$folder/staged/libshare"
	ln -s "$source"/python/libshare/* "$2" "$folder/staged/libshare"
else
	wheel=$("$source/scripts/make-wheel" "$folder/dist" | tail -n 1)
	"$folder/venv/bin/pip" install --quiet --no-index "$wheel"
	echo "installed ${wheel##*/}"
	"$folder/venv/bin/pip" install --quiet 'tritonclient[http]' || echo "no tritonclient: triton_test is skipped"
fi
