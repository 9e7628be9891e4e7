/* SPDX-License-Identifier: MIT */

/*
 * Services, the caller's half. Answers to all calls of a handle come through one channel, in any
 * order; so whichever thread waits receives for all, one at a time, and wakes the others. What
 * comes for a call that was given up (or was answered before, by a worker that died after that) is
 * acknowledged unseen.
 *
 * Streams are ordered in the thread that wants the answer: receiving alone orders nothing.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <share/private/core.h>

#include "base/clock.h"
#include "libshare/buffer/buffer.h"
#include "libshare/program/error.h"
#include "libshare/program/range.h"
#include "libshare/service/inside.h"

/* With the lock of the service held, as all in this file whose names end so. */
static void stop_waiting_locked(share_pending *p)
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
	stop_waiting_locked(p);
	p->told = p != asked;
	if (p->told)
		service_tell_locked(s, 1);
	bell_ring(&s->arrived);
}

/* It has ended, and could not be had yet: nobody says when it can. */
static void tell_again(share_pending *p)
{
	pthread_mutex_lock(&p->service->lock);
	if (!p->waiting && !p->told) {
		p->told = true;
		service_tell_locked(p->service, 1);
	}
	pthread_mutex_unlock(&p->service->lock);
}

/* It is asked for, or nobody will. */
static void untell_locked(share_pending *p)
{
	if (p->told)
		service_tell_locked(p->service, -1);
	p->told = false;
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
static int receive(share_service *s, const share_pending *asked, int timeout_ms)
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

/*
 * Until @p is not waiting any more (0), or the time is over (SHARE_ETIMEDOUT). @p NULL: takes what
 * has come, and waits for nothing.
 */
static int wait_for_answer(share_service *s, share_pending *p, int64_t deadline)
{
	int r = 0, left;

	DETAIL_OF(r);
	pthread_mutex_lock(&s->lock);
	if (p)
		untell_locked(p);
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
		r = receive(s, p, left);
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

/* ------------------------------------------------------------------------------------------- */

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

/* SHARE_EAGAIN: there are as many as may be; *work: one ends with that, if it has a slot. Answers
 * that are not acknowledged, or behind work that is not done, take room at those who answer. */
static int take_call(share_service *s, struct ring_fence *work, share_pending **out)
{
	share_pending *p;
	uint32_t others;

	pthread_mutex_lock(&s->lock);
	others = s->calls_max - (s->n_waiting < s->calls_max ? s->n_waiting : s->calls_max);
	if (channel_owes(s->replies, others, work) >= others || s->n_free == 0) {
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

/* Where answers are acknowledged behind work, it waits for that: nothing else is to be done for it.
 * Of *@timeout_ms it takes what that lasts, and leaves something: 0 is another thing than a time
 * that is over. */
static int take_call_in_time(share_service *s, int *timeout_ms, share_pending **out)
{
	struct ring_fence work;
	int r = take_call(s, &work, out);
	int64_t deadline;

	if (__builtin_expect(r != SHARE_EAGAIN, 1) || work.slot == 0 || *timeout_ms == 0)
		return r;
	deadline = deadline_from(*timeout_ms);
	do {
		r = wait_for_work(s, work, deadline_left(deadline));
		if (r == 0)
			r = take_call(s, &work, out);
	} while (r == SHARE_EAGAIN && work.slot != 0);
	*timeout_ms = deadline_left(deadline);
	if (*timeout_ms == 0)
		*timeout_ms = 1;
	return r;
}

/* Back to those that are free. */
static void put_call(share_pending *p)
{
	DETAIL_STAYS;
	share_service *s = p->service;
	share_message answer;
	bool worn = false;

	pthread_mutex_lock(&s->lock);
	if (p->waiting)
		stop_waiting_locked(p);
	untell_locked(p);
	answer = p->answer;
	p->answer.channel = NULL;
	s->free[s->n_free++] = (uint16_t)p->index;
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

/* A call that the program has not got. */
static int start_call(share_service *s, share_outgoing *m, int timeout_ms, void *stream,
		      share_pending **out)
{
	struct request_tail tail;
	share_pending *p;
	int r;

	if (!out)
		return fail(SHARE_EINVAL, "out is NULL");
	r = service_check_data(s, m, "a request");
	if (r != 0)
		return r;
	wait_for_answer(s, NULL, 0); /* so that workers find room */
	r = take_call_in_time(s, &timeout_ms, &p);
	if (r != 0)
		return r;
	pthread_mutex_lock(&s->lock);
	tail = (struct request_tail){s->self.member, p->call, (uint16_t)p->index,
				     (uint16_t)s->self.slot};
	pthread_mutex_unlock(&s->lock);
	r = service_send(s->requests, NULL, m, &tail, sizeof(tail), stream, timeout_ms, NULL);
	if (r != 0) {
		put_call(p);
		return r;
	}
	*out = p;
	return 0;
}

/* To the program, unless the service was given up, which takes all calls from it. */
static int give_call(share_pending *p, share_pending **out)
{
	share_service *s = p->service;
	bool given_up;

	pthread_mutex_lock(&s->lock);
	given_up = atomic_load(&s->given_up);
	if (!given_up)
		*out = handle_give(p);
	pthread_mutex_unlock(&s->lock);
	if (given_up)
		put_call(p);
	return given_up ? wait_given_up() : 0;
}

static int start_and_give(share_service *s, share_outgoing *m, int timeout_ms, void *stream,
			  share_pending **out)
{
	share_pending *p;
	int r = start_call(s, m, timeout_ms, stream, out ? &p : NULL);

	return r == 0 ? give_call(p, out) : r;
}

int share_call_start(share_service *s, share_buffer *b, const void *data, size_t data_size,
		     int timeout_ms, void *stream, share_pending **out)
{
	RANGE("share_call_start", data_size);
	HAZARDS;
	share_outgoing m = {.buffer = b, .data = data, .data_size = data_size};
	int r = service_resolve_as(&s, SHARE_CALLER);

	return r == 0 ? start_and_give(s, &m, timeout_ms, stream, out) : r;
}

int share_call_start_with(share_service *s, const share_outgoing *request, int timeout_ms,
			  void *stream, share_pending **out)
{
	RANGE("share_call_start", 0);
	HAZARDS;
	share_outgoing m;
	int r = service_resolve_as(&s, SHARE_CALLER);

	if (r == 0)
		r = channel_outgoing(s->requests, request, &m);
	return r == 0 ? start_and_give(s, &m, timeout_ms, stream, out) : r;
}

/* As far as this caller knows. */
static uint32_t workers(share_service *s)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;

	return channel_get_stats(s->requests, &stats) == 0 ? stats.consumers : 1;
}

static int fail_late(share_service *s)
{
	uint32_t n = workers(s);

	if (n == 0)
		return fail(SHARE_ETIMEDOUT,
			    "no worker takes part in the service, so nobody has answered");
	return fail(SHARE_ETIMEDOUT,
		    "no worker has answered in time, and the service has %u: sharectl channels "
		    "shows what they have",
		    n);
}

/* *stays: the call is not over, and may be asked again; that is so @late, too, if it says so
 * before.
 */
static int finish_call(share_pending *p, int timeout_ms, void *stream, share_message *out,
		       bool *stays)
{
	bool late = *stays;

	share_service *s = p->service;
	share_message answer = SHARE_MESSAGE_INIT;
	int64_t deadline = deadline_from(timeout_ms);
	int r = wait_for_answer(s, p, deadline);

	*stays = true;
	if (r == SHARE_EINTR)
		return r;
	if (r == 0 && p->error != 0) {
		r = fail(p->error, "%s", p->detail);
	} else if (r == 0) {
		answer = p->answer;
		r = channel_order(&answer, stream, deadline_left(deadline));
		p->answer = answer;
		/* not a stream, or one that could not wait now */
		if (r == SHARE_EINVAL || r == SHARE_EAGAIN || r == SHARE_EINTR)
			return r;
		if (r == 0)
			r = answer.error; /* an answer without its memory is none */
	}
	if (r == SHARE_ETIMEDOUT && timeout_ms == 0)
		return fail_constant(SHARE_EAGAIN, "the answer is not there yet");
	*stays = late && r == SHARE_ETIMEDOUT;
	if (r == 0)
		p->answer.channel = NULL; /* it is the caller's now */
	if (!*stays)
		put_call(p);
	if (r == SHARE_ETIMEDOUT)
		return fail_late(s);
	if (r == 0)
		struct_out(share_message, out, &answer);
	return r;
}

/* From the program. Its service takes it, too, if it is given up: so if it is the program's still,
 * after it was said to which service it belongs, that stays until this call is over. */
static int take_from_program(share_pending *handle, share_pending **out)
{
	void *found = NULL;
	share_pending *p;
	int r = hazard_find(handle, HANDLE_PENDING, &found);

	if (r != 0)
		return r;
	p = found;
	if (!hazard_set(p->service))
		return fail_system(-ENOMEM, "looking at a handle");
	if (!handle_take(handle, HANDLE_PENDING))
		return handle_fault(handle, HANDLE_PENDING);
	if (client_is_forked(p->client)) {
		handle_keep(p);
		return fail_fork();
	}
	*out = p;
	return 0;
}

/* It is the program's still, unless its service, or the call itself, was given up meanwhile: 0 or
 * SHARE_ECANCELED. */
static int keep_call(share_pending *p)
{
	share_service *s = p->service;
	bool canceled;

	pthread_mutex_lock(&s->lock);
	canceled = p->canceled;
	if (!canceled && !atomic_load(&s->given_up))
		handle_keep(p);
	pthread_mutex_unlock(&s->lock);
	if (canceled)
		put_call(p);
	return canceled ? wait_given_up() : 0;
}

/* @late: a call whose answer is late goes on. */
static int finish_pending(share_pending *p, int timeout_ms, void *stream, share_message *out,
			  bool late)
{
	share_pending *taken = NULL;
	bool stays = late;
	int r = message_begin(out);

	if (r == 0)
		r = take_from_program(p, &taken);
	if (r != 0)
		return r;
	/* of a host stream it says so, too, that this call is about it */
	r = stream_check(taken->client, NULL, stream);
	if (r == 0)
		r = finish_call(taken, timeout_ms, stream, out, &stays);
	else
		stays = true;
	if (stays) {
		tell_again(taken);
		stays = keep_call(taken) == 0;
		r = stays ? r : SHARE_ECANCELED;
	}
	return r;
}

int share_call_finish(share_pending *p, int timeout_ms, void *stream, share_message *out)
{
	RANGE("share_call_finish", 0);
	HAZARDS;
	return finish_pending(p, timeout_ms, stream, out, false);
}

int share_call_await(share_pending *p, int timeout_ms, void *stream, share_message *out)
{
	RANGE("share_call_finish", 0);
	HAZARDS;
	return finish_pending(p, timeout_ms, stream, out, true);
}

void share_call_cancel(share_pending *p)
{
	HAZARDS;
	DETAIL_STAYS;
	share_pending *call = pending_of(p);
	share_service *s;
	bool taken;

	if (!call || !hazard_set(call) || !handle_exists(p, HANDLE_PENDING))
		return;
	s = call->service;
	/* a service that is given up ends the handles of its calls first: it has this one still */
	if (!hazard_set(s) || !handle_exists(p, HANDLE_PENDING) || client_is_forked(s->client))
		return;
	pthread_mutex_lock(&s->lock);
	taken = handle_take(p, HANDLE_PENDING) != NULL;
	/* else another thread asks for the answer, if it is not over */
	if (!taken && handle_exists(p, HANDLE_PENDING)) {
		call->canceled = true;
		channel_look_again(s->replies);
		bell_ring(&s->arrived);
	}
	pthread_mutex_unlock(&s->lock);
	if (taken)
		put_call(call);
}

static int call(share_service *s, share_outgoing *m, int timeout_ms, void *stream,
		share_message *out)
{
	int64_t deadline = deadline_from(timeout_ms);
	share_pending *p;
	bool stays = false;
	int r = start_call(s, m, timeout_ms, stream, &p);

	if (r == 0) {
		int left = deadline_left(deadline);

		r = finish_call(p, left, stream, out, &stays);
		if (stays)
			put_call(p);
		if (r == SHARE_EAGAIN && left == 0 && timeout_ms != 0)
			r = fail_late(s);
	}
	return r;
}

int share_call(share_service *s, share_buffer *b, const void *data, size_t data_size,
	       int timeout_ms, void *stream, share_message *out)
{
	RANGE("share_call", data_size);
	HAZARDS;
	share_outgoing m = {.buffer = b, .data = data, .data_size = data_size};
	int r = message_begin(out);

	if (r == 0)
		r = service_resolve_as(&s, SHARE_CALLER);
	return r == 0 ? call(s, &m, timeout_ms, stream, out) : r;
}

int share_call_with(share_service *s, const share_outgoing *request, int timeout_ms, void *stream,
		    share_message *out)
{
	RANGE("share_call", 0);
	HAZARDS;
	share_outgoing m;
	bool gives;
	int r = message_begin(out);

	if (r == 0)
		r = service_resolve_as(&s, SHARE_CALLER);
	if (r == 0)
		r = channel_outgoing(s->requests, request, &m);
	if (r == 0)
		r = service_keep_given(s->requests, &m, stream, &gives);
	if (r == 0)
		r = call(s, &m, timeout_ms, stream, out);
	if (r == 0 && gives)
		service_release_given(&m, stream);
	return r;
}
