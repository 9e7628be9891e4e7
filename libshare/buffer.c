/* SPDX-License-Identifier: MIT */

/* Buffers: allocate, release, and everything a handle knows by itself. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libshare/buffer.h"
#include "libshare/error.h"
#include "libshare/segment.h"
#include "libshare/stream.h"
#include "wire/mutation.h"

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
	share_buffer *b = calloc(1, sizeof(*b));
	int r;

	r = b ? segment_get(c, m, m->mode == SHARE_RDWR, &b->segment, &b->mapping)
	      : fail_system(-ENOMEM, "making a buffer handle");
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
	b->offset = m->offset;
	*out = b;
	return 0;
}

/* The handle is nobody's any more. The segment before the message: once the broker has it, it may
 * want the segment back. */
static void buffer_free(share_buffer *b)
{
	share_client *c = b->client;

	fence_drop(c, &b->giver);
	segment_put(c, b->segment);
	free(b);
}

void buffer_drop(share_buffer *b)
{
	share_client *c = b->client;
	uint64_t id = b->id;

	buffer_free(b);
	give_back(c, id);
	client_unref(c);
}

void fences_done(share_client *c, struct fences *f)
{
	for (size_t i = 0; i < f->n; i++)
		fence_drop(c, &f->all[i]);
	if (f->all != f->few)
		free(f->all);
	f->all = NULL;
	f->n = 0;
}

static int hold(share_client *c, const struct wire_grant *m, uint32_t i, struct held_fence *out)
{
	struct wire_fence w;

	memcpy(&w, (const char *)m->fences.data + i * sizeof(w), sizeof(w));
	return fence_hold(c, w.timeline, w.value, out);
}

/* The first is a giver's, or there is none. */
static uint32_t first_user(const struct wire_grant *m)
{
	return m->flags & WIRE_GRANT_HAND_OVER ? 1 : 0;
}

int buffer_hold_users(share_client *c, const struct wire_grant *m, struct fences *out)
{
	uint32_t n = (uint32_t)(m->fences.size / sizeof(struct wire_fence)), first = first_user(m);

	out->n = 0;
	out->all = out->few;
	if (n <= first || MUTATION(skip_wait))
		return 0;
	if (n - first > sizeof(out->few) / sizeof(out->few[0])) {
		out->all = calloc(n - first, sizeof(*out->all));
		if (!out->all)
			return fail_system(-ENOMEM, "ordering a buffer");
	}
	for (uint32_t i = first; i < n; i++) {
		int r = hold(c, m, i, &out->all[out->n]);

		/* an owner that has ended can use nothing any more */
		if (r == 0)
			out->n++;
		else if (r != SHARE_EOWNERDEAD && r != SHARE_ESTALE)
			return r;
	}
	return 0;
}

static int wait_for_users(share_client *c, const struct wire_grant *m, void *stream, int timeout_ms,
			  share_buffer *b)
{
	struct ordering o = {.timeout_ms = timeout_ms, .dead_is_done = true};
	struct fences users;
	int r = buffer_hold_users(c, m, &users);

	if (r == 0 && users.n > 0) {
		o.fences = users.all;
		o.n = users.n;
		r = stream_wait(c, b->mapping, stream, &o);
	}
	fences_done(c, &users);
	if (o.how > b->ordered)
		b->ordered = o.how;
	return r;
}

int buffer_hold_giver(share_client *c, const struct wire_grant *m, share_buffer *b)
{
	int r;

	if (first_user(m) == 0)
		return 0;
	r = hold(c, m, 0, &b->giver);
	if (r == 0 && fence_state(c, &b->giver) == TIMELINE_DEAD)
		r = fail(SHARE_EOWNERDEAD,
			 "the process that gave this buffer died before its work was done");
	return r;
}

static int wait_for_giver(share_client *c, const struct wire_grant *m, void *stream, int timeout_ms,
			  share_buffer *b)
{
	struct ordering o = {.fences = &b->giver, .n = 1, .timeout_ms = timeout_ms};
	int r = buffer_hold_giver(c, m, b);

	if (r != 0 || first_user(m) == 0 || MUTATION(hand_over_without_wait))
		return r;
	r = stream_wait(c, b->mapping, stream, &o);
	b->ordered = o.how;
	return r;
}

static int wait_for_fences(share_client *c, const struct wire_grant *m, void *stream,
			   int64_t deadline, share_buffer *b)
{
	int r = wait_for_giver(c, m, stream, deadline_left(deadline), b);

	return r != 0 ? r : wait_for_users(c, m, stream, deadline_left(deadline), b);
}

int buffer_from_grant(share_client *c, const struct wire_grant *m, void *stream, int timeout_ms,
		      share_buffer **out)
{
	int64_t deadline = deadline_from(timeout_ms);
	share_buffer *b;
	int r;

	r = buffer_from_grant_unordered(c, m, &b);
	if (r != 0)
		return r;
	r = stream_check(c, b->segment->kind, stream);
	if (r == 0)
		r = wait_for_fences(c, m, stream, deadline, b);
	if (r != 0) {
		buffer_drop(b);
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
	r = stream_check(p->client, p->kind, stream);
	if (r != 0)
		return r;
	m.alloc.pool = p->id;
	m.alloc.size = size;
	m.alloc.alignment = options ? options->alignment : 0;
	r = rpc(p->client, &m, WIRE_GRANT, &reply);
	if (r != 0)
		return r;
	return buffer_from_grant(p->client, &reply.m.grant, stream, -1, out);
}

int share_alloc(share_pool *p, uint64_t size, void *stream, share_buffer **out)
{
	return share_alloc_with(p, size, NULL, stream, out);
}

int share_release(share_buffer *b, void *stream)
{
	share_fence fence = {0, 0};
	int r, failed = 0;
	share_client *c;
	bool fatal;
	uint64_t id;

	r = buffer_check(b);
	if (r == 0)
		r = stream_check(b->client, b->segment->kind, stream);
	if (r != 0)
		return r;
	c = b->client;
	id = b->id;
	r = MUTATION(release_without_fence) ? 0 : stream_signal(c, b->mapping, stream, &fence);
	/* the driver knows no such stream, or it is being captured */
	if (r == SHARE_EINVAL || r == SHARE_ENOTSUP)
		return r;
	if (r != 0) {
		/* no memory for a signal: being done is as good as saying so. And on a device that
		 * is broken everything is over; otherwise the work may still run. */
		failed = stream_synchronize(c, b->mapping, stream, &fatal);
		if (failed && !fatal)
			return failed;
		fence = (share_fence){0, 0};
	}
	r = 0;
	/* The fence before the reference: whoever gives the last one up must find it told. Alone we
	 * may say both at once. */
	if (fence.timeline && atomic_load_explicit(&b->refs, memory_order_acquire) > 1) {
		r = send_release(c, id, 0, &fence);
		fence = (share_fence){0, 0};
	}
	if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1) {
		buffer_free(b);
		r = send_release(c, id, 1, &fence);
		client_unref(c);
	}
	return failed ? failed : r;
}

share_buffer *share_retain(share_buffer *b)
{
	if (b)
		atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
	return b;
}

void *share_ptr(share_buffer *b)
{
	if (!b || client_is_forked(b->client))
		return NULL;
	return (char *)b->mapping->address + b->offset;
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

int share_buffer_get_info(share_buffer *b, share_buffer_info *out)
{
	const struct segment *s;
	int r = buffer_check(b);

	if (r == 0 && (!out || out->size != sizeof(*out)))
		r = fail(SHARE_EINVAL, "out is NULL or was not initialised");
	if (r != 0)
		return r;
	s = b->segment;
	*out = (share_buffer_info){
	    .size = sizeof(*out),
	    .kind = s->kind->name,
	    .device = s->kind->on_device ? s->device : NULL,
	    .ordinal = s->kind->on_device ? b->mapping->ordinal : -1,
	    .segment = s->id,
	    .segment_size = s->size,
	    .offset = b->offset,
	    .ordered = b->ordered,
	};
	return 0;
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
