/* SPDX-License-Identifier: MIT */

/*
 * Ordering the work of CUDA streams. As a rule the GPU does this: a signal makes the stream write
 * the next value into a timeline of this process when the work before it is done, and a wait makes
 * the stream wait for a value in a timeline of another process. The host blocks for neither.
 *
 * The host does it instead in three cases. Where the device cannot do it, or the program does not
 * want it, the host waits at each signal until the stream is done, so the fence is reached when it
 * is handed out. When no more streams may be parked (parked.h), the host waits for the fence. And
 * when the broker is gone, the host waits for fences of other processes, because nobody would
 * poison the timeline that a stream waits for.
 *
 * A stream that is being captured into a graph is refused wherever something would have to be
 * enqueued (memory/stream.h). The graph would write and wait for the same value at each launch, so
 * at the second launch its wait would be over at once, and its signal would take the timeline back
 * to an old value; CUDA has no stream operation that adds to a value. An acquire that has nothing
 * to wait for enqueues nothing, so it is not refused.
 */

#include "base/clock.h"
#include "base/mutation.h"
#include "libshare/order/inside.h"
#include "libshare/order/parked.h"
#include "libshare/program/copies.h"

#define LAST_SPECIAL_STREAM 2 /* CU_STREAM_LEGACY, CU_STREAM_PER_THREAD: plain numbers */
#define FINISH_MS           10000
#define WAITS_AT_ONCE       64

bool gpu_stream_is_possible(const void *stream)
{
	return (uintptr_t)stream <= LAST_SPECIAL_STREAM || memory_driver_is_loaded();
}

int gpu_stream_synchronize(const struct memory_mapping *m, void *stream, bool *fatal)
{
	struct failure failure;
	int r = memory_stream_synchronize(m, stream, &failure);

	*fatal = r != 0 && failure.fatal;
	return r != 0 ? fail(r, "%s", failure.text) : 0;
}

static size_t cell(uint32_t slot)
{
	return slot * sizeof(struct timeline_slot);
}

/* ------------------------------------------------------------------------------------------- */
/* Signals                                                                                     */

static int write_next(share_client *c, struct gpu_order *g, struct memory_stream *s,
		      struct gpu_timeline *t, share_fence *out)
{
	struct failure failure;
	uint64_t value;
	int r;

	pthread_mutex_lock(&t->lock);
	/* counted once it is enqueued: a value that nobody writes would be waited for at the end */
	value = slot_last(c, t->slot) + 1;
	r = memory_stream_write(s, &g->own, cell(t->slot), value - MUTATION(fence_before_signal),
				&failure);
	if (r == 0)
		slot_next(c, t->slot);
	pthread_mutex_unlock(&t->lock);
	if (r != 0)
		return fail(r, "%s", failure.text);
	*out = (share_fence){WIRE_TIMELINE(c->page_id, t->slot), value};
	return 0;
}

static int signal_by_host(share_client *c, const struct memory_mapping *m, void *stream,
			  share_fence *out)
{
	bool fatal;
	int r = MUTATION(fallback_does_not_wait) ? 0 : gpu_stream_synchronize(m, stream, &fatal);

	if (r != 0)
		return r;
	atomic_fetch_add_explicit(&c->order->stats.host_signals, 1, memory_order_relaxed);
	*out = (share_fence){0, 0};
	return 0;
}

int gpu_stream_signal(share_client *c, const struct memory_mapping *m, void *stream,
		      share_fence *out)
{
	struct gpu_order *g = gpu_order_of(c);
	struct failure failure;
	struct memory_stream s;
	struct gpu_timeline *t;
	int r = 0;

	if (!g)
		return signal_by_host(c, m, stream, out);
	r = memory_stream_open(m->ordinal, stream, &s, &failure);
	if (r != 0)
		return fail(r, "%s", failure.text);
	t = gpu_order_take(c, g, &s);
	if (t) {
		r = write_next(c, g, &s, t, out);
		gpu_order_put(t);
	}
	memory_stream_close(&s);
	if (!t)
		return signal_by_host(c, m, stream, out);
	if (r == 0)
		atomic_fetch_add_explicit(&c->order->stats.signals, 1, memory_order_relaxed);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Waits                                                                                       */

/* Nobody poisons the timelines of the dead any more, so their death has to be seen here. */
static bool is_to_come(share_client *c, const struct held_fence *f, bool broker_lost)
{
	if (!f->page || timeline_query(f->page, f->slot, f->value) != TIMELINE_PENDING)
		return false;
	return !broker_lost || fence_state(c, f) == TIMELINE_PENDING;
}

/* Without what is reached, and what the stream comes after anyway: its own work, and what it waits
 * for already. */
static size_t pick_pending(share_client *c, struct gpu_order *g, const struct memory_stream *s,
			   struct ordering *o, struct held_fence *out)
{
	const struct gpu_timeline *own = gpu_order_find(g, s->id);
	bool lost = client_is_lost(c);
	size_t n = 0;

	for (size_t i = 0; i < o->n; i++) {
		const struct held_fence *f = &o->fences[i];

		if (!is_to_come(c, f, lost) || (!f->peer && own && own->slot == f->slot))
			continue;
		if (!parked_waits_for(s->ordinal, s->id, f))
			out[n++] = *f;
		else if (o->how < SHARE_ORDERED_ON_STREAM)
			o->how = SHARE_ORDERED_ON_STREAM;
	}
	return n;
}

/* What is to be enqueued. */
struct batch {
	struct held_fence fences[WAITS_AT_ONCE];
	struct memory_wait waits[WAITS_AT_ONCE];
	size_t n;
};

/* Without a broker nobody would release the stream when one of their owners dies. */
static bool any_is_of_a_peer(const struct batch *b)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->fences[i].peer)
			return true;
	return false;
}

/* With the lock of @g held. False when the host has to wait. */
static bool prepare(share_client *c, struct gpu_order *g, const struct memory_stream *s,
		    struct ordering *o, struct batch *b)
{
	if (!gpu_order_is_able(g, s->ordinal))
		return false;
	b->n = pick_pending(c, g, s, o, b->fences);
	if (client_is_lost(c) && any_is_of_a_peer(b))
		return false;
	for (size_t i = 0; i < b->n; i++) {
		b->waits[i].offset = cell(b->fences[i].slot);
		b->waits[i].value = b->fences[i].value;
		b->waits[i].page = gpu_order_page(c, g, s->ordinal, &b->fences[i]);
		if (!b->waits[i].page)
			return false;
	}
	return b->n == 0 || parked_enter(c, s->ordinal, s->id, b->fences, b->n);
}

/* 1 when the host has to wait. */
static int wait_on(share_client *c, struct gpu_order *g, struct memory_stream *s,
		   struct ordering *o)
{
	struct failure failure;
	struct batch b;
	bool prepared;
	int r;

	pthread_mutex_lock(&g->lock);
	prepared = prepare(c, g, s, o, &b);
	pthread_mutex_unlock(&g->lock);
	if (!prepared)
		return 1;
	atomic_fetch_add_explicit(&c->order->stats.waits_saved, o->n - b.n, memory_order_relaxed);
	if (b.n == 0)
		return 0;
	r = memory_stream_wait(s, b.waits, b.n, &failure);
	parked_enqueued(s->ordinal, s->id, b.fences, b.n, r == 0);
	if (r != 0)
		return fail(r, "%s", failure.text);
	if (o->how < SHARE_ORDERED_ON_STREAM)
		o->how = SHARE_ORDERED_ON_STREAM;
	atomic_fetch_add_explicit(&c->order->stats.waits, b.n, memory_order_relaxed);
	return 0;
}

static int wait_by_host(share_client *c, struct ordering *o)
{
	if ((c->order->never_block || o->may_not_block) && !copies_is_first())
		return fail(SHARE_EAGAIN, "the host would have to wait: " COPIES_REASON);
	if (c->order->never_block || o->may_not_block)
		return fail(SHARE_EAGAIN,
			    "the host would have to wait, as this GPU cannot, as the broker is "
			    "gone, or as %u of this process's streams wait for others already and "
			    "more could stop all of them: try again later, or raise "
			    "CUDA_DEVICE_MAX_CONNECTIONS",
			    memory_stream_connections() / 2);
	atomic_fetch_add_explicit(&c->order->stats.host_waits, 1, memory_order_relaxed);
	return MUTATION(fallback_skips_wait) ? 0 : ordering_wait_here(c, o);
}

/* At most WAITS_AT_ONCE fences. */
static int wait_some(share_client *c, const struct memory_mapping *m, void *stream,
		     struct ordering *o)
{
	struct gpu_order *g = gpu_order_of(c);
	struct failure failure;
	struct memory_stream s;
	int r;

	if (!g)
		return wait_by_host(c, o);
	r = memory_stream_open(m->ordinal, stream, &s, &failure);
	if (r != 0)
		return fail(r, "%s", failure.text);
	r = wait_on(c, g, &s, o);
	memory_stream_close(&s);
	return r > 0 ? wait_by_host(c, o) : r;
}

static bool all_reached(const struct ordering *o)
{
	for (size_t i = 0; i < o->n; i++)
		if (o->fences[i].page && timeline_query(o->fences[i].page, o->fences[i].slot,
							o->fences[i].value) == TIMELINE_PENDING)
			return false;
	return true;
}

int gpu_stream_wait(share_client *c, const struct memory_mapping *m, void *stream,
		    struct ordering *o)
{
	int64_t deadline = deadline_from(o->timeout_ms);
	struct ordering part = *o;
	int r = 0;

	if (all_reached(o)) {
		atomic_fetch_add_explicit(&c->order->stats.waits_saved, o->n, memory_order_relaxed);
		return 0;
	}
	for (size_t i = 0; r == 0 && i < o->n; i += part.n) {
		part.fences = o->fences + i;
		part.n = o->n - i < WAITS_AT_ONCE ? o->n - i : WAITS_AT_ONCE;
		part.timeout_ms = deadline_left(deadline);
		r = wait_some(c, m, stream, &part);
	}
	o->how = part.how;
	return r;
}

bool gpu_stream_blocks(share_client *c, const struct memory_mapping *m, void *stream)
{
	struct gpu_order *g = gpu_order_of(c);
	struct failure failure;
	struct memory_stream s;
	bool blocks;

	if (!g)
		return true;
	if (memory_stream_open(m->ordinal, stream, &s, &failure) != 0)
		return false; /* it fails, at once */
	pthread_mutex_lock(&g->lock);
	blocks = !gpu_order_is_able(g, s.ordinal);
	pthread_mutex_unlock(&g->lock);
	blocks = blocks || !parked_has_room(s.ordinal, s.id);
	memory_stream_close(&s);
	return blocks;
}

/* ------------------------------------------------------------------------------------------- */

/* Whether the GPU has done its last write to a timeline of ours. Who poisons the page, as a broker
 * does that ends before us, says nothing about that: the write still comes, and takes the place of
 * the poison. */
static bool gpu_has_written(share_client *c, uint32_t slot, int64_t deadline)
{
	for (;;) {
		switch (timeline_wait(c->page, slot, slot_last(c, slot), deadline_left(deadline))) {
		case TIMELINE_REACHED:
			return true;
		case TIMELINE_PENDING:
			return false;
		case TIMELINE_DEAD:
			if (deadline_left(deadline) == 0)
				return false;
			nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
		}
	}
}

bool gpu_stream_finish(share_client *c)
{
	int64_t deadline = deadline_from(FINISH_MS);
	const struct gpu_order *g = &c->order->gpu;

	for (size_t i = 0; i < g->n; i++)
		if (!gpu_has_written(c, g->timelines[i].slot, deadline))
			return false;
	return true;
}
