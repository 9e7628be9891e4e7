/* SPDX-License-Identifier: MIT */

/* Services, the caller's half: what a program calls. */

#include <share/private/core.h>

#include "base/clock.h"
#include "libshare/buffer/buffer.h"
#include "libshare/program/error.h"
#include "libshare/program/range.h"
#include "libshare/service/inside.h"

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
	call_wait(s, NULL, 0); /* so that workers find room */
	r = call_new_in_time(s, &timeout_ms, &p);
	if (r != 0)
		return r;
	pthread_mutex_lock(&s->lock);
	tail = (struct request_tail){s->self.member, p->call, (uint16_t)p->index,
				     (uint16_t)s->self.slot};
	pthread_mutex_unlock(&s->lock);
	r = service_send(s->requests, NULL, m, &tail, sizeof(tail), stream, timeout_ms, NULL);
	if (r != 0) {
		call_put(p);
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
		call_put(p);
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

static int fail_late(share_service *s)
{
	share_channel_stats workers = SHARE_CHANNEL_STATS_INIT; /* as far as this caller knows */

	workers.consumers = 1;
	channel_get_stats(s->requests, &workers);
	if (workers.consumers == 0)
		return fail(SHARE_ETIMEDOUT,
			    "no worker takes part in the service, so nobody has answered");
	return fail(SHARE_ETIMEDOUT,
		    "no worker has answered in time, and the service has %u: sharectl channels "
		    "shows what they have",
		    workers.consumers);
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
	int r = call_wait(s, p, deadline);

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
		call_put(p);
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
	share_pending *p = NULL;
	int r = pending_look(handle, &p);

	if (r != 0)
		return r;
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
		call_put(p);
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
		call_tell_again(taken, r == SHARE_EAGAIN || r == SHARE_ETIMEDOUT);
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
		call_put(call);
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
			call_put(p);
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

int share_untell_calls(share_service *s)
{
	HAZARDS;
	struct ring_fence work;
	int r = service_resolve_as(&s, SHARE_CALLER);

	if (r != 0)
		return r;
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < CALLS_MAX; i++)
		if (s->calls[i])
			call_untell_locked(s->calls[i]);
	channel_owes(s->replies, UINT32_MAX, true, &work); /* which is never too much */
	pthread_mutex_unlock(&s->lock);
	channel_untell(s->requests);
	return 0;
}
