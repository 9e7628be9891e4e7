/* SPDX-License-Identifier: MIT */

/* Marks that become fences: the devices' helpers, made when first needed. */

#include "base/mutation.h"
#include "libshare/order/inside.h"

static struct memory_marks *make(share_client *c, struct gpu_late *late, int ordinal)
{
	struct memory_marks *k;
	struct failure failure;

	pthread_mutex_lock(&late->lock);
	k = atomic_load(&late->devices[ordinal]);
	if (!k && gpu_order_can_signal(c, ordinal) && memory_marks_open(ordinal, &k, &failure) == 0)
		atomic_store(&late->devices[ordinal], k);
	if (!k)
		atomic_fetch_or(&late->unable, UINT64_C(1) << ordinal);
	pthread_mutex_unlock(&late->lock);
	return k;
}

/* NULL where it cannot be done. */
static struct memory_marks *marks_of(share_client *c, int ordinal)
{
	struct gpu_late *late = &c->order->late;
	struct memory_marks *k;

	if (ordinal < 0 || ordinal >= GPU_DEVICES_MAX || c->order->host_fences)
		return NULL;
	k = atomic_load_explicit(&late->devices[ordinal], memory_order_acquire);
	if (k || atomic_load_explicit(&late->unable, memory_order_relaxed) >> ordinal & 1)
		return k;
	return make(c, late, ordinal);
}

uint64_t gpu_late_stream(share_client *c, const struct memory_mapping *m, void *stream)
{
	struct failure failure;
	uint64_t id;

	if (!marks_of(c, m->ordinal) ||
	    memory_stream_identify(m->ordinal, stream, &id, &failure) != 0)
		return 0;
	return id;
}

int gpu_late_note(share_client *c, const struct memory_mapping *m, void *stream, struct late *l)
{
	struct memory_marks *k = marks_of(c, m->ordinal);
	struct failure failure;
	int r;

	if (!k)
		return LATE_IMPOSSIBLE;
	if (l->pending && MUTATION(note_first_use_only))
		return 0;
	r = memory_mark_move(k, stream, &l->mark, l->pending, &failure);
	if (r > 0)
		return r == MARK_OTHER_STREAM ? LATE_ELSEWHERE : LATE_IMPOSSIBLE;
	if (r < 0)
		return fail(r, "%s", failure.text);
	l->ordinal = m->ordinal;
	l->pending = true;
	return 0;
}

int gpu_late_wait(share_client *c, void *stream, struct late *l)
{
	struct memory_marks *k = marks_of(c, l->ordinal);
	struct failure failure;
	int r = k ? memory_mark_wait(k, stream, &l->mark, &failure) : 1;

	/* it comes before whatever the stream does now: so it is a point of that one */
	if (r == 0) {
		atomic_fetch_add_explicit(&c->order->stats.waits, 1, memory_order_relaxed);
		r = memory_mark_move(k, stream, &l->mark, false, &failure);
	}
	if (r > 0)
		return LATE_IMPOSSIBLE;
	return r < 0 ? fail(r, "%s", failure.text) : 0;
}

int gpu_late_signal(share_client *c, const struct memory_mapping *m, struct late *l,
		    share_fence *out, bool *fatal)
{
	struct memory_marks *k = marks_of(c, l->ordinal);
	struct failure failure;
	int r;

	*fatal = false;
	r = memory_mark_wait_inside(k, &l->mark, &failure);
	if (r != 0) {
		*fatal = failure.fatal;
		l->pending = l->pending && !failure.fatal;
		return fail(r, "%s", failure.text);
	}
	/* what others made it wait for meanwhile only makes it later */
	r = gpu_stream_signal(c, m, memory_marks_stream(k), out);
	if (r != 0)
		return r;
	/* the helper waits for this one: the next is another */
	memory_mark_free(k, &l->mark);
	l->pending = false;
	return 0;
}

void gpu_late_forget(share_client *c, struct late *l)
{
	struct memory_marks *k = l->mark.event ? marks_of(c, l->ordinal) : NULL;

	if (k)
		memory_mark_free(k, &l->mark);
}

void gpu_late_deinit(share_client *c)
{
	for (int i = 0; i < GPU_DEVICES_MAX; i++)
		memory_marks_close(c->order->late.devices[i]);
	pthread_mutex_destroy(&c->order->late.lock);
}
