/* SPDX-License-Identifier: MIT */

/* The public fences. */

#include "libshare/order/inside.h"
#include "libshare/program/range.h"
#include "libshare/program/struct.h"

/* From a handle to the client. */
static int check(const share_client *handle, const void *pointer, share_client **c)
{
	int r = client_find(handle, c);

	return r == 0 && !pointer ? fail(SHARE_EINVAL, "fence or out is NULL") : r;
}

/* Here no memory says what @stream is, but the program: NULL in the place of @m for the host. */
static int find_place(share_client *c, int ordinal, void *stream, struct memory_mapping *place,
		      const struct memory_mapping **m)
{
	if (ordinal < -1)
		return fail(SHARE_EINVAL, "%d is no device: -1 stands for the host", ordinal);
	*place = stream_on_device(ordinal);
	*m = ordinal < 0 ? NULL : place;
	return stream_check(c, ordinal < 0 ? memory_kind_by_id(MEMORY_HOST) : place->kind, stream);
}

int share_fence_record(share_client *c, int ordinal, void *stream, share_fence *out)
{
	HAZARDS;
	const struct memory_mapping *m;
	struct memory_mapping place;
	int r = check(c, out, &c);

	if (r == 0)
		r = find_place(c, ordinal, stream, &place, &m);
	return r != 0 ? r : stream_signal(c, m, stream, out);
}

int share_fence_wait(share_client *c, const share_fence *fence, int ordinal, void *stream)
{
	RANGE("share_fence_wait", 0);
	HAZARDS;
	struct ordering o = {.n = 1, .timeout_ms = -1};
	const struct memory_mapping *m;
	struct memory_mapping place;
	struct held_fence f;
	int r = check(c, fence, &c);

	if (r == 0)
		r = find_place(c, ordinal, stream, &place, &m);
	if (r == 0)
		r = fence_hold(c, fence->timeline, fence->value, &f);
	if (r != 0)
		return r;
	o.fences = &f;
	if (fence_is_known_dead(c, &f))
		r = fail(SHARE_EOWNERDEAD, "the fence's owner died before it was reached");
	else
		r = stream_wait(c, m, stream, &o);
	fence_drop(&f);
	return r;
}

int share_fence_query(const share_client *handle, const share_fence *fence)
{
	HAZARDS;
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
		r = fail_constant(SHARE_EAGAIN, "the fence is not reached yet");
		break;
	case TIMELINE_DEAD:
		r = fail(SHARE_EOWNERDEAD, "the fence's owner died before it was reached");
		break;
	}
	fence_drop(&f);
	return r;
}

int share_fence_synchronize(share_client *c, const share_fence *fence, int timeout_ms)
{
	RANGE("share_fence_synchronize", 0);
	HAZARDS;
	struct held_fence f;
	int r = check(c, fence, &c);

	if (r == 0 && timeout_ms < -1)
		r = fail(SHARE_EINVAL, "a time limit is -1, 0, or milliseconds");
	if (r == 0)
		r = fence_hold(c, fence->timeline, fence->value, &f);
	if (r != 0)
		return r;
	client_ref(c);
	r = fence_wait_here(c, &f, timeout_ms, true);
	fence_drop(&f);
	client_unref(c);
	return r;
}

int share_fence_get_stats(const share_client *handle, share_fence_stats *out)
{
	HAZARDS;
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
