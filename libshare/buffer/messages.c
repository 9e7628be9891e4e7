/* SPDX-License-Identifier: MIT */

/*
 * The messages that are in flight with a buffer. Each is a reference of this process, of which the
 * broker knows nothing. Who waits until there is none has the channels' threads look now for those
 * that are back, and is told of the last one whenever it is acknowledged.
 */

#include "base/clock.h"
#include "base/mutation.h"
#include "libshare/buffer/inside.h"

unsigned messages_in_flight(share_buffer *b)
{
	return MUTATION(reclaim_before_messages) ? 0 : atomic_load(&b->messages);
}

int messages_wait(share_buffer *b, int64_t deadline)
{
	share_client *c = b->client;
	uint64_t look;
	unsigned n;
	bool lost;
	int r = 0;

	if (messages_in_flight(b) == 0)
		return 0;
	pthread_mutex_lock(&c->lock);
	atomic_fetch_add(&c->buffers->awaited.n, 1);
	look = buffer_carrier.look(c);
	while ((n = messages_in_flight(b)) > 0 && !c->lost && r == 0) {
		int left = deadline_left(deadline);

		/* that takes no time: what was acknowledged before this call is back after it */
		if (left == 0 && buffer_carrier.have_looked(c, look))
			break;
		if (left == 0)
			bell_wait(&c->arrived, &c->lock, -1);
		else
			r = wait_at_bell(c, &c->arrived, &c->lock, left);
	}
	atomic_fetch_sub(&c->buffers->awaited.n, 1);
	lost = c->lost;
	pthread_mutex_unlock(&c->lock);
	if (n == 0 || r != 0)
		return n == 0 ? 0 : r;
	return lost ? client_lost(c)
		    : fail(SHARE_ETIMEDOUT, "%u message%s with the buffer %s still in flight", n,
			   plural(n), n == 1 ? "is" : "are");
}

bool buffers_are_awaited(share_client *c)
{
	return atomic_load(&c->buffers->awaited.n) > 0;
}

void messages_stop_locked(struct message_wait *w)
{
	LIST_REMOVE(w, link);
	atomic_fetch_sub(&w->buffer->client->buffers->awaited.n, 1);
	w->waits = false;
}

bool messages_wait_locked(struct message_wait *w)
{
	share_client *c = w->buffer->client;

	/* whoever counts down looks at the one after the other is changed, as we do */
	atomic_fetch_add(&c->buffers->awaited.n, 1);
	LIST_INSERT_HEAD(&c->buffers->awaited.list, w, link);
	w->waits = true;
	if (messages_in_flight(w->buffer) > 0 && !c->lost) {
		buffer_carrier.look(c);
		return true;
	}
	messages_stop_locked(w);
	return false;
}

void messages_lose_broker(share_client *c)
{
	struct message_wait *w;

	while ((w = LIST_FIRST(&c->buffers->awaited.list))) {
		messages_stop_locked(w);
		w->over(w);
	}
}

/* The last message that was in flight with @b is back. */
static void look(share_buffer *b)
{
	share_client *c = b->client;
	struct message_wait *w, *next;

	pthread_mutex_lock(&c->lock);
	for (w = LIST_FIRST(&c->buffers->awaited.list); w; w = next) {
		next = LIST_NEXT(w, link);
		if (w->buffer != b)
			continue;
		messages_stop_locked(w);
		w->over(w);
	}
	bell_ring(&c->arrived);
	pthread_mutex_unlock(&c->lock);
}

/* Whoever has the only reference is alone, and needs no atomic instruction to count. */
static bool is_alone(share_buffer *b)
{
	return atomic_load_explicit(&b->refs, memory_order_acquire) == 1;
}

void buffer_message_sent(share_buffer *b)
{
	if (is_alone(b))
		atomic_store_explicit(&b->messages,
				      atomic_load_explicit(&b->messages, memory_order_relaxed) + 1,
				      memory_order_relaxed);
	else
		atomic_fetch_add(&b->messages, 1);
}

void buffer_message_over(share_buffer *b)
{
	if (is_alone(b))
		atomic_store_explicit(&b->messages,
				      atomic_load_explicit(&b->messages, memory_order_relaxed) - 1,
				      memory_order_relaxed);
	else if (atomic_fetch_sub(&b->messages, 1) == 1 && buffers_are_awaited(b->client))
		look(b);
}
