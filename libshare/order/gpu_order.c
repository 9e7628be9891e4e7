/* SPDX-License-Identifier: MIT */

/*
 * Timelines of streams. A timeline is a stream's as long as it has one; the stream is known by its
 * identifier, as handles are used again.
 */

#include "base/mutation.h"
#include "libshare/order/inside.h"

struct gpu_order *gpu_order_of(share_client *c)
{
	return c->order->host_fences ? NULL : &c->order->gpu;
}

void gpu_order_deinit(share_client *c, bool parked)
{
	struct gpu_order *g = &c->order->gpu;

	/* which may wait for all streams */
	if (!parked)
		memory_page_unregister(&g->own);
	for (size_t i = 0; i < g->n; i++)
		pthread_mutex_destroy(&g->timelines[i].lock);
	pthread_mutex_destroy(&g->lock);
}

bool gpu_order_is_able(struct gpu_order *g, int ordinal)
{
	uint64_t bit = UINT64_C(1) << (ordinal & (GPU_DEVICES_MAX - 1));

	if (ordinal >= GPU_DEVICES_MAX)
		return false;
	if (!(g->asked & bit)) {
		g->asked |= bit;
		if (memory_stream_ops(ordinal))
			g->able |= bit;
	}
	return g->able & bit;
}

/* ------------------------------------------------------------------------------------------- */
/* Pages                                                                                       */

/* False where the driver cannot or will not: a limit on locked memory, say. */
static bool register_own(share_client *c, struct gpu_order *g, int ordinal)
{
	struct failure failure;

	return g->own.host || memory_page_register(ordinal, c->page, TIMELINE_PAGE_SIZE, false,
						   &g->own, &failure) == 0;
}

const struct memory_page *gpu_order_page(share_client *c, struct gpu_order *g, int ordinal,
					 const struct held_fence *f)
{
	struct memory_page *gpu = f->peer ? &f->peer->gpu : NULL;
	struct failure failure;

	if (!gpu)
		return register_own(c, g, ordinal) ? &g->own : NULL;
	if (!gpu->host && memory_page_register(ordinal, (void *)(uintptr_t)f->page,
					       TIMELINE_PAGE_SIZE, true, gpu, &failure) != 0)
		return NULL;
	return gpu;
}

/* ------------------------------------------------------------------------------------------- */
/* Timelines                                                                                   */

struct gpu_timeline *gpu_order_find(struct gpu_order *g, uint64_t stream)
{
	for (size_t i = 0; i < g->n; i++)
		if (g->timelines[i].stream == stream)
			return &g->timelines[i];
	return NULL;
}

/*
 * The timeline that has not been used for longest, if everything signaled on it is reached: a value
 * that a destroyed stream has yet to write would take the timeline back behind what its next owner
 * wrote.
 */
static struct gpu_timeline *oldest_finished(share_client *c, struct gpu_order *g)
{
	struct gpu_timeline *oldest = NULL;

	for (size_t i = 0; i < g->n; i++) {
		struct gpu_timeline *t = &g->timelines[i];

		if (atomic_load_explicit(&t->users, memory_order_acquire) > 0 ||
		    (oldest && t->used >= oldest->used))
			continue;
		if (timeline_query(c->page, t->slot, slot_last(c, t->slot)) == TIMELINE_REACHED ||
		    MUTATION(reuse_busy_timeline))
			oldest = t;
	}
	return oldest;
}

/* The stream's, which may be a new one; NULL when there is none to be had. */
static struct gpu_timeline *take(share_client *c, struct gpu_order *g, uint64_t stream)
{
	struct gpu_timeline *t = gpu_order_find(g, stream);
	uint32_t slot;

	if (t)
		return t;
	if (g->n < GPU_TIMELINES && slot_take(c, &slot) == 0) {
		t = &g->timelines[g->n++];
		t->slot = slot;
		pthread_mutex_init(&t->lock, NULL);
		timeline_set_by_gpu(c->page, slot, true);
	} else {
		t = oldest_finished(c, g);
	}
	if (t)
		t->stream = stream;
	return t;
}

struct gpu_timeline *gpu_order_take(share_client *c, struct gpu_order *g,
				    const struct memory_stream *s)
{
	struct gpu_timeline *t = NULL;

	pthread_mutex_lock(&g->lock);
	if (gpu_order_is_able(g, s->ordinal) && register_own(c, g, s->ordinal))
		t = take(c, g, s->id);
	if (t) {
		t->used = ++g->clock;
		atomic_fetch_add_explicit(&t->users, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&g->lock);
	return t;
}

/* Who gives the timeline to another stream after this knows what was signaled on it. */
void gpu_order_put(struct gpu_timeline *t)
{
	atomic_fetch_sub_explicit(&t->users, 1, memory_order_release);
}

bool gpu_order_can_signal(share_client *c, int ordinal)
{
	struct gpu_order *g = gpu_order_of(c);
	bool can;

	if (!g)
		return false;
	pthread_mutex_lock(&g->lock);
	can = gpu_order_is_able(g, ordinal) && register_own(c, g, ordinal);
	pthread_mutex_unlock(&g->lock);
	return can;
}
