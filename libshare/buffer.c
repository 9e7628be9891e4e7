/* SPDX-License-Identifier: MIT */

/* Buffers: allocate, release, and everything a handle knows by itself. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libshare/buffer.h"
#include "libshare/error.h"
#include "libshare/host_stream.h"
#include "libshare/segment.h"

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t deadline_from(int timeout_ms)
{
	return timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
}

int deadline_left(int64_t deadline)
{
	int64_t left;

	if (deadline < 0)
		return -1;
	left = deadline - now_ms();
	return left < 0 ? 0 : (int)left;
}

int buffer_check(share_buffer *b)
{
	if (!b)
		return fail(SHARE_EINVAL, "the buffer is NULL");
	return client_is_forked(b->client) ? fail_fork() : 0;
}

int mode_check(int mode)
{
	if (mode != SHARE_RDONLY && mode != SHARE_RDWR)
		return fail(SHARE_EINVAL, "mode %d is neither SHARE_RDONLY nor SHARE_RDWR", mode);
	return 0;
}

int name_check(const char *name)
{
	size_t size = name ? strnlen(name, SHARE_NAME_MAX + 1) : 0;

	/* UTF-8 and control characters are the broker's to judge; it does not take our word */
	if (size == 0 || size > SHARE_NAME_MAX)
		return fail(SHARE_EINVAL,
			    "a name is 1 to %d bytes of UTF-8 without control characters",
			    SHARE_NAME_MAX);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */

static int send_release(share_client *c, uint64_t id, uint32_t count, const share_fence *fence)
{
	struct wire_message m = {.type = WIRE_RELEASE};

	m.release.buffer = id;
	m.release.count = count;
	m.release.timeline = fence->timeline;
	m.release.value = fence->value;
	return rpc_send(c, &m);
}

static void give_back(share_client *c, uint64_t id)
{
	send_release(c, id, 1, &(share_fence){0, 0});
}

int buffer_from_grant_unordered(share_client *c, const struct wire_grant *m, share_buffer **out)
{
	bool writable = m->mode == SHARE_RDWR;
	share_buffer *b = calloc(1, sizeof(*b));
	void *base = NULL;
	int r = 0;

	if (!b) {
		r = fail_system(-ENOMEM, "making a buffer handle");
	} else {
		pthread_mutex_lock(&c->lock);
		r = segment_address_locked(c, m, writable, &base);
		pthread_mutex_unlock(&c->lock);
	}
	if (r != 0) {
		free(b);
		give_back(c, m->buffer);
		return r;
	}
	atomic_init(&b->refs, 1);
	b->client = client_ref(c);
	b->id = m->buffer;
	b->size = m->size;
	b->version = m->version;
	b->mode = m->mode;
	b->address = (char *)base + m->offset;
	*out = b;
	return 0;
}

static int wait_for_fences(share_client *c, const struct wire_grant *m, bool hand_over,
			   void *stream, int64_t deadline, share_buffer *b)
{
	int r = 0;

	for (uint32_t at = 0; r == 0 && at < m->fences.size; at += sizeof(struct wire_fence)) {
		struct wire_fence w;
		struct held_fence f;

		memcpy(&w, (const char *)m->fences.data + at, sizeof(w));
		r = fence_hold(c, w.timeline, w.value, &f);
		if ((r == SHARE_EOWNERDEAD || r == SHARE_ESTALE) && !hand_over) {
			r = 0; /* its owner has ended: it can use nothing any more */
			continue;
		}
		if (r != 0)
			break;
		r = stream_wait(c, stream, &f, deadline_left(deadline));
		if (r == SHARE_EOWNERDEAD && !hand_over)
			r = 0;
		if (r == 0 && hand_over)
			b->giver = fence_hold_again(c, &f);
		fence_drop(c, &f);
	}
	return r;
}

int buffer_from_grant(share_client *c, const struct wire_grant *m, bool hand_over, void *stream,
		      int timeout_ms, share_buffer **out)
{
	int64_t deadline = deadline_from(timeout_ms);
	share_buffer *b;
	int r;

	r = buffer_from_grant_unordered(c, m, &b);
	if (r != 0)
		return r;
	r = wait_for_fences(c, m, hand_over, stream, deadline, b);
	if (r != 0) {
		share_release(b, NULL);
		return r;
	}
	*out = b;
	return 0;
}

/* ------------------------------------------------------------------------------------------- */

int share_alloc_with(share_pool *p, uint64_t size, const share_alloc_options *options, void *stream,
		     share_buffer **out)
{
	struct wire_message m = {.type = WIRE_ALLOC};
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	int r;

	if (!p || !out || (options && options->size != sizeof(*options)))
		return fail(SHARE_EINVAL, "pool or out is NULL, or options were not initialised");
	if (client_is_forked(p->client))
		return fail_fork();
	r = stream_check(p->client, stream);
	if (r != 0)
		return r;
	m.alloc.pool = p->id;
	m.alloc.size = size;
	m.alloc.alignment = options ? options->alignment : 0;
	r = rpc(p->client, &m, WIRE_GRANT, &reply);
	if (r != 0)
		return r;
	return buffer_from_grant(p->client, &reply.m.grant, false, stream, -1, out);
}

int share_alloc(share_pool *p, uint64_t size, void *stream, share_buffer **out)
{
	return share_alloc_with(p, size, NULL, stream, out);
}

int share_release(share_buffer *b, void *stream)
{
	share_fence fence = {0, 0};
	share_client *c;
	bool last;
	int r;

	r = buffer_check(b);
	if (r == 0)
		r = stream_check(b->client, stream);
	if (r != 0)
		return r;
	c = b->client;
	r = stream_signal(c, stream, &fence);
	if (r != 0) {
		/* no memory for a signal: being done is as good as saying so */
		share_host_stream_synchronize(stream);
		fence = (share_fence){0, 0};
		r = 0;
	}
	/* The fence before the reference: whoever gives the last one up must find it told. Alone we
	 * may say both at once. */
	if (fence.timeline && atomic_load_explicit(&b->refs, memory_order_acquire) > 1) {
		r = send_release(c, b->id, 0, &fence);
		fence = (share_fence){0, 0};
	}
	last = atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1;
	if (last)
		r = send_release(c, b->id, 1, &fence);
	if (last) {
		fence_drop(c, &b->giver);
		free(b);
		client_unref(c);
	}
	return r;
}

share_buffer *share_retain(share_buffer *b)
{
	if (b)
		atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
	return b;
}

void *share_ptr(share_buffer *b)
{
	return b && !client_is_forked(b->client) ? b->address : NULL;
}

uint64_t share_size(share_buffer *b)
{
	return b ? b->size : 0;
}

uint64_t share_id(share_buffer *b)
{
	return b ? b->id : 0;
}

int share_mode(share_buffer *b)
{
	return b ? (int)b->mode : 0;
}

uint64_t share_name_version(share_buffer *b)
{
	return b ? b->version : 0;
}

int share_buffer_status(share_buffer *b)
{
	int r = buffer_check(b);

	if (r != 0)
		return r;
	switch (fence_state(b->client, &b->giver)) {
	case TIMELINE_REACHED:
		return 0;
	case TIMELINE_PENDING:
		return fail(SHARE_EAGAIN, "the giver's work on this buffer is still running");
	case TIMELINE_DEAD:
		break;
	}
	return fail(SHARE_EOWNERDEAD, "the giver died before its work on this buffer was done");
}
