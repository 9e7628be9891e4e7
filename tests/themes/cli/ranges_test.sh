#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Ranges: under a profiler, each call of libshare that may take time begins one and ends it, also when
# it fails; without one, or with one that cannot be loaded, nothing is loaded and nothing changes.
#
# usage: ranges_test.sh PROFILER.SO, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set (see lib.sh)

profiler=$(readlink -f "$1")
. "$(dirname "$0")/lib.sh"

unset NVTX_INJECTION64_PATH
export SHARE_TEST_RANGES=$scratch/ranges

# What the profiler has seen: thread and range, indented by the ranges of this thread that it is in.
drawn()
{
	awk '$2 == "push" { printf "%s:%*s%s\n", $1, 1 + 4 * depth[$1]++, "", substr($0, length($1) + 7); next }
		$2 == "pop" && depth[$1]-- > 0 { next }
		{ print }
		END { for (thread in depth) if (depth[thread]) print thread ": a range was not ended" }' \
		"$SHARE_TEST_RANGES"
	rm "$SHARE_TEST_RANGES"
}

# check_drawn WHAT: that these are those of stdin.
check_drawn()
{
	cat >"$scratch/expected"
	drawn >"$scratch/drawn"
	check "$1" diff -u "$scratch/expected" "$scratch/drawn"
}

check "a channel works" share-run env NVTX_INJECTION64_PATH="$profiler" cli-probed
check_drawn "each call has its range, and each wait for the broker one in it" <<'END'
main domain libshare
main: share_connect
main:     HELLO
main:     READY
main: share_pool_open
main:     POOL_OPEN
main: share_channel_open
main:     CHANNEL_OPEN
main:     CHANNEL_READY
main: share_channel_open
main:     CHANNEL_OPEN
main:     CHANNEL_READY
main: share_alloc 5000
main:     ALLOC
main: share_publish
main:     PUBLISH
main: share_send 1
main: share_recv
main: share_ack 1
main: share_release
END

check "names, tokens and a service work" \
	share-run env NVTX_INJECTION64_PATH="$profiler" cli-ranged work
check_drawn "so do their calls, those that fail included" <<'END'
main domain libshare
main: share_connect
main:     HELLO
main:     READY
main: share_pool_open
main:     POOL_OPEN
main: share_pool_open
main:     POOL_OPEN
main: share_alloc 5000
main:     ALLOC
main: share_copy_from_host 10
main: share_copy_to_host 2
main: share_lookup
main:     LOOKUP
main: share_publish
main:     PUBLISH
main: share_lookup
main:     LOOKUP
main: share_release
main: share_export
main:     EXPORT
main: share_import
main:     IMPORT
main: share_release
main: share_release
main: share_service_open
main:     CHANNEL_OPEN
main:     CHANNEL_OPEN
main:     CHANNEL_READY
main:     CHANNEL_OPEN
main:     CHANNEL_OPEN
main:     CHANNEL_READY
main: share_service_open
main:     CHANNEL_OPEN
main:     CHANNEL_READY
main:     CHANNEL_OPEN
main:     CHANNEL_READY
main: share_call_start 3
main: share_next_request
main: share_reply 7
main:     share_ack 1
main: share_call_finish
main: share_ack 1
main: share_next_request
main: share_service_close
main:     CHANNEL_CLOSE
main:     CHANNEL_CLOSE
main: share_service_close
main:     CHANNEL_CLOSE
main:     CHANNEL_CLOSE
main: share_pool_close
main:     POOL_CLOSE
main: share_disconnect
main:     BYE
END

check "it fails without a broker" exits 1 env NVTX_INJECTION64_PATH="$profiler" \
	SHARE_SOCKET="$scratch/nobody" cli-probed
check_drawn "the call that failed has ended its range" <<'END'
main domain libshare
main: share_connect
END

check "the profiler is loaded once" same \
	"$(NVTX_INJECTION64_PATH="$profiler" cli-ranged thread)" "1 loaded"
check_drawn "ranges end on their thread, within those of the program" <<'END'
main domain program
main: outer
other domain libshare
other: share_connect
other: share_recv
other: share_release
main: share_connect
main: share_recv
main: share_release
END

check "nothing is loaded without a profiler" same "$(cli-ranged)" "0 loaded"
check "or with an empty name of one" same "$(NVTX_INJECTION64_PATH='' cli-ranged)" "0 loaded"
check "or with one that is not there" same \
	"$(NVTX_INJECTION64_PATH="$scratch/nothing" cli-ranged)" "0 loaded"
check "nothing changes without a profiler" share-run cli-probed
check "or with one that is not there" share-run env NVTX_INJECTION64_PATH="$scratch/nothing" cli-probed
check "and nothing is drawn" test ! -e "$SHARE_TEST_RANGES"
finish
