/* SPDX-License-Identifier: MIT */

/* From grants to handles: what a process gets from the broker, and what that has to come after. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "libshare/buffer/inside.h"
#include "libshare/buffer/magazine.h"

int buffer_send_release(share_client *c, uint64_t id, uint32_t count, const share_fence *fence)
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
	DETAIL_STAYS;
	buffer_send_release(c, id, 1, &(share_fence){0, 0});
}

/* False without memory. */
static bool keep_tensor(share_buffer *b, const struct wire_bytes *tensor)
{
	if (tensor->size == 0)
		return true;
	b->tensor = malloc(sizeof(*b->tensor) + tensor->size);
	if (!b->tensor)
		return false;
	b->tensor->size = tensor->size;
	memcpy(b->tensor->bytes, tensor->data, tensor->size);
	return true;
}

share_buffer *buffer_new(void)
{
	return handle_new(HANDLE_BUFFER, BUFFER_ROOM);
}

int buffer_from_grant_unordered(share_client *c, const struct wire_grant *m, share_buffer **out)
{
	share_buffer *b = buffer_new();
	int r;

	if (b && !keep_tensor(b, &m->tensor)) {
		handle_free(b);
		b = NULL;
	}
	r = b ? segment_get(c, m, m->mode == SHARE_RDWR, &b->segment, &b->mapping)
	      : fail_system(-ENOMEM, "making a buffer handle");
	if (r != 0) {
		if (b)
			free(b->tensor);
		handle_free(b);
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
	segment_dump(b);
	*out = b;
	return 0;
}

void buffer_is_ours(share_buffer *b)
{
	b->ours = true;
	atomic_fetch_add_explicit(&b->segment->ours, b->size, memory_order_relaxed);
	atomic_fetch_add_explicit(&b->segment->n_ours, 1, memory_order_relaxed);
}

static void is_nobodys(share_buffer *b)
{
	uint64_t block = b->home ? block_of(b->size_class) : b->size;

	atomic_fetch_sub_explicit(&b->segment->ours, block, memory_order_relaxed);
	atomic_fetch_sub_explicit(&b->segment->n_ours, 1, memory_order_relaxed);
}

void buffer_free(share_buffer *b)
{
	share_client *c = b->client;

	if (b->ours)
		is_nobodys(b);
	fence_drop(&b->giver);
	uses_drop(b);
	segment_dump_end(b);
	segment_put(c, b->segment);
	if (b->home)
		magazine_unref(b->home);
	free(b->tensor);
	handle_free(b);
}

void buffer_drop(share_buffer *b)
{
	DETAIL_STAYS;
	share_client *c = b->client;
	uint64_t id = b->id;

	buffer_free(b);
	give_back(c, id);
	client_unref(c);
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
	uint32_t n = (uint32_t)(m->fences.size / sizeof(struct wire_fence));

	*out = (struct fences){.n = 0};
	if (MUTATION(skip_wait))
		return 0;
	for (uint32_t i = first_user(m); i < n; i++) {
		struct held_fence f;
		int r = hold(c, m, i, &f);

		/* an owner that has ended can use nothing any more */
		if (r == SHARE_EOWNERDEAD || r == SHARE_ESTALE)
			continue;
		if (r == 0 && !fences_add(out, &f)) {
			fence_drop(&f);
			r = fail_system(-ENOMEM, "ordering a buffer");
		}
		if (r != 0)
			return r;
	}
	return 0;
}

static int wait_for_users(share_client *c, const struct wire_grant *m, void *stream, int timeout_ms,
			  share_buffer *b)
{
	struct fences users;
	int r = buffer_hold_users(c, m, &users);

	if (r == 0)
		r = stream_wait_for_users(c, b->mapping, stream, &users, timeout_ms, &b->ordered);
	fences_deinit(&users);
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

int buffer_from_grant(share_client *c, const struct wire_grant *m, void *stream, int timeout_ms,
		      share_buffer **out)
{
	int64_t deadline = deadline_from(timeout_ms);
	share_buffer *b;
	int r = buffer_from_grant_unordered(c, m, &b);

	if (r != 0)
		return r;
	r = stream_check(c, b->segment->kind, stream);
	if (r == 0)
		r = wait_for_giver(c, m, stream, deadline_left(deadline), b);
	if (r == 0)
		r = wait_for_users(c, m, stream, deadline_left(deadline), b);
	if (r == 0)
		r = segment_check_memory(b->mapping);
	if (r != 0) {
		buffer_drop(b);
		return r;
	}
	*out = b;
	return 0;
}
