/* SPDX-License-Identifier: MIT */

#include "libshare/buffer/inside.h"
#include "libshare/client/range.h"
/* The public fences. */

/* From a handle to the client. */
static int check(const share_client *handle, const void *pointer, share_client **c)
{
	int r = client_find(handle, c);

	return r == 0 && !pointer ? fail(SHARE_EINVAL, "fence or out is NULL") : r;
}

/* Here no buffer says what @stream is: what is no host stream can be a CUstream where this client
 * uses memory of a GPU. Some of that, with a reference, or NULL when it does not matter. */
static int find_memory(share_client *c, void *stream, struct segment **out,
		       struct memory_mapping **m)
{
	int r = stream_check(c, NULL, stream);

	*out = NULL;
	*m = NULL;
	if (r != 0 || !stream || host_stream_is(c, stream))
		return r;
	*out = segment_on_device(c, m);
	if (*out)
		return 0;
	return fail(SHARE_EINVAL,
		    "the stream is neither NULL nor a share_host_stream of this "
		    "client, and it uses no memory of a GPU");
}

int share_fence_record(share_client *c, void *stream, share_fence *out)
{
	struct memory_mapping *m;
	struct segment *s;
	int r = check(c, out, &c);

	if (r == 0)
		r = find_memory(c, stream, &s, &m);
	if (r != 0)
		return r;
	r = stream_signal(c, m, stream, out);
	segment_put(c, s);
	return r;
}

int share_fence_wait(share_client *c, const share_fence *fence, void *stream)
{
	RANGE("share_fence_wait", 0);
	struct memory_mapping *m;
	struct held_fence f;
	struct segment *s;
	int r = check(c, fence, &c);

	if (r == 0)
		r = find_memory(c, stream, &s, &m);
	if (r != 0)
		return r;
	r = fence_hold(c, fence->timeline, fence->value, &f);
	if (r == 0) {
		if (fence_state(c, &f) == TIMELINE_DEAD)
			r = fail(SHARE_EOWNERDEAD, "the fence's owner died before it was reached");
		else
			r = stream_wait(c, m, stream,
					&(struct ordering){.fences = &f, .n = 1, .timeout_ms = -1});
		fence_drop(c, &f);
	}
	segment_put(c, s);
	return r;
}

int share_fence_query(const share_client *handle, const share_fence *fence)
{
	struct held_fence f;
	share_client *c = NULL;
	int r = check(handle, fence, &c);

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
	RANGE("share_fence_synchronize", 0);
	struct held_fence f;
	int r = check(c, fence, &c);

	if (r == 0 && timeout_ms < -1)
		r = fail(SHARE_EINVAL, "a time limit is -1, 0, or milliseconds");
	if (r == 0)
		r = fence_hold(c, fence->timeline, fence->value, &f);
	if (r != 0)
		return r;
	r = fence_wait_here(c, &f, timeout_ms);
	fence_drop(c, &f);
	return r;
}

int share_fence_get_stats(const share_client *handle, share_fence_stats *out)
{
	share_client *c = NULL;
	share_fence_stats stats;
	int r = check(handle, out, &c);

	if (r == 0)
		r = struct_check(share_fence_stats, out);
	if (r != 0)
		return r;
	order_get_stats(c, &stats);
	struct_out(share_fence_stats, out, &stats);
	return 0;
}
