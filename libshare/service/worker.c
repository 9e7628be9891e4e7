/* SPDX-License-Identifier: MIT */

/*
 * Services, the worker's half: requests that nobody waits for any more are dropped unseen, others
 * are answered to whom they came from.
 *
 * A request says where its answer goes, which is a consumer of replies. That this is of the same
 * process that sent the request is not taken on trust: channel_send() compares their timeline
 * pages. So nobody can have somebody else answered.
 */

#include <string.h>

#include "base/clock.h"
#include "libshare/buffer/buffer.h"
#include "libshare/program/error.h"
#include "libshare/program/range.h"
#include "libshare/service/inside.h"

/* The tail that is kept with a request, as its note. 0, or SHARE_EINVAL. */
static int kept_tail(const share_message *request, struct request_tail *out)
{
	return channel_get_note(request, out)
		   ? 0
		   : fail(SHARE_EINVAL, "this request was given up before");
}

/* Whether somebody waits, as share_request_status(), but says nothing more. */
static int status(const share_message *request, const struct request_tail *tail)
{
	uint32_t call;
	int r = channel_sender_call(request, tail->index, &call);

	if (r != 0)
		return r;
	return tail->call != 0 && call == tail->call ? 0 : SHARE_ECANCELED;
}

static int explain(int status)
{
	if (status == SHARE_ECANCELED)
		return fail(status, "the caller does not wait for the answer any more");
	if (status == SHARE_EOWNERDEAD)
		return fail(status, "the caller has died or left");
	return status;
}

/* Whether somebody waits for it. */
static bool is_wanted(const share_service *s, share_message *request)
{
	struct request_tail tail;

	/* whoever sends nonsense is not waiting for anything */
	if (!service_unpack(request, s->takes_max, &tail, sizeof(tail)) ||
	    tail.index >= CALLS_MAX || tail.slot >= CHANNEL_MEMBERS_MAX ||
	    status(request, &tail) != 0)
		return false;
	channel_set_note(request, &tail);
	return true;
}

/* The program does not get it now: there is nobody to be told when the service is closed. */
static void is_not_taken(const share_message *request)
{
	const struct request_tail none = {0};

	channel_set_note(request, &none);
}

static int receive_any(share_service *s, int timeout_ms, share_message *out)
{
	share_channel *ch;
	int r;

	do {
		if (atomic_load(&s->given_up))
			return wait_given_up();
		ch = service_hold_incoming(s);
		r = channel_receive(ch, timeout_ms, out);
		channel_let_go(ch);
		/* another thread has opened it again, and given the old one up */
		if (r == SHARE_ECANCELED && !atomic_load(&s->given_up))
			r = SHARE_ESTALE;
	} while (r == SHARE_ESTALE && (r = service_open_again(s, ch)) == 0);
	return r;
}

/* As channel_receive(), but for requests that nobody waits for. */
static int receive_request(share_service *s, int timeout_ms, void *stream, share_message *out)
{
	int64_t deadline = deadline_from(timeout_ms);
	share_message raw = SHARE_MESSAGE_INIT;
	int r, result = -1;

	DETAIL_OF(result);
	for (;;) {
		raw.channel = NULL;
		/* the first time as it was asked for: 0 is another thing than a time that is over
		 */
		r = receive_any(s, timeout_ms, &raw);
		if (r != 0)
			return r;
		timeout_ms = deadline_left(deadline);
		*out = raw;
		if (is_wanted(s, out)) {
			r = channel_order(out, stream, timeout_ms);
			if (r != 0 || out->error != SHARE_EOWNERDEAD)
				break;
			raw = *out;
		}
		out->channel = NULL;
		is_not_taken(&raw);
		channel_ack_unused(&raw);
	}
	/* the next call gets it */
	if (r != 0) {
		out->channel = NULL;
		is_not_taken(&raw);
		channel_put_back(&raw);
	}
	result = r != 0 ? r : out->error;
	return r;
}

int share_next_request(share_service *s, int timeout_ms, void *stream, share_message *out)
{
	RANGE("share_next_request", 0);
	HAZARDS;
	share_message m = SHARE_MESSAGE_INIT;
	int r = message_begin(out);

	if (r == 0)
		r = service_resolve_as(&s, SHARE_WORKER);
	/* of a host stream it says so, too, that this call is about it */
	if (r == 0)
		r = stream_check(s->client, NULL, stream);
	if (r != 0)
		return r;
	r = receive_request(s, timeout_ms, stream, &m);
	if (r == 0)
		struct_out(share_message, out, &m);
	if (r == SHARE_EOWNERDEAD || r == SHARE_EPIPE)
		return fail(SHARE_EPIPE, "all callers have gone");
	if (r == SHARE_ETIMEDOUT && timeout_ms == 0)
		return fail_constant(SHARE_EAGAIN, "there is no request that is ready");
	if (r == SHARE_EAGAIN && timeout_ms != 0)
		return fail(SHARE_ETIMEDOUT, "no request came within the time limit");
	return r;
}

static share_service *owner_of(const share_message *request)
{
	return handle_exists(request->channel, HANDLE_CHANNEL)
		   ? channel_owner(handle_object(request->channel))
		   : NULL;
}

static int check_request(const share_message *request, share_service **out)
{
	share_service *s;
	int r = message_check(request);

	if (r != 0)
		return r;
	s = owner_of(request);
	if (!s)
		return fail(SHARE_EINVAL, "this is not a request, or its service was closed");
	*out = s;
	return service_check(s, SHARE_WORKER);
}

int share_request_status(const share_message *request)
{
	HAZARDS;
	struct request_tail tail;
	share_service *s;
	int r = check_request(request, &s);

	if (r == 0)
		r = kept_tail(request, &tail);
	return r == 0 ? explain(status(request, &tail)) : r;
}

/* 0: it is on its way. SHARE_ECANCELED, SHARE_EOWNERDEAD: nobody waits. SHARE_EAGAIN: the caller
 * has no room. Or another error. */
static int answer(share_service *s, const share_message *request, const struct request_tail *tail,
		  enum reply_status what, share_outgoing *m, void *stream,
		  struct ring_fence *signalled)
{
	struct channel_target caller = {tail->member, channel_sender_page(request), tail->slot};
	struct reply_tail reply = {tail->call, tail->index, (uint16_t)what};
	int r = status(request, tail);

	if (r != 0)
		return r;
	r = service_send(s->replies, &caller, m, &reply, sizeof(reply), stream, 0, signalled);
	/* it has closed the service */
	return r == SHARE_ENOENT ? SHARE_ECANCELED : r;
}

/* The caller's own doing: there is room for all that it may ask for. So the worker is told nothing
 * that it would not expect. */
static int no_room(void)
{
	return fail_constant(SHARE_ECANCELED,
			     "the caller has no room for the answer: it has not acknowledged as "
			     "many as it may have, or behind work that is not done");
}

static int reply(share_service *s, share_message *request, share_outgoing *m, void *stream)
{
	struct ring_fence signalled;
	struct request_tail tail;
	int r = service_check_data(s, m, "an answer"), told = 0;
	bool sent = false;

	if (r == 0)
		r = kept_tail(request, &tail);
	if (r != 0)
		return r;
	if (tail.call != 0) { /* else it was answered, but could not be acknowledged */
		told = answer(s, request, &tail, REPLY_ANSWER, m, stream, &signalled);
		if (told != 0 && told != SHARE_ECANCELED && told != SHARE_EOWNERDEAD &&
		    told != SHARE_EAGAIN)
			return told;
		sent = told == 0;
		tail.call = 0;
		channel_set_note(request, &tail);
	}
	r = sent ? channel_ack_behind(request, stream, m->buffer, signalled)
		 : share_ack(request, stream);
	if (r == 0 && told == SHARE_EAGAIN)
		return no_room();
	return r != 0 ? r : explain(told);
}

int share_reply(share_message *request, share_buffer *b, const void *data, size_t data_size,
		void *stream)
{
	RANGE("share_reply", data_size);
	HAZARDS;
	share_outgoing m = {.buffer = b, .data = data, .data_size = data_size};
	share_service *s = NULL;
	int r = check_request(request, &s);

	return r == 0 ? reply(s, request, &m, stream) : r;
}

int share_reply_with(share_message *request, const share_outgoing *answer, void *stream)
{
	RANGE("share_reply", 0);
	HAZARDS;
	share_service *s = NULL;
	share_outgoing m;
	bool gives;
	int r = check_request(request, &s);

	if (r == 0)
		r = channel_outgoing(s->replies, answer, &m);
	if (r == 0)
		r = service_keep_given(s->replies, &m, stream, &gives);
	if (r == 0)
		r = reply(s, request, &m, stream);
	if (r == 0 && gives)
		service_release_given(&m, stream);
	return r;
}

void service_before_ack(void *service, share_message *request)
{
	share_outgoing none = {0};
	struct request_tail tail;

	if (!channel_get_note(request, &tail) || tail.call == 0)
		return;
	/* should the answer not get through, the caller's time limit is left */
	answer(service, request, &tail, REPLY_NONE, &none, NULL, NULL);
	tail.call = 0;
	channel_set_note(request, &tail);
}
