#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# An environment for the tests of the Python package: fresh, with NumPy, pyarrow, cuda-bindings, pytest, mypy,
# tritonclient where it can be had, and the wheel; or, as an extension with sanitizers is not for a wheel,
# with the package from the tree and that extension.
#
# usage: environment.sh FOLDER [EXTENSION]
#        environment.sh --packages, for the packages of others alone, ahead of the time
#
# What others have made is in an environment of its own, build/python-packages, which all presets look
# into: to install it takes as long as many tests. Remove that folder to have newer packages.
#
# $SHARE_TEST_PACKAGES: what pip is to install there besides, for the tests of frameworks.

set -euo pipefail
folder=${1:?usage: environment.sh FOLDER [EXTENSION]}
source=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
shared=$source/build/python-packages
wanted="numpy pyarrow cuda-bindings pytest mypy"

pip()
{
	"$shared/bin/pip" --python "$folder/venv/bin/python" install --quiet --no-compile "$@"
}

make_shared()
{
	local made

	made="$("$python" -c 'import sys; print(sys.executable, sys.version)') $wanted"
	[[ $(cat "$shared/made" 2>/dev/null) != "$made" ]] || return 0
	rm -rf "$shared"
	"$python" -m venv "$shared" || return
	# shellcheck disable=SC2086 # words
	"$shared/bin/pip" install --quiet --no-compile $wanted || return
	"$shared/bin/pip" install --quiet --no-compile 'tritonclient[http]' ||
		echo "no tritonclient: triton_test is skipped"
	echo "$made" >"$shared/made"
}

mkdir -p "$source/build"
exec {lock}>"$source/build/python-packages.lock"
flock "$lock"
make_shared
exec {lock}>&-
[[ $folder != --packages ]] || exit 0

rm -rf "$folder"
mkdir -p "$folder/staged"
"$python" -m venv --without-pip "$folder/venv"
echo "import site; site.addsitedir('$(echo "$shared"/lib/python3*/site-packages)')" \
	>"$(echo "$folder"/venv/lib/python3*/site-packages)/shared.pth"
read -ra packages <<<"${SHARE_TEST_PACKAGES:-}"
((${#packages[@]} == 0)) || pip "${packages[@]}"

if [[ -n ${2:-} ]]; then
	mkdir "$folder/staged/libshare"
	ln -s "$source"/python/libshare/* "$2" "$folder/staged/libshare"
else
	wheel=$("$source/scripts/make-wheel" "$folder/dist" | tail -n 1)
	pip --no-index "$wheel"
	echo "installed ${wheel##*/}"
fi
