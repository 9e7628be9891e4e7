/* SPDX-License-Identifier: MIT */

/*
 * Whether a fence is reached, and waiting until it is. One load, where that says it all: what a
 * peer's CPU has signaled. What its GPU has written is asked about, as a process that is killed may
 * still have a value written though the work before it never finished (base/system/process.h). The
 * broker poisons the page of a dead process; a waiter sees its death on the pidfd as well, in case
 * the broker is gone too.
 */

#include <errno.h>
#include <poll.h>
#include <time.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "base/system/process.h"
#include "libshare/order/inside.h"

#define SLICE_MS        100 /* between looks at the owner */
#define POISON_GRACE_MS 1000
#define EXIT_MS         150 /* from a kill until the pidfd says so, and some more */

static bool owner_is_dead(const struct held_fence *f)
{
	struct pollfd p = {.fd = f->peer ? f->peer->pidfd : -1, .events = POLLIN};

	return f->peer && (atomic_load(&f->peer->distrusted) || poll(&p, 1, 0) > 0);
}

/* What was seen while its owner was known to run; it stays so, whatever is said of the dead. */
static bool was_seen(const struct held_fence *f)
{
	uint64_t believed = atomic_load_explicit(&f->peer->believed[f->slot], memory_order_relaxed);

	return (int64_t)(believed - f->value) >= 0;
}

/* Of what GPUs have written, only that. */
static bool is_believed(const struct held_fence *f)
{
	return !timeline_is_by_gpu(f->page, f->slot) || was_seen(f);
}

static bool is_written(const struct held_fence *f)
{
	return timeline_query(f->page, f->slot, f->value) == TIMELINE_REACHED;
}

/*
 * The owner is dead, and the broker poisons its page, knowing what was reached before: so it is
 * still to say what of that which a GPU has written counts. But the broker may be gone, and
 * somebody to whom the owner gave its mapping may take the poison back: so once a death was seen,
 * what is still pending a while later stays dead, whatever the page says.
 */
static enum timeline_state judge_dead(share_client *c, const struct held_fence *f)
{
	int_fast64_t seen = 0, now = (int_fast64_t)clock_ms();
	bool late = !atomic_compare_exchange_strong(&f->peer->dead_since, &seen, now) &&
		    now - seen > POISON_GRACE_MS;

	if (late)
		atomic_store(&f->peer->distrusted, true);
	if (!late && (is_written(f) || !atomic_load(&f->peer->distrusted)) && !client_sees_loss(c))
		return TIMELINE_PENDING;
	return is_written(f) && is_believed(f) ? TIMELINE_REACHED : TIMELINE_DEAD;
}

/*
 * /proc does not show the owner: it is in another PID namespace, or there is no descriptor left.
 * Its pidfd is silent, but would be until the exit is over. So only what was there some time before
 * was not written on the way out. With the peer's lock held.
 */
static uint64_t seen_before(struct peer_page *p, uint32_t slot, uint64_t value)
{
	uint64_t known = atomic_load_explicit(&p->believed[slot], memory_order_relaxed);
	int64_t now = (int64_t)clock_ms();

	if (p->seen[slot].at != 0 && now - p->seen[slot].at < EXIT_MS)
		return known;
	if (p->seen[slot].at != 0 && (int64_t)(p->seen[slot].value - known) > 0)
		known = p->seen[slot].value;
	p->seen[slot].value = value;
	p->seen[slot].at = now;
	return known;
}

/*
 * A GPU says that it is reached. That is so when its owner had not begun to exit afterwards; else
 * the broker, which has looked all the time, will say.
 */
static enum timeline_state believe(const struct held_fence *f)
{
	enum process_state state;
	uint64_t now;

	if (is_believed(f) || MUTATION(trust_the_dying))
		return TIMELINE_REACHED;
	now = timeline_value(f->page, f->slot);
	if (now >= TIMELINE_POISON)
		return timeline_query(f->page, f->slot, f->value);
	pthread_mutex_lock(&f->peer->lock);
	state = atomic_load(&f->peer->distrusted) ? PROCESS_EXITS
						  : process_state(f->peer->pidfd, &f->peer->stat);
	if (state == PROCESS_UNKNOWN)
		now = seen_before(f->peer, f->slot, now);
	if (state != PROCESS_EXITS)
		atomic_store_explicit(&f->peer->believed[f->slot], now, memory_order_relaxed);
	pthread_mutex_unlock(&f->peer->lock);
	return state != PROCESS_EXITS && is_believed(f) ? TIMELINE_REACHED : TIMELINE_PENDING;
}

/* One load, unless it is somebody else's, and pending or not known to be reached yet. */
enum timeline_state fence_state(share_client *c, const struct held_fence *f)
{
	enum timeline_state state;

	if (!f->page)
		return TIMELINE_REACHED;
	state = timeline_query(f->page, f->slot, f->value);
	if (state == TIMELINE_DEAD && MUTATION(dead_is_reached))
		return TIMELINE_REACHED;
	if (!f->peer)
		return state;
	if (state == TIMELINE_REACHED && timeline_is_by_gpu(f->page, f->slot))
		state = believe(f);
	if (state == TIMELINE_PENDING && owner_is_dead(f))
		return judge_dead(c, f);
	if (state != TIMELINE_DEAD)
		return state;
	atomic_store(&f->peer->distrusted, true);
	return was_seen(f) ? TIMELINE_REACHED : TIMELINE_DEAD;
}

bool fence_is_known_dead(share_client *c, const struct held_fence *f)
{
	if (!f->page)
		return false;
	/* to ask whether the owner lives costs as much as to enqueue a wait; without a broker to
	 * poison its page, nobody else would */
	if (f->peer && !atomic_load(&f->peer->distrusted) &&
	    atomic_load(&f->peer->dead_since) == 0 &&
	    timeline_query(f->page, f->slot, f->value) == TIMELINE_PENDING && !client_is_lost(c))
		return false;
	return fence_state(c, f) == TIMELINE_DEAD;
}

enum timeline_state fence_block_as(share_client *c, const struct held_fence *f, int timeout_ms,
				   struct waiter *w, bool of_client, bool *over)
{
	int64_t deadline = deadline_from(timeout_ms);
	bool by_gpu = timeout_ms != 0 && f->page && timeline_is_by_gpu(f->page, f->slot);
	struct pace *pace = f->peer ? &f->peer->paces[f->slot] : &c->order->paces[f->slot];
	uint64_t began = by_gpu ? clock_ns() : 0;
	struct timeline_wait how = {.word = w ? &w->woken : NULL};

	if (!f->page)
		return TIMELINE_REACHED;
	if (by_gpu)
		pace_expect(pace, began, &how.from, &how.until);
	for (;;) {
		int left = deadline_left(deadline),
		    slice = left < 0 || left > SLICE_MS ? SLICE_MS : left;
		enum timeline_state state;

		how.same = w ? waiter_at_word(w, timeline_word(f->page, f->slot)) : 0;
		/* once: it may be taken back at any time */
		*over = w && wait_is_over(c, of_client);
		if (*over)
			slice = 0;
		else if (w)
			slice = wait_sleep_ms(slice);
		errno = 0;
		timeline_wait_with(f->page, f->slot, f->value, slice, &how);
		wait_note_signal(errno);
		state = fence_state(c, f);
		if (by_gpu && state == TIMELINE_REACHED)
			pace_note(pace, clock_ns() - began);
		if (state != TIMELINE_PENDING)
			return state;
		if (deadline_left(deadline) == 0 || *over)
			return TIMELINE_PENDING;
		/* its owner is on its way out, which the wait above does not wait for */
		if (timeline_query(f->page, f->slot, f->value) != TIMELINE_PENDING)
			nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
}

enum timeline_state fence_block(share_client *c, const struct held_fence *f, int timeout_ms)
{
	bool over;

	return fence_block_as(c, f, timeout_ms, NULL, false, &over);
}
