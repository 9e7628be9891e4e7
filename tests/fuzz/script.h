/* SPDX-License-Identifier: MIT */
#ifndef TESTS_FUZZ_SCRIPT_H
#define TESTS_FUZZ_SCRIPT_H

#include <stddef.h>
#include <stdint.h>

#include <share/share.h>

/*
 * A program against libshare, a byte a call: what is called in the low five bits, which of its
 * objects in the high three. Calls that need what is not there (a buffer, say) are left out.
 */
enum script_call {
	SCRIPT_POOL_OPEN,
	SCRIPT_POOL_CREATE,
	SCRIPT_POOL_CLOSE,
	SCRIPT_POOL_DESTROY,
	SCRIPT_ALLOC,
	SCRIPT_RELEASE,
	SCRIPT_PUBLISH,
	SCRIPT_PUBLISH_IF,
	SCRIPT_UNPUBLISH,
	SCRIPT_LOOKUP,
	SCRIPT_LOOKUP_ASYNC,
	SCRIPT_LOOKUP_ABANDON, /* asynchronously, without a handle */
	SCRIPT_CANCEL,
	SCRIPT_WATCH,
	SCRIPT_UNWATCH,
	SCRIPT_DISPATCH,
	SCRIPT_EXPORT,
	SCRIPT_IMPORT,
	SCRIPT_REVOKE,
	SCRIPT_METADATA_SET,
	SCRIPT_METADATA_GET,
	SCRIPT_TENSOR_SET,
	SCRIPT_TENSOR_GET,
	SCRIPT_LIST,
	SCRIPT_INSPECT,
	SCRIPT_PING,
	SCRIPT_FENCE,
	SCRIPT_STATUS,
	SCRIPT_TOUCH,
	SCRIPT_STREAM,
	SCRIPT_GET_FD,
	SCRIPT_LOOKUP_WAIT, /* with a time limit */
};
#define SCRIPT(call, which) ((uint8_t)((call) | (which) << 5))

/* Gives back all that it got, but for the client. */
void script_run(share_client *c, const uint8_t *calls, size_t n);

#endif
