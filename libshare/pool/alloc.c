/* SPDX-License-Identifier: MIT */

/* Allocating: from what is kept here, or else from the broker. */

#include <string.h>

#include <share/private/core.h>

#include "base/clock.h"
#include "base/probe.h"
#include "libshare/pool/inside.h"
#include "libshare/program/range.h"

/* As ALLOC says it. */
static uint32_t patience(int timeout_ms)
{
	return timeout_ms < 0 ? 0 : (uint32_t)timeout_ms + 1;
}

/* What came along with the first goes into the magazine. Where there is no memory for a handle, the
 * block goes back at once. */
static void keep_more(share_pool *p, const struct wire_grant *m, uint64_t block)
{
	struct wire_grant one = *m;
	struct wire_more more;
	share_buffer *b;

	one.fences = one.pages = one.more = one.tensor = (struct wire_bytes){0};
	one.flags = 0;
	for (uint32_t at = 0; at + sizeof(more) <= m->more.size; at += sizeof(more)) {
		memcpy(&more, (const char *)m->more.data + at, sizeof(more));
		one.buffer = more.buffer;
		one.offset = more.offset;
		if (buffer_from_grant_unordered(p->client, &one, &b) != 0)
			continue;
		buffer_is_ours(b);
		atomic_store_explicit(&b->refs, 0, memory_order_relaxed);
		magazine_adopt(p->magazine, b, block);
		magazine_put(p->magazine, b);
	}
}

/* From the broker, for the magazine to keep later. 1: not this size, or there is no room for as
 * much as a magazine's blocks have. */
static int refill(share_pool *p, uint64_t size, int timeout_ms, void *stream, share_buffer **out)
{
	struct wire_message m = {.type = WIRE_ALLOC};
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	share_buffer *b;
	uint64_t block;
	int r;

	if (!magazine_refill(p->magazine, size, &block, &m.alloc.count))
		return 1;
	m.alloc.pool = p->id;
	m.alloc.size = block;
	m.alloc.flags = WIRE_ALLOC_KEEPS;
	m.alloc.patience = patience(timeout_ms);
	r = rpc(p->client, &m, &reply);
	if (r == SHARE_ENOMEM || r == SHARE_EQUOTA || r == SHARE_EAGAIN) {
		magazines_flush(p->client);
		buffers_cooled(p->client, false);
		/* it may have come back meanwhile, with its users */
		b = magazine_take(p->magazine, size, stream);
		if (!b)
			return 1;
		*out = b;
		return 0;
	}
	if (r == SHARE_ENOENT)
		magazine_end(p->magazine);
	if (r != 0)
		return r;
	keep_more(p, &reply.m.grant, block);
	r = buffer_from_grant(p->client, &reply.m.grant, stream, timeout_ms, out);
	if (r != 0)
		return r;
	buffer_is_ours(*out);
	(*out)->size = size;
	magazine_adopt(p->magazine, *out, block);
	return 0;
}

static int alloc_exactly(share_pool *p, uint64_t size, uint64_t alignment, int timeout_ms,
			 void *stream, share_buffer **out)
{
	struct wire_message m = {.type = WIRE_ALLOC};
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	int r;

	m.alloc.pool = p->id;
	m.alloc.size = size;
	m.alloc.alignment = alignment;
	m.alloc.patience = patience(timeout_ms);
	r = rpc(p->client, &m, &reply);
	if (r == 0)
		r = buffer_from_grant(p->client, &reply.m.grant, stream, timeout_ms, out);
	if (r == 0)
		buffer_is_ours(*out);
	return r;
}

/* What is kept has the pool's; whether any other is possible is the broker's to say. */
static bool is_as_kept(const share_pool *p, uint64_t alignment)
{
	return alignment <= p->info.alignment && (alignment & (alignment - 1)) == 0;
}

/* What there was none of here. */
static __attribute__((noinline)) int alloc_from_broker(share_pool *p, uint64_t size,
						       const share_alloc_options *o, bool as_kept,
						       void *stream, share_buffer **out)
{
	int64_t deadline = deadline_from(o ? o->timeout_ms : -1);
	int r = 1;

	if (as_kept) {
		buffers_cooled(p->client, false);
		r = refill(p, size, deadline_left(deadline), stream, out);
	}
	if (r == 1)
		r = alloc_exactly(p, size, o ? o->alignment : 0, deadline_left(deadline), stream,
				  out);
	return r == SHARE_ETIMEDOUT && o && o->timeout_ms == 0 ? SHARE_EAGAIN : r;
}

static inline __attribute__((always_inline)) int alloc(share_pool *p, uint64_t size,
						       const share_alloc_options *options,
						       void *stream, share_buffer **out)
{
	share_alloc_options o;
	share_buffer *b;
	bool as_kept;
	int r = pool_resolve(&p);

	if (r == 0 && !out)
		r = fail(SHARE_EINVAL, "out is NULL");
	if (r == 0 && options)
		r = struct_in(share_alloc_options, &o, options);
	if (r == 0 && options && o.timeout_ms < -1)
		r = fail(SHARE_EINVAL, "a time limit is -1, 0, or milliseconds");
	if (r == 0 && options && o.reserved)
		r = fail(SHARE_EINVAL, "the member reserved is not 0");
	if (r == 0 && options && o.done && !o.memory)
		r = fail(SHARE_EINVAL, "there is no memory of which done() could tell");
	/* what has its memory already may be of a device in a pool that has no other */
	if (r == 0 && stream)
		r = stream_check(p->client, options && o.memory ? NULL : p->kind, stream);
	if (r != 0)
		return r;
	if (options && o.memory) {
		r = buffer_adopt(p, size, &o, stream, &b);
	} else {
		as_kept = p->magazine && is_as_kept(p, options ? o.alignment : 0);
		b = as_kept ? magazine_take(p->magazine, size, stream) : NULL;
		if (!b)
			r = alloc_from_broker(p, size, options ? &o : NULL, as_kept, stream, &b);
	}
	if (r != 0)
		return r;
	PROBE(alloc, b->id, b->size, p->id);
	*out = handle_give_anew(b);
	return 0;
}

int share_alloc_with(share_pool *p, uint64_t size, const share_alloc_options *options, void *stream,
		     share_buffer **out)
{
	RANGE("share_alloc", size);
	HAZARDS;
	return alloc(p, size, options, stream, out);
}

int share_try_alloc(share_pool *p, uint64_t size, share_buffer **out)
{
	HAZARDS;
	share_buffer *b;
	int r = pool_resolve(&p);

	if (r == 0 && !out)
		r = fail(SHARE_EINVAL, "out is NULL");
	if (r != 0)
		return r;
	b = p->magazine ? magazine_take_at_hand(p->magazine, size) : NULL;
	if (!b)
		return fail_constant(SHARE_EAGAIN, "there is nothing of that size at hand");
	PROBE(alloc, b->id, b->size, p->id);
	*out = handle_give_anew(b);
	return 0;
}
