#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What a program under share-run sees of it, and what its caller sees.
#
# usage: share_run_test.sh, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

. "$(dirname "$0")/lib.sh"

# The descriptors a program has here, or under "$@".
descriptors()
{
	"$@" ls /proc/self/fd
}

is_served()
{
	[[ -S ${SHARE_SOCKET-} ]] && sharectl status >/dev/null
}

nested()
{
	local outer=$SHARE_SOCKET inner

	inner=$(share-run -- bash -c 'sharectl status >"$1" && echo "$SHARE_SOCKET"' - \
		"$scratch/inner")
	check "a share-run inside has a broker of its own" [ "$inner" != "$outer" ]
	check "that programs find" grep -qE "^address +$inner\$" "$scratch/inner"
	check "and that ends with it" [ ! -e "$inner" ]
	check "while the outer one goes on" is_served
}

case ${1-} in
nested | is_served)
	"$1"
	finish
	;;
esac

golden share-run-help share-run --help
golden share-run-usage share-run --usage
golden share-run-version share-run --version
golden share-run-no-command share-run
golden share-run-no-command-either share-run -c "$cli/broker.json" --
golden share-run-unknown-option share-run --label=x -- true
golden share-run-no-configuration share-run -c "$scratch/nowhere" -- true
echo '{ "pool": [] }' >"$scratch/bad.json"
golden share-run-bad-configuration share-run -c "$scratch/bad.json" -- true
golden share-run-not-found share-run -- no-such-program
golden share-run-not-runnable share-run -- "$scratch/bad.json"

check "exit code 0 is passed on" exits 0 share-run -- true
check "exit code 3 is passed on" exits 3 share-run -- sh -c 'exit 3'
check "death by SIGTERM is 143" exits 143 share-run -- sh -c 'kill -TERM $$'
check "death by SIGKILL is 137" exits 137 share-run -- sh -c 'kill -KILL $$'
check "no command is 127" exits 127 share-run -- no-such-program 2>/dev/null
check "a command that is no program is 126" exits 126 share-run -- / 2>/dev/null

check "options after the command are the command's" \
	same "$(share-run printf '%s ' -c --help -- x)" "-c --help -- x "
check "with -- as well" same "$(share-run -- printf '%s ' -c --help -- x)" "-c --help -- x "
check "stdin is the command's" same "$(echo said | share-run -- cat)" said
check "the command has a broker" share-run -- "$0" is_served
check "whatever SHARE_SOCKET was" env SHARE_SOCKET="$scratch/nowhere" share-run -- "$0" is_served
check "the configuration is used" \
	same "$(share-run -c "$cli/broker.json" -- sharectl --no-headings pools | wc -l)" 2

wanted=$(descriptors)
check "no descriptor is inherited from share-run" same "$(descriptors share-run --)" "$wanted"
exec 7</dev/null
wanted=$(descriptors)
check "a descriptor from outside is" same "$(descriptors share-run --)" "$wanted"
exec 7<&-
check "ignored SIGCHLD does no harm" exits 3 env --ignore-signal=CHLD share-run -- sh -c 'exit 3'

check "nested" share-run -- "$0" nested
check "nothing is left behind" is_empty "$TMPDIR"
finish
