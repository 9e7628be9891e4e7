/* SPDX-License-Identifier: MIT */

/*
 * Letting go of buffers. A block that nobody else knows is kept in its magazine, with what still
 * uses it; any other goes back to the broker (give_back.c).
 */

#include <share/private/core.h>

#include "base/mutation.h"
#include "base/probe.h"
#include "libshare/buffer/inside.h"
#include "libshare/buffer/magazine.h"
#include "libshare/program/range.h"

static bool is_private(const share_buffer *b)
{
	return b->home &&
	       (!atomic_load_explicit(&b->known, memory_order_relaxed) || MUTATION(recycle_shared));
}

/* Alone there is nobody to count against. */
int buffer_let_go(share_buffer *b)
{
	if (atomic_load_explicit(&b->refs, memory_order_acquire) == 1)
		atomic_store_explicit(&b->refs, 0, memory_order_relaxed);
	else if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) > 1)
		return 0;
	return is_private(b) ? magazine_put(b->home, b) : buffer_give_back(b);
}

/* Alone we need no lock: nobody else has a reference to use. */
static bool lock_uses(share_buffer *b)
{
	if (atomic_load_explicit(&b->refs, memory_order_acquire) == 1)
		return false;
	buffers_lock_uses(b->client);
	return true;
}

static int release_private(share_buffer *b, void *stream, bool *kept)
{
	share_client *c = b->client;
	bool locked;
	int r;

	locked = lock_uses(b);
	r = uses_note(b, stream);
	if (locked)
		buffers_unlock_uses(c);
	*kept = r != 0;
	return r != 0 ? r : buffer_let_go(b);
}

/* Others know it, and what they do to it the broker orders: so it is told at once. */
static int release_known(share_buffer *b, void *stream, bool *kept)
{
	share_client *c = b->client;
	share_fence fence = {0, 0};
	int r, failed = 0, told = 0;
	bool fatal = false;

	if (!MUTATION(release_without_fence))
		failed = stream_end(c, b->mapping, stream, &fence, &fatal);
	/* on a device that is broken everything is over; otherwise the work may still run */
	*kept = failed && !fatal;
	if (*kept)
		return failed;
	/* The fence before the reference: whoever gives the last one up must find it told. Alone we
	 * may say both at once, if that is all there is to say. */
	if (fence.timeline && (atomic_load_explicit(&b->refs, memory_order_acquire) > 1 ||
			       b->uses.fences || b->uses.late.pending)) {
		told = buffer_send_release(c, b->id, 0, &fence);
		fence = (share_fence){0, 0};
	}
	if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) > 1) {
		r = told;
	} else if ((b->uses.fences || b->uses.late.pending) && !MUTATION(forget_former_life)) {
		r = buffer_give_back(b);
	} else {
		uint64_t id = b->id;

		buffer_free(b);
		r = buffer_send_release(c, id, 1, &fence);
		client_unref(c);
	}
	return failed ? failed : r;
}

int buffer_release(share_buffer *b, void *stream, bool *kept)
{
	int r = client_is_forked(b->client) ? fail_fork() : 0;

	if (r == 0 && stream)
		r = stream_check(b->client, b->segment->kind, stream);
	*kept = r != 0;
	if (r != 0)
		return r;
	if (atomic_load_explicit(&b->lent, memory_order_acquire))
		return buffer_carrier.release_loan(b, stream, kept);
	return is_private(b) ? release_private(b, stream, kept) : release_known(b, stream, kept);
}

/* On host memory the calling thread's work is over when it lets go, and alone there is nothing to
 * note: the commonest case. */
static inline bool is_idle(const share_buffer *b, const void *stream)
{
	return !stream && b->plain && is_private(b) && !client_is_forked(b->client) &&
	       atomic_load_explicit(&b->refs, memory_order_acquire) == 1;
}

static __attribute__((noinline)) int release_taken(share_buffer *b, void *stream)
{
	HAZARDS;
	bool kept;
	int r = buffer_release(b, stream, &kept);

	if (kept)
		handle_keep(b);
	return r;
}

int share_release(share_buffer *b, void *stream)
{
	RANGE("share_release", 0);
	share_buffer *taken = handle_take(b, HANDLE_BUFFER);

	if (!taken)
		return handle_fault(b, HANDLE_BUFFER);
	PROBE(release, taken->id, taken->size);
	if (is_idle(taken, stream))
		return magazine_put_at_hand(taken->home, taken) ? 0
								: magazine_put(taken->home, taken);
	return release_taken(taken, stream);
}

int share_try_release(share_buffer *b)
{
	share_buffer *taken = handle_take(b, HANDLE_BUFFER);
	uint64_t id, size;

	if (!taken)
		return handle_fault(b, HANDLE_BUFFER);
	id = taken->id;
	size = taken->size;
	if (is_idle(taken, NULL) && magazine_put_at_hand(taken->home, taken)) {
		PROBE(release, id, size);
		return 0;
	}
	handle_keep(taken);
	return fail_constant(SHARE_EAGAIN,
			     "others have the buffer, or there is no room for it at hand");
}

int buffer_release_after(share_buffer *b, struct fences *f, bool shared)
{
	share_client *c = b->client;
	bool locked = lock_uses(b);

	if (shared && !MUTATION(recycle_shared))
		atomic_store_explicit(&b->known, true, memory_order_relaxed);
	if (f)
		uses_add_all(b, f);
	if (locked)
		buffers_unlock_uses(c);
	buffer_message_over(b);
	if (atomic_load_explicit(&c->buffers->cooling.n, memory_order_relaxed) > 0)
		buffers_cooled(c, false);
	return buffer_let_go(b);
}

int buffer_make_known(share_buffer *b, void *stream, share_fence *out)
{
	int r = stream_check(b->client, b->segment->kind, stream);

	if (r == 0)
		r = segment_check_memory(b->mapping);
	if (r == 0 && b->home) {
		bool locked;

		atomic_store_explicit(&b->known, true, memory_order_relaxed);
		locked = lock_uses(b);
		if ((b->uses.fences || b->uses.late.pending) && !MUTATION(known_without_order))
			r = uses_order(b, stream);
		if (locked)
			buffers_unlock_uses(b->client);
	}
	return r != 0 ? r : stream_signal(b->client, b->mapping, stream, out);
}
