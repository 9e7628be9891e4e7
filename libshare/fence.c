/* SPDX-License-Identifier: MIT */

/* The public fences. */

#include "libshare/error.h"
#include "libshare/host_stream.h"
#include "libshare/timeline.h"

static int check(share_client *c, const void *pointer)
{
	if (!c || !pointer)
		return fail(SHARE_EINVAL, "client or fence is NULL");
	return client_is_forked(c) ? fail_fork() : 0;
}

int share_fence_record(share_client *c, void *stream, share_fence *out)
{
	int r = check(c, out);

	if (r == 0)
		r = stream_check(c, stream);
	return r != 0 ? r : stream_signal(c, stream, out);
}

int share_fence_wait(share_client *c, const share_fence *fence, void *stream)
{
	struct held_fence f;
	int r = check(c, fence);

	if (r == 0)
		r = stream_check(c, stream);
	if (r == 0)
		r = fence_hold(c, fence->timeline, fence->value, &f);
	if (r != 0)
		return r;
	if (fence_state(c, &f) == TIMELINE_DEAD)
		r = fail(SHARE_EOWNERDEAD, "the fence's owner died before it was reached");
	else
		r = stream_wait(c, stream, &f, -1);
	fence_drop(c, &f);
	return r;
}

int share_fence_query(share_client *c, const share_fence *fence)
{
	struct held_fence f;
	int r = check(c, fence);

	if (r == 0)
		r = fence_hold(c, fence->timeline, fence->value, &f);
	if (r != 0)
		return r;
	switch (fence_state(c, &f)) {
	case TIMELINE_REACHED:
		break;
	case TIMELINE_PENDING:
		r = fail(SHARE_EAGAIN, "the fence is not reached yet");
		break;
	case TIMELINE_DEAD:
		r = fail(SHARE_EOWNERDEAD, "the fence's owner died before it was reached");
		break;
	}
	fence_drop(c, &f);
	return r;
}

int share_fence_synchronize(share_client *c, const share_fence *fence, int timeout_ms)
{
	struct held_fence f;
	int r = check(c, fence);

	if (r == 0 && timeout_ms < -1)
		r = fail(SHARE_EINVAL, "a time limit is -1, 0, or milliseconds");
	if (r == 0)
		r = fence_hold(c, fence->timeline, fence->value, &f);
	if (r != 0)
		return r;
	r = stream_wait(c, NULL, &f, timeout_ms);
	fence_drop(c, &f);
	return r;
}
