/* SPDX-License-Identifier: MIT */

/* Services, the caller's half: the places of its calls, of which there are so many at most. */

#include <errno.h>

#include "base/clock.h"
#include "libshare/buffer/buffer.h"
#include "libshare/program/error.h"
#include "libshare/service/inside.h"

/* In a place that is free. NULL without memory. */
static share_pending *new_call_locked(share_service *s)
{
	uint32_t index = s->free[s->n_free - 1];
	share_pending *p = s->calls[index];

	if (!p)
		p = s->calls[index] = handle_new(HANDLE_PENDING, sizeof(*p));
	if (!p)
		return NULL;
	s->n_free--;
	if (++s->numbers[index] == 0)
		s->numbers[index] = 1;
	p->client = s->client;
	p->service = s;
	p->index = index;
	p->call = s->numbers[index];
	return p;
}

/* Whether there are as many as may be. *work: one ends with that, if it has a slot. Answers that
 * are not acknowledged, or behind work that is not done, take room at those who answer. */
static bool are_full_locked(share_service *s, bool tell, struct ring_fence *work)
{
	uint32_t others =
	    s->n_free == 0 || s->n_waiting >= s->calls_max ? 0 : s->calls_max - s->n_waiting;

	return channel_owes(s->replies, others, tell, work) >= others;
}

/* SHARE_EAGAIN: there are as many as may be. With @tell the descriptor tells when there may be
 * fewer. */
static int take_call(share_service *s, bool tell, struct ring_fence *work, share_pending **out)
{
	share_pending *p;

	pthread_mutex_lock(&s->lock);
	if (are_full_locked(s, tell, work)) {
		pthread_mutex_unlock(&s->lock);
		return fail(SHARE_EAGAIN,
			    "%u calls are under way, or their answers not acknowledged, or behind "
			    "work that is not done: finish some",
			    s->calls_max);
	}
	p = new_call_locked(s);
	if (p) {
		p->canceled = false;
		p->error = 0;
		p->waiting = true;
		channel_set_call(s->requests, p->index, p->call);
		if (s->n_waiting++ == 0)
			service_watch_replies_locked(s);
	}
	pthread_mutex_unlock(&s->lock);
	*out = p;
	return p ? 0 : fail_system(-ENOMEM, "starting a call");
}

static int wait_for_work(share_service *s, struct ring_fence work, int timeout_ms)
{
	struct held_fence f = {.page = s->client->page, .slot = work.slot, .value = work.value};
	int r = fence_wait_here(s->client, &f, timeout_ms, false);

	if (r == SHARE_ETIMEDOUT)
		return fail(r,
			    "the work that this caller has acknowledged %u answers behind was not "
			    "done in time",
			    s->calls_max);
	return r == 0 && atomic_load(&s->given_up) ? wait_given_up() : r;
}

int call_new_in_time(share_service *s, int *timeout_ms, share_pending **out)
{
	struct ring_fence work;
	bool once = *timeout_ms == 0;
	int r = take_call(s, once, &work, out);
	int64_t deadline;

	if (__builtin_expect(r != SHARE_EAGAIN, 1) || work.slot == 0 || once)
		return r;
	deadline = deadline_from(*timeout_ms);
	do {
		r = wait_for_work(s, work, deadline_left(deadline));
		if (r == 0)
			r = take_call(s, false, &work, out);
	} while (r == SHARE_EAGAIN && work.slot != 0);
	*timeout_ms = deadline_left(deadline);
	if (*timeout_ms == 0)
		*timeout_ms = 1;
	return r;
}

void call_put(share_pending *p)
{
	DETAIL_STAYS;
	share_service *s = p->service;
	share_message answer;
	bool worn = false;

	pthread_mutex_lock(&s->lock);
	if (p->waiting)
		call_stop_waiting_locked(p);
	call_untell_locked(p);
	answer = p->answer;
	p->answer.channel = NULL;
	s->free[s->n_free++] = (uint16_t)p->index;
	channel_tell_if_less(s->replies);
	if (!atomic_load(&s->given_up)) { /* else its handle has ended */
		worn = handle_is_worn(p);
		handle_end(p);
	}
	if (worn)
		s->calls[p->index] = NULL;
	pthread_mutex_unlock(&s->lock);
	if (worn)
		hazard_end(p, handle_free_ended);
	if (answer.channel)
		channel_ack_unused(&answer);
}
