/* SPDX-License-Identifier: MIT */

/* The calling thread waits for fences. A function on a host stream does not wait for its own. */

#include "base/clock.h"
#include "libshare/order/inside.h"

int fence_wait_here(share_client *c, const struct held_fence *f, int timeout_ms, bool of_client)
{
	enum timeline_state state;
	struct waiter *w;
	bool over = false;
	int r = timeout_ms != 0 ? host_stream_may_wait_for(c, f) : 0;

	if (r != 0)
		return r;
	w = timeout_ms != 0 && f->page ? waiter_take(c) : NULL;
	if (!w && timeout_ms != 0 && f->page)
		return SHARE_ENOMEM;
	if (w)
		atomic_store(&w->of_client, of_client);
	state = fence_block_as(c, f, timeout_ms, w, of_client, &over);
	if (w)
		waiter_give_back(w);
	switch (state) {
	case TIMELINE_REACHED:
		return 0;
	case TIMELINE_DEAD:
		return fail(SHARE_EOWNERDEAD,
			    "the process that was working on this died before it was done");
	case TIMELINE_PENDING:
		break;
	}
	if (over)
		return wait_why_over(c, of_client);
	return fail(SHARE_ETIMEDOUT, "the work on it was not done within the time limit");
}

int ordering_wait_here(share_client *c, struct ordering *o)
{
	int64_t deadline = deadline_from(o->timeout_ms);
	int r = 0;

	for (size_t i = 0; r == 0 && i < o->n; i++) {
		if (fence_state(c, &o->fences[i]) == TIMELINE_REACHED)
			continue;
		o->how = SHARE_ORDERED_BY_HOST;
		r = fence_wait_here(c, &o->fences[i], deadline_left(deadline), false);
		if (r == SHARE_EOWNERDEAD && o->dead_is_done)
			r = 0;
	}
	return r;
}
