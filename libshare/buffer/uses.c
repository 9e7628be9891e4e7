/* SPDX-License-Identifier: MIT */

/*
 * The uses of a block that outlive a handle. In a magazine nobody else looks after them: the broker
 * is not told, and the block's next user may be another stream. A fence for each would do, but to
 * have a GPU signal one costs more than all the rest of an allocation, and is for nothing when the
 * same stream uses the block again. So work on a CUDA stream is only noted; when somebody else
 * wants the block, one signal behind everything in the stream's context makes up for it. The stream
 * itself cannot be asked then, as the program may have destroyed it.
 */

#include <errno.h>
#include <stdlib.h>

#include "base/mutation.h"
#include "libshare/buffer/inside.h"

void buffers_lock_uses(share_client *c)
{
	pthread_mutex_lock(&c->buffers->uses_lock);
}

void buffers_unlock_uses(share_client *c)
{
	pthread_mutex_unlock(&c->buffers->uses_lock);
}

static bool is_on_gpu(const share_buffer *b)
{
	return b->mapping->kind->on_device;
}

uint64_t uses_stream(share_buffer *b, void *stream)
{
	if (!is_on_gpu(b) || host_stream_is(b->client, stream))
		return 0;
	return gpu_late_stream(b->client, b->mapping, stream);
}

/* ------------------------------------------------------------------------------------------- */

void uses_add(share_buffer *b, struct held_fence *f)
{
	share_client *c = b->client;
	if (fence_state(c, f) != TIMELINE_PENDING) {
		fence_drop(f);
		return;
	}
	if (!b->uses.fences)
		b->uses.fences = calloc(1, sizeof(*b->uses.fences));
	if (!b->uses.fences || !fences_add(b->uses.fences, f)) {
		fence_block(c, f, -1);
		fence_drop(f);
	}
}

void uses_add_all(share_buffer *b, struct fences *f)
{
	for (size_t i = 0; i < f->n; i++)
		uses_add(b, &f->all[i]);
	f->n = 0;
	fences_deinit(f);
}

static void add_own(share_buffer *b, const share_fence *fence)
{
	struct held_fence f = {
	    .page = b->client->page,
	    .slot = WIRE_TIMELINE_SLOT(fence->timeline),
	    .value = fence->value,
	};

	if (fence->timeline)
		uses_add(b, &f);
}

/* ------------------------------------------------------------------------------------------- */

static int note_with_signal(share_buffer *b, void *stream)
{
	share_fence fence = {0, 0};
	bool fatal;
	int r = stream_end(b->client, b->mapping, stream, &fence, &fatal);

	if (r == 0)
		add_own(b, &fence);
	return fatal ? 0 : r; /* on a device that is broken everything is over */
}

int uses_note(share_buffer *b, void *stream)
{
	share_client *c = b->client;
	int r;

	if (MUTATION(release_without_fence))
		return 0;
	if (!is_on_gpu(b) || host_stream_is(c, stream))
		return stream ? note_with_signal(b, stream) : 0;
	r = gpu_late_note(c, b->mapping, stream, &b->uses.late);
	if (r == LATE_ELSEWHERE) {
		r = uses_signal(b);
		if (r == 0)
			r = gpu_late_note(c, b->mapping, stream, &b->uses.late);
	}
	return r == LATE_IMPOSSIBLE ? note_with_signal(b, stream) : r;
}

int uses_signal(share_buffer *b)
{
	share_fence fence = {0, 0};
	bool fatal;
	int r;

	if (!b->uses.late.pending)
		return 0;
	r = gpu_late_signal(b->client, b->mapping, &b->uses.late, &fence, &fatal);
	if (r != 0)
		return fatal ? 0 : r;
	add_own(b, &fence);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */

bool uses_are_over(share_buffer *b)
{
	struct fences *f = b->uses.fences;
	share_client *c = b->client;

	for (size_t i = 0; f && i < f->n;) {
		if (fence_state(c, &f->all[i]) == TIMELINE_PENDING) {
			i++;
			continue;
		}
		fences_drop_at(f, i);
	}
	if (f && f->n == 0) {
		fences_deinit(f);
		free(f);
		b->uses.fences = NULL;
	}
	return !b->uses.fences && !b->uses.late.pending;
}

/* Only for another stream that is not of the same context does it take a fence. */
static int order_late(share_buffer *b, void *stream)
{
	struct late *l = &b->uses.late;
	uint64_t id = uses_stream(b, stream);
	int r = LATE_IMPOSSIBLE;

	if (id && id == l->mark.stream)
		return 0;
	if (id)
		r = gpu_late_wait(b->client, stream, l);
	if (r == 0)
		b->ordered = SHARE_ORDERED_ON_STREAM;
	return r == LATE_IMPOSSIBLE ? uses_signal(b) : r;
}

int uses_order(share_buffer *b, void *stream)
{
	struct uses *u = &b->uses;
	int r = 0;

	if (u->late.pending)
		r = order_late(b, stream);
	if (r != 0 || !u->fences || uses_are_over(b) || !u->fences)
		return r;
	return stream_wait_for_users(b->client, b->mapping, stream, u->fences, -1, &b->ordered);
}

int uses_hold(share_buffer *b, struct fences *out)
{
	share_client *c = b->client;
	const struct fences *f;
	int r;

	buffers_lock_uses(c);
	r = uses_signal(b);
	f = b->uses.fences;
	for (size_t i = 0; r == 0 && f && i < f->n; i++) {
		struct held_fence again = fence_hold_again(&f->all[i]);

		if (!fences_add(out, &again)) {
			fence_drop(&again);
			r = fail_system(-ENOMEM, "ordering a buffer");
		}
	}
	buffers_unlock_uses(c);
	return r;
}

void uses_drop(share_buffer *b)
{
	if (b->uses.fences) {
		fences_deinit(b->uses.fences);
		free(b->uses.fences);
	}
	gpu_late_forget(b->client, &b->uses.late);
	b->uses = (struct uses){0};
}
