#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# scripts/prepare on systems that are not this one: dpkg-query, apt and pip are played here.
#
# usage: prepare_test.sh [ROOT]

set -euo pipefail

root=$(cd "${1:-${SHARE_TEST_SOURCE:-$(dirname "$0")/..}}" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/scripts"
cp "$root/scripts/prepare" "$scratch/scripts"
cat >"$scratch/scripts/packages" <<'END'
[build]
cmake
[test]
old-tool-14 | old-tool==14.0.6
browser | -
END
export SCRATCH=$scratch PATH=$scratch/bin:$PATH

play()
{
	printf '#!/bin/sh\n%s\n' "$2" >"$scratch/bin/$1"
	chmod +x "$scratch/bin/$1"
}
play dpkg-query 'for package; do :; done; ! grep -qx "$package" $SCRATCH/installed || echo installed'
play apt-cache 'grep -qx "$2" $SCRATCH/known'
play sudo 'shift; "$@"'
play id 'echo 0'
play apt-get 'echo "apt-get $*" | sed "s/ -y --no-install-recommends//" >>$SCRATCH/did
case $1 in install) shift; printf "%s\n" "$@" >>$SCRATCH/installed ;; esac'
play python3 'echo "python3 $1 $2" >>$SCRATCH/did
mkdir -p $3/bin
printf "#!/bin/sh\necho pip \$1 \$3 >>$SCRATCH/did; test ! -e $SCRATCH/offline\n" >$3/bin/pip
chmod +x $3/bin/pip'

failed=0
# on WHAT INSTALLED KNOWN < what is to be done
on()
{
	tr ' ' '\n' <<<"$2" >"$scratch/installed"
	tr ' ' '\n' <<<"$3" >"$scratch/known"
	: >"$scratch/did"
	if ! "$scratch/scripts/prepare" test >"$scratch/said" 2>&1; then
		echo "$1: prepare failed: $(cat "$scratch/said")"
		failed=1
	elif ! diff - "$scratch/did"; then
		echo "$1: not what was to be done (<) but that (>)"
		failed=1
	fi
}

on "a system that has it all" "cmake old-tool-14 browser" "" </dev/null
on "a bare system that knows the old tool" "" "cmake old-tool-14 browser" <<'END'
apt-get update
apt-get install cmake old-tool-14 browser
END
on "a system that has all that there is for it" "cmake old-tool-14" "cmake old-tool-14" </dev/null
on "a system of which nothing is known yet" "cmake old-tool-14" "" <<'END'
apt-get update
END
touch "$scratch/offline"
on "a later system without a network" "cmake python3-venv" "" <<'END'
apt-get update
python3 -m venv
pip install old-tool==14.0.6
END
grep -q 'could not install old-tool==14.0.6' "$scratch/said" || {
	echo "what is missing is not said: $(cat "$scratch/said")"
	failed=1
}
rm -r "$scratch/offline" "$scratch/.cache"
on "a later system" "cmake" "" <<'END'
apt-get update
apt-get install python3-venv
python3 -m venv
pip install old-tool==14.0.6
END
on "the same, a second time" "cmake" "cmake" </dev/null
exit $failed
