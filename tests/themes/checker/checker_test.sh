#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The checker over one kind of memory: without deaths, with them, and with what else there is.
#
# usage: checker_test.sh CHECKER KIND [PERCENT]     of the usual number of steps
set -euo pipefail

checker=$1
kind=$2
percent=${3-100}

case $kind in
host) steps=$((100 * percent)) ;;
*) steps=$((30 * percent)) ;;
esac

check()
{
	echo "checker_test: $*"
	"$checker" --kind "$kind" --steps "$steps" "$@"
}

# odd seeds have segments come and go; without one it is another one each time
check --seed 1
check --seed 2 --kill --channels 0
check --seed 3 --kill --hang-up
check --seed 6 --channels 85
check --channels 85 --kill=30 --hang-up --processes 5
check --kill=15 --hang-up --pause 20000 --streams 12 --processes 6
check --seed 5 --kill --hang-up --reuse clean
check --freeze 1500 --channels 85 --steps $((steps / 10))
[ "$kind" = host ] || SHARE_HOST_FENCES=1 check --seed 4 --kill
