/* SPDX-License-Identifier: MIT */

/*
 * Buffers go back to the broker, with the fences that the next user has to wait for. Those of other
 * processes' timelines the broker does not take from us: then it is told when they are reached.
 */

#include "libshare/buffer/inside.h"

/* The segment before the message: once the broker has that, it may want the segment back. */
static int finish(share_buffer *b)
{
	share_client *c = b->client;
	uint64_t id = b->id;
	int r = 0;

	/* The device would say nothing of work that may still run: then this process keeps the
	 * memory until it ends. */
	if (b->uses.late.pending) {
		order_never_ends(c);
		id = 0;
	}
	/*
	 * What other processes still do with it the broker was not told. It looks after that when
	 * the channel ends by which they got it, if we have the lease until then; and that the
	 * lease goes with the connection at the latest, which outlives the channel.
	 */
	if (b->uses.fences && !uses_are_over(b))
		id = 0;
	buffer_free(b);
	if (id)
		r = buffer_send_release(c, id, 1, &(share_fence){0, 0});
	client_unref(c);
	return r;
}

/* Those of our own timelines. True when there are others. */
static bool tell_uses(share_buffer *b)
{
	struct fences *f = b->uses.fences;
	share_client *c = b->client;

	for (size_t i = 0; f && i < f->n;) {
		share_fence fence;

		if (f->all[i].peer) {
			i++;
			continue;
		}
		fence.timeline = WIRE_TIMELINE(c->page_id, f->all[i].slot);
		fence.value = f->all[i].value;
		buffer_send_release(c, b->id, 0, &fence);
		fences_drop_at(f, i);
	}
	return f && f->n > 0;
}

static void cool(share_buffer *b)
{
	share_client *c = b->client;
	bool ending;

	buffers_lock_uses(c);
	ending = atomic_load(&c->buffers->ending);
	if (!ending) {
		b->next = c->buffers->cooling.first;
		c->buffers->cooling.first = b;
		atomic_fetch_add_explicit(&c->buffers->cooling.n, 1, memory_order_relaxed);
	}
	buffers_unlock_uses(c);
	if (ending)
		finish(b);
	else
		rpc_leave_chore(c);
}

int buffer_give_back(share_buffer *b)
{
	/* what cannot be signaled now may be later: a capture ends */
	if (!uses_are_over(b) && (uses_signal(b) != 0 || tell_uses(b))) {
		cool(b);
		return 0;
	}
	return finish(b);
}

void buffers_cooled(share_client *c, bool all)
{
	share_buffer *b, *later = NULL, **end = &later;
	unsigned n = 0;

	if (atomic_load_explicit(&c->buffers->cooling.n, memory_order_relaxed) == 0)
		return;
	DETAIL_STAYS;
	client_ref(c);
	buffers_lock_uses(c);
	b = c->buffers->cooling.first;
	c->buffers->cooling.first = NULL;
	atomic_store_explicit(&c->buffers->cooling.n, 0, memory_order_relaxed);
	buffers_unlock_uses(c);
	while (b) {
		share_buffer *next = b->next;
		bool over = uses_are_over(b);

		b->next = NULL;
		if (!over && b->uses.late.pending && uses_signal(b) == 0)
			over = !tell_uses(b);
		if (over || all) {
			finish(b);
		} else {
			*end = b;
			end = &b->next;
			n++;
		}
		b = next;
	}
	if (later) {
		buffers_lock_uses(c);
		*end = c->buffers->cooling.first;
		c->buffers->cooling.first = later;
		atomic_fetch_add_explicit(&c->buffers->cooling.n, n, memory_order_relaxed);
		buffers_unlock_uses(c);
		rpc_leave_chore(c);
	}
	client_unref(c);
}

bool buffers_cooled_meanwhile(share_client *c)
{
	struct cooling *cooling = &c->buffers->cooling;
	share_buffer *b, **at = &cooling->first, *over = NULL;
	bool left;

	if (atomic_load_explicit(&cooling->n, memory_order_relaxed) == 0)
		return true;
	if (pthread_mutex_trylock(&c->buffers->uses_lock) != 0)
		return false;
	while ((b = *at)) {
		if (!uses_are_over(b)) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		b->next = over;
		over = b;
		atomic_fetch_sub_explicit(&cooling->n, 1, memory_order_relaxed);
	}
	left = cooling->first != NULL;
	buffers_unlock_uses(c);
	while ((b = over)) {
		over = b->next;
		b->next = NULL;
		finish(b);
	}
	return !left;
}
