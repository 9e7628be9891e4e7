/* SPDX-License-Identifier: MIT */

/* What a `void *stream` is, and who orders work on it. */

#include "libshare/order/inside.h"

/* What is no host stream is a CUstream then, and else the calling thread. */
static bool is_on_device(const struct memory_mapping *m)
{
	return m && m->kind->on_device;
}

int stream_check(share_client *c, const struct memory_kind *kind, void *stream)
{
	int r;

	if (!stream || (host_stream_is(c, stream) && handle_find(stream, HANDLE_HOST_STREAM)))
		return 0;
	r = host_stream_refuse(stream);
	if (r != 0)
		return r;
	if (kind ? kind->on_device : gpu_stream_is_possible(stream))
		return 0;
	return fail(SHARE_EINVAL,
		    "the stream is neither NULL nor a share_host_stream of this client, and this "
		    "is not memory of a GPU");
}

struct memory_mapping stream_on_device(int ordinal)
{
	return (struct memory_mapping){.kind = memory_kind_by_id(MEMORY_VMM), .ordinal = ordinal};
}

int stream_signal(share_client *c, const struct memory_mapping *m, void *stream, share_fence *out)
{
	if (host_stream_is(c, stream))
		return host_stream_signal(stream, out);
	if (is_on_device(m))
		return gpu_stream_signal(c, m, stream, out);
	/* what the calling thread did before is done */
	*out = (share_fence){0, 0};
	return 0;
}

static int wait_on_host_stream(void *stream, struct ordering *o)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < o->n; i++)
		r = host_stream_wait(stream, &o->fences[i]);
	if (o->n > 0)
		o->how = SHARE_ORDERED_ON_STREAM;
	return r;
}

int stream_wait(share_client *c, const struct memory_mapping *m, void *stream, struct ordering *o)
{
	if (host_stream_is(c, stream))
		return wait_on_host_stream(stream, o);
	return is_on_device(m) ? gpu_stream_wait(c, m, stream, o) : ordering_wait_here(c, o);
}

bool stream_blocks(share_client *c, const struct memory_mapping *m, void *stream)
{
	if (host_stream_is(c, stream))
		return false;
	return !is_on_device(m) || gpu_stream_blocks(c, m, stream);
}

int stream_synchronize(share_client *c, const struct memory_mapping *m, void *stream, bool *fatal)
{
	*fatal = false;
	if (!host_stream_is(c, stream))
		return is_on_device(m) ? gpu_stream_synchronize(m, stream, fatal) : 0;
	host_stream_synchronize(stream);
	return 0;
}

int stream_end(share_client *c, const struct memory_mapping *m, void *stream, share_fence *out,
	       bool *fatal)
{
	int r = stream_signal(c, m, stream, out);

	*fatal = false;
	if (r == 0 || r == SHARE_EINVAL || r == SHARE_ENOTSUP)
		return r;
	*out = (share_fence){0, 0};
	return stream_synchronize(c, m, stream, fatal);
}

int stream_wait_for_users(share_client *c, const struct memory_mapping *m, void *stream,
			  const struct fences *users, int timeout_ms, uint32_t *how)
{
	struct ordering o = {
	    .fences = users->all, .n = users->n, .timeout_ms = timeout_ms, .dead_is_done = true};
	int r = o.n > 0 ? stream_wait(c, m, stream, &o) : 0;

	if (how && o.how > *how)
		*how = o.how;
	return r;
}
