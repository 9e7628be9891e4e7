# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# For the tests of the examples: runs them, and looks at their exit code and last line. To be
# sourced.

export PATH=${SHARE_TEST_BIN:?is not set}:$PATH
unset SHARE_SOCKET SHARE_BROKER
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Runs a command; stdout and stderr are shown, and kept for expect().
run_example()
{
	command="$*"
	echo "+ $command"
	code=0
	"$@" >"$scratch/out" 2>"$scratch/err" || code=$?
	cat "$scratch/out" "$scratch/err"
}

# expect CODE PATTERN: its exit code, and a pattern for the last line of its stdout.
expect()
{
	[[ $code == "$1" ]] || { echo "FAILED: $command: exit code $code, not $1" && exit 1; }
	last=$(tail -n 1 "$scratch/out")
	[[ $last =~ $2 ]] || { echo "FAILED: $command: the last line is not like $2" && exit 1; }
}

# fails PATTERN: with this as the last line of its stderr
fails()
{
	[[ $code == 1 ]] || { echo "FAILED: $command: exit code $code, not 1" && exit 1; }
	last=$(tail -n 1 "$scratch/err")
	[[ $last =~ $1 ]] || { echo "FAILED: $command: the last error is not like $1" && exit 1; }
}
