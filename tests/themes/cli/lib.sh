# SPDX-License-Identifier: MIT
#
# What the tests of the programs have in common; sourced by each of them.
#
#   SHARE_TEST_BIN       directory of the programs
#   SHARE_TEST_SOURCE    root of the source tree
#   SHARE_UPDATE_GOLDEN  1: write what the programs print to golden/ instead of comparing
#
# A test that runs a part of itself under share-run starts itself again with the name of that part
# as its argument.
# shellcheck shell=bash

set -euo pipefail

: "${SHARE_TEST_BIN:?is the directory with the programs}"
: "${SHARE_TEST_SOURCE:?is the root of the source tree}"
cli=$SHARE_TEST_SOURCE/tests/themes/cli
failures=0

# Nothing of the environment may show in what the programs print.
export LC_ALL=C.UTF-8 PATH=$SHARE_TEST_BIN:/usr/bin:/bin
unset SHARE_BROKER XDG_RUNTIME_DIR JOURNAL_STREAM COLUMNS ARGP_HELP_FMT LIBSMARTCOLS_DEBUG

# What is shown is what programs use, not what the library keeps for their next use.
export SHARE_MAGAZINES=0

# Short, as it becomes the path of a socket.
if [[ -z ${SHARE_TEST_SCRATCH-} ]]; then
	unset SHARE_SOCKET
	SHARE_TEST_SCRATCH=$(mktemp -d /tmp/share-cli-XXXXXX)
	export SHARE_TEST_SCRATCH TMPDIR=$SHARE_TEST_SCRATCH/tmp
	mkdir "$TMPDIR"
	trap 'rm -rf "$SHARE_TEST_SCRATCH"' EXIT
fi
scratch=$SHARE_TEST_SCRATCH

# check WHAT COMMAND...: a line that says whether COMMAND succeeds.
check()
{
	local what=$1

	shift
	if "$@"; then
		echo "ok: $what"
	else
		echo "FAILED: $what"
		failures=$((failures + 1))
	fi
}

# The last line of every test, and of every part.
finish()
{
	((failures == 0)) || echo "$failures failed"
	exit $((failures > 0))
}

# exits CODE COMMAND...: whether COMMAND exits with that.
exits()
{
	local wanted=$1 code=0

	shift
	"$@" || code=$?
	((code == wanted)) || echo "exit code $code instead of $wanted"
	((code == wanted))
}

# as_alice COMMAND...: as somebody else, who is nobody here. Fails for who cannot be.
as_alice()
{
	setpriv --reuid=4711 --regid=4711 --clear-groups "$@"
}

same()
{
	[[ $1 == "$2" ]] || printf 'this:   %s\nwanted: %s\n' "$1" "$2"
	[[ $1 == "$2" ]]
}

# until_true COMMAND...: tries again until it succeeds, for ten seconds.
until_true()
{
	local tries

	for ((tries = 0; tries < 1000; tries++)); do
		! "$@" || return 0
		sleep 0.01
	done
	echo "still not: $*"
	return 1
}

# Dead, if perhaps not buried: who that is left to depends on the machine.
is_dead()
{
	[[ ! -e /proc/$1 ]] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null
}

# freeze PID: stopped once it returns, since a signal is taken some time after it was sent
freeze()
{
	kill -STOP "$1" || return
	until grep -q '^State:[[:space:]]*T' "/proc/$1/status"; do :; done
}

# kill_service PID...: of a keeper, its deputy and its broker as well, as the others would go on.
kill_service()
{
	local keeper all pid
	for keeper; do
		# 0 would be everybody here
		((keeper > 1)) && kill -STOP "$keeper" 2>/dev/null || continue
		read -r -a all <"/proc/$keeper/task/$keeper/children" || true
		kill -KILL "${all[@]}" "$keeper" 2>/dev/null || true
		for pid in "${all[@]}" "$keeper"; do
			until is_dead "$pid"; do sleep 0.01; done
		done
	done
}

is_empty()
{
	[[ -z $(ls -A "$1") ]] || ls -AR "$1"
	[[ -z $(ls -A "$1") ]]
}

has_lines()
{
	(($(wc -l <"$1") >= $2))
}

# When a line of the broker's log was written.
log_time='[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}[+-][0-9]{4}'

# Filters, from stdin to stdout: what differs from run to run, and where things lie. A test has more
# to filter by a normalise() of its own.
normalise_common()
{
	sed -E -e "s|$scratch|SCRATCH|g" -e "s/(^|stderr: )$log_time /\\1TIME /" -e "s|$SHARE_TEST_SOURCE|SOURCE|g" \
		-e 's|/share-[[:alnum:]]{6}/|/share-XXXXXX/|g' -e "s/\`/'/g" -e 's/\r$//'
}
normalise()
{
	normalise_common
}

# golden NAME COMMAND...: compares what COMMAND prints, and how it exits, with golden/NAME.
golden()
{
	local name=$1 file=$cli/golden/$1 code=0

	shift
	"$@" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
	{
		echo "\$ $*"
		cat "$scratch/out"
		sed 's/^/stderr: /' "$scratch/err"
		echo "exit code $code"
	} | normalise >"$scratch/golden"
	if [[ ${SHARE_UPDATE_GOLDEN-} == 1 ]]; then
		cp "$scratch/golden" "$file"
		echo "written: $name"
	else
		check "$* prints golden/$name" \
			diff -u --label "golden/$name" --label printed "$file" "$scratch/golden"
	fi
}
