/* SPDX-License-Identifier: MIT */

/*
 * Services, the caller's half: answers. Those to all calls of a handle come through one channel, in
 * any order; so whichever thread waits receives for all, one at a time, and wakes the others. What
 * comes for a call that was given up (or was answered before, by a worker that died after that) is
 * acknowledged unseen.
 *
 * Streams are ordered in the thread that wants the answer: receiving alone orders nothing.
 */

#include <stdio.h>

#include "base/clock.h"
#include "libshare/program/error.h"
#include "libshare/service/inside.h"

void call_stop_waiting_locked(share_pending *p)
{
	share_service *s = p->service;

	p->waiting = false;
	channel_set_call(s->requests, p->index, 0);
	if (--s->n_waiting == 0)
		service_watch_replies_locked(s);
}

/* While @asked is asked for, and perhaps no other: an event loop is told of any other. */
static void end_call_locked(share_pending *p, int error, const char *detail,
			    const share_pending *asked)
{
	share_service *s = p->service;

	p->error = error;
	if (error != 0) /* else nobody looks at it */
		snprintf(p->detail, sizeof(p->detail), "%s", detail);
	call_stop_waiting_locked(p);
	p->told = p != asked;
	if (p->told)
		service_tell_locked(s, 1);
	bell_ring(&s->arrived);
}

void call_tell_again(share_pending *p, bool late)
{
	share_service *s = p->service;

	pthread_mutex_lock(&s->lock);
	if (!p->waiting && !p->told && !p->late) {
		p->late = late;
		p->told = !late;
		if (late)
			channel_ask_again(s->replies, 1);
		else
			service_tell_locked(s, 1);
	}
	pthread_mutex_unlock(&s->lock);
}

void call_untell_locked(share_pending *p)
{
	if (p->told)
		service_tell_locked(p->service, -1);
	if (p->late)
		channel_ask_again(p->service->replies, -1);
	p->told = p->late = false;
}

static share_pending *find_locked(share_service *s, uint32_t index, uint32_t call)
{
	share_pending *p = index < CALLS_MAX ? s->calls[index] : NULL;

	return p && p->waiting && p->call == call ? p : NULL;
}

/* Something has come. */
static void deliver(share_service *s, share_message *m, const share_pending *asked)
{
	struct reply_tail tail;
	share_pending *p = NULL;
	bool keep = false;

	pthread_mutex_lock(&s->lock);
	if (service_unpack(m, s->takes_max, &tail, sizeof(tail)))
		p = find_locked(s, tail.index, tail.call);
	if (p && m->error == 0 && tail.status == REPLY_ANSWER) {
		p->answer = *m;
		end_call_locked(p, 0, "", asked);
		keep = true;
	} else if (p && m->error == 0) {
		end_call_locked(p, SHARE_ECANCELED, "the worker has not answered the request",
				asked);
	} else if (p) {
		end_call_locked(p, m->error, share_error_detail(), asked);
	}
	pthread_mutex_unlock(&s->lock);
	if (!keep)
		channel_ack_unused(m);
}

/* Requests that as many workers died with as may be. */
static void take_back(share_service *s, const share_pending *asked)
{
	struct request_tail tail;
	share_message m = SHARE_MESSAGE_INIT;
	share_pending *p;

	while (channel_take_back(s->requests, &m) == 0) {
		pthread_mutex_lock(&s->lock);
		p = service_unpack(&m, s->sends_max, &tail, sizeof(tail))
			? find_locked(s, tail.index, tail.call)
			: NULL;
		if (p)
			end_call_locked(p, SHARE_EOWNERDEAD,
					"all workers that got the request have died with it",
					asked);
		pthread_mutex_unlock(&s->lock);
		channel_ack_unused(&m);
	}
}

void service_came_back(void *service)
{
	share_service *s = service;

	atomic_store(&s->came_back, true);
	pthread_mutex_lock(&s->lock);
	channel_look_again(s->replies);
	pthread_mutex_unlock(&s->lock);
}

/* What was sent to where we were is lost. */
static int open_again(share_service *s, const share_pending *asked)
{
	int r = service_open_again(s, s->replies);

	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; r == 0 && i < CALLS_MAX; i++)
		if (s->calls[i] && s->calls[i]->waiting)
			end_call_locked(s->calls[i], SHARE_ESTALE,
					"this caller owed workers that are gone too much, and has "
					"missed the answer",
					asked);
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* 1: something has come; 0: nothing has; or an error. By the thread that reads, which alone opens
 * the channel again. */
static int receive_answer(share_service *s, const share_pending *asked, int timeout_ms)
{
	share_message m = SHARE_MESSAGE_INIT;
	int r = channel_receive(s->replies, timeout_ms, &m);

	if (r == SHARE_ESTALE) {
		r = open_again(s, asked);
		r = r == 0 ? SHARE_EAGAIN : r == SHARE_ECANCELED ? r : SHARE_ESTALE;
	}
	if (r == 0) {
		deliver(s, &m, asked);
		return 1;
	}
	/* workers come and go */
	if (r == SHARE_EOWNERDEAD || r == SHARE_EPIPE)
		return 1;
	return r == SHARE_EAGAIN || r == SHARE_ETIMEDOUT ? 0 : r;
}

/* ------------------------------------------------------------------------------------------- */

int call_wait(share_service *s, share_pending *p, int64_t deadline)
{
	int r = 0, left;

	DETAIL_OF(r);
	pthread_mutex_lock(&s->lock);
	if (p)
		call_untell_locked(p);
	while (!p || p->waiting) {
		left = p ? deadline_left(deadline) : 0;
		if (s->reading && (left == 0 || r < 0))
			break;
		if (atomic_load(&s->given_up) || (p && p->canceled)) {
			r = wait_given_up();
			break;
		}
		if (s->reading) { /* for us, too */
			r = wait_at_bell(s->client, &s->arrived, &s->lock, left);
			continue;
		}
		s->reading = true;
		pthread_mutex_unlock(&s->lock);
		r = receive_answer(s, p, left);
		if (r >= 0 && atomic_load(&s->came_back) && atomic_exchange(&s->came_back, false)) {
			take_back(s, p);
			r = 1;
		}
		pthread_mutex_lock(&s->lock);
		s->reading = false;
		bell_ring(&s->arrived); /* one of the others reads on */
		if (r < 0 || (r == 0 && left == 0))
			break;
	}
	if (p ? !p->waiting : r >= 0)
		r = 0;
	else if (r >= 0)
		r = SHARE_ETIMEDOUT;
	pthread_mutex_unlock(&s->lock);
	return r;
}
