#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The package is the same however it is installed: `pip install .` in a checkout has every file of the
# wheel that scripts/make-wheel makes, and the programs of both run where nothing else of ours is. What
# a source distribution has is the tree, so `pip install` of one makes the same again.
#
# usage: wheel_test.sh ENVIRONMENT, after environment.sh has made that; with SHARE_TEST_SOURCE set

set -euo pipefail
environment=${1:?usage: wheel_test.sh ENVIRONMENT}
cd "${SHARE_TEST_SOURCE:?is not set}"
tools=$PWD/build/wheel-tools
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Built in the same folder as the wheel, and as pip does it, but with the tools that are there.
exec {lock}>build/wheel.lock
flock "$lock"
PATH=$tools/bin:$PATH "$tools/bin/pip" install --quiet --no-deps --no-build-isolation \
	--prefix "$scratch/installed" .
exec {lock}>&-
site=$(echo "$scratch"/installed/lib*/python3*/site-packages)

# files FOLDER: what the package is made of, without what the interpreter makes of that
files()
{
	(cd "$1/libshare" && find . -type f ! -path '*/__pycache__/*' | sort)
}
diff <(files "$environment"/venv/lib/python3*/site-packages) <(files "$site") ||
	{ echo "the wheel (<) and what 'pip install .' installs (>) have other files" && exit 1; }

# serves BIN PYTHON [PATH]: what is in that folder, with nothing of ours beside it
serves()
{
	local program

	cat >"$scratch/program.py" <<'END'
import os, signal, libshare
with libshare.connect("embedded") as c:
    c.ping()
    with c.pool("test", kind="host") as pool:
        pool.array(bytearray(b"served")).publish("word")
    # the next broker is started in the same way
    os.kill(c.inspect("status")["pid"], signal.SIGKILL)
    assert c.lookup("word").tobytes() == b"served"
END
	env -i PATH=/usr/bin:/bin PYTHONPATH="${3:-}" "$2" "$scratch/program.py" || return
	for program in share-broker sharectl share-run; do
		env -i PATH=/usr/bin:/bin PYTHONPATH="${3:-}" "$1/$program" --version || return
	done
	env -i PATH=/usr/bin:/bin PYTHONPATH="${3:-}" "$1/share-run" -- "$1/sharectl" status >/dev/null
}
for bin in "$environment/venv/bin" "$scratch/installed/bin"; do
	[[ $bin == "$environment"* ]] && python=$bin/python path= || python=$tools/bin/python path=$site
	serves "$bin" "$python" "$path" || { echo "what is installed in $bin does not serve" && exit 1; }
done

# A process has one library, whoever in it came first with it; and who has come with one of another
# version is told which two there are.
cat >"$scratch/other.c" <<'END'
const char *share_version(void);
const char *share_version(void) { return "0.0.9"; }
END
"${CC:-cc}" -shared -fPIC -Wl,-soname,libshare.so.0 -o "$scratch/libshare.so.0" "$scratch/other.c"
cat >"$scratch/one.py" <<'END'
import ctypes, os, sys
here = os.path.join(sys.argv[1], "libshare", "libshare.so.0")
if sys.argv[2] == "first":
    ctypes.CDLL(here)
import libshare
if sys.argv[2] != "first":
    ctypes.CDLL(here)
found = {line.split()[-1] for line in open("/proc/self/maps") if "libshare.so" in line}
assert found == {here}, found
END
for order in first last; do
	env -i PATH=/usr/bin:/bin PYTHONPATH="$site" "$tools/bin/python" "$scratch/one.py" "$site" $order ||
		{ echo "a process that loads the library $order has two" && exit 1; }
done
if env -i PATH=/usr/bin:/bin PYTHONPATH="$site" "$tools/bin/python" -c \
	'import ctypes, sys; ctypes.CDLL(sys.argv[1]); import libshare' "$scratch/libshare.so.0" 2>"$scratch/said"; then
	echo "the extension takes a library that does not fit" && exit 1
fi
version=$(sed -nE 's/^project\(share VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
grep -q "libshare $version needs the library libshare.so.0 of the same version, and this process has loaded version 0.0.9" \
	"$scratch/said" || { cat "$scratch/said" && echo "a library that does not fit is not named" && exit 1; }

if git ls-files >/dev/null 2>&1; then
	name=$("$tools/bin/python" -c 'import sys; from scikit_build_core.build import build_sdist; print(build_sdist(sys.argv[1]))' \
		"$scratch" | tail -n 1)
	diff <(git ls-files --cached --others --exclude-standard | xargs -d '\n' ls -d 2>/dev/null | LC_ALL=C sort) \
		<(tar -tzf "$scratch/$name" | sed 's|^[^/]*/||' | grep -vE '/$|^PKG-INFO$' | LC_ALL=C sort) ||
		{ echo "the tree (<) and the source distribution (>) have other files" && exit 1; }
fi
