/* SPDX-License-Identifier: MIT */

/*
 * Receiving. A message is taken from its ring with the channel's lock held, then its memory is made
 * reachable and the stream ordered without. What cannot be done yet for a reason that may pass (a
 * time limit, want of memory) leaves the message in a stash, from which the next call takes it.
 */

#include <share/private/core.h>

#include "base/clock.h"
#include "libshare/order/order.h"
#include "libshare/program/error.h"
#include "libshare/program/range.h"
#include "libshare/receiver/inside.h"
#include "libshare/segment/segment.h"

#define WORK_MS 1 /* so often an event loop looks for work that a message comes after */

/* What is there in one step, with nothing else to be learnt, waited for or said. */
static bool is_as_it_was(const struct receiver *receiver)
{
	const struct members *members = receiver->members;

	return STAILQ_EMPTY(&receiver->stash) && !members_are_out_of_date(members) &&
	       !receiver->stale && !members->given_up && !members->closed &&
	       receiver->orphans.waiting == 0;
}

/* Nobody has to be told that there is nothing, and nothing is to be told in its place. */
static bool is_quiet(const struct receiver *receiver)
{
	return !receiver->members->some_gone && !receiver->members->wants_fd && !receiver->slow &&
	       (receiver->looks + 1) % RECEIVER_LOOKS != 0;
}

static bool is_data_alone(const share_message *m)
{
	return !m->buffer && !m->after;
}

/* What there is, with the lock. The last message may be one that is not data alone, and has yet to
 * be reached and ordered; the others are ready. 0, an error, or SHARE_EAGAIN: there is no more. */
static int take_all_there(struct receiver *receiver, share_message *out, size_t stride, size_t n,
			  size_t *done)
{
	while (*done < n) {
		uint32_t most = n - *done < RECEIVER_RUN ? (uint32_t)(n - *done) : RECEIVER_RUN;
		uint32_t there = ring_consumer_look(receiver->ring, most);
		share_message *first = message_at(out, *done, stride);
		int r;

		if (there == 0 && is_quiet(receiver)) {
			receiver->looks++;
			receiver_wake_producers(receiver);
			return SHARE_EAGAIN;
		}
		if (there == 0)
			return 0;
		if (*done > 0)
			message_prepare(first, stride);
		r = receiver_take_run(receiver, first, stride, there);
		if (r <= 0)
			return r;
		*done += (size_t)r;
		/* only so many of others come from then on: that is looked at elsewhere */
		if (receiver->stale || !is_data_alone(first))
			return 0;
	}
	return 0;
}

/* The same for a channel of which nothing else is to be said or learnt: otherwise 0, and nothing is
 * done. */
static int receive_at_once(share_channel *ch, share_message *out, size_t stride, size_t n,
			   size_t *done)
{
	struct receiver *receiver = receiver_lock(ch);
	int r = 0;

	if (is_as_it_was(receiver))
		r = take_all_there(receiver, out, stride, n, done);
	channel_unlock(ch);
	return r;
}

/* There is a message whose memory is not to be used. */
static void spoil(share_message *m, int error)
{
	share_channel *ch = channel_of(m->channel);

	receiver_free_loans(receiver_lock(ch), m);
	channel_unlock(ch);
	message_without_buffer(m);
	m->after = 0;
	m->error = error;
}

/* Its memory can be used from here on, if there is any: 1, or an error. */
static int reach(share_channel *ch, share_message *m)
{
	int r = m->buffer ? lent_reach(ch, buffer_of(m->buffer)) : 0;

	for (uint32_t i = 1; r == 0 && i < m->n_buffers; i++)
		r = lent_reach(ch, buffer_of(m->buffers[i]));
	if (r == 0)
		return 1;
	/* of this process, or of its user; but an answer is one call's, which fails */
	if (r == SHARE_ENOMEM || (r == SHARE_EQUOTA && ch->shape.mode != CHANNEL_DIRECT)) {
		channel_stash(ch, m, RECEIVER_SLOW_MS);
		return r;
	}
	spoil(m, r);
	return 1;
}

/* 1, or an error. */
static int receive(share_channel *ch, int timeout_ms, int64_t deadline, share_message *out)
{
	struct receiver *receiver;
	int r;

	out->channel = NULL;
	receiver = receiver_lock(ch);
	receiver->members->waiting++;
	r = receiver_wait_unlocking(receiver, timeout_ms, deadline, out);
	receiver->members->waiting--;
	channel_unlock_and_end(ch);
	return r == 1 ? reach(ch, out) : r;
}

int channel_order(share_message *m, void *stream, int timeout_ms)
{
	int r = lent_order(m, stream, timeout_ms);

	if (r != SHARE_EOWNERDEAD && r != SHARE_EDEVICE)
		return r;
	spoil(m, r);
	return 0;
}

/* 0: there is none that is not over. */
static int64_t deadline_of(int timeout_ms)
{
	return timeout_ms == 0 || timeout_ms == RECEIVER_LOOKS_ONLY ? 0 : deadline_from(timeout_ms);
}

/* 1, or an error: it is stashed then. */
static int order_or_stash(share_channel *ch, int64_t deadline, void *stream, share_message *out)
{
	const share_buffer *b;
	int r;

	if (is_data_alone(out))
		return 1;
	b = buffer_of(out->buffer);
	r = b ? stream_check(ch->client, b->segment->kind, stream) : 0;
	if (r == 0 && (out->after || b->giver.page))
		r = channel_order(out, stream, deadline_left(deadline));
	if (r == 0)
		return 1;
	channel_stash(ch, out, WORK_MS);
	return r == SHARE_ETIMEDOUT && deadline == 0
		   ? fail(SHARE_EAGAIN, "the work of the next message's producer is still running")
		   : r;
}

static int check_limit(int timeout_ms)
{
	return timeout_ms >= -1
		   ? 0
		   : fail(SHARE_EINVAL, "a time limit is -1, 0, or milliseconds, not %d",
			  timeout_ms);
}

int channel_receive(share_channel *ch, int timeout_ms, share_message *out)
{
	int r = check_limit(timeout_ms);
	size_t done = 0;

	if (r == 0)
		r = receive_at_once(ch, out, sizeof(*out), 1, &done);
	if (done == 1)
		r = reach(ch, out);
	else if (r == SHARE_EAGAIN && timeout_ms == 0)
		r = fail_constant(SHARE_EAGAIN, RECEIVER_NO_MESSAGE);
	else if (r == 0 || r == SHARE_EAGAIN)
		r = receive(ch, timeout_ms, deadline_of(timeout_ms), out);
	return r > 0 ? 0 : r;
}

void channel_put_back(share_message *m)
{
	channel_stash(channel_of(m->channel), m, WORK_MS);
}

/* In memory that is mapped here, and with nothing to come after. */
static bool is_at_hand(share_channel *ch, const share_message *m)
{
	share_buffer *b = buffer_of(m->buffer);

	if (!b)
		return m->after == 0;
	for (uint32_t i = 1; i < m->n_buffers; i++)
		if (!lent_is_mapped(ch, buffer_of(m->buffers[i])))
			return false;
	return !b->giver.page && lent_is_mapped(ch, b) && !b->segment->kind->on_device;
}

int share_try_recv(share_channel *ch, share_message *out)
{
	HAZARDS;
	struct receiver *receiver;
	int r = message_begin(out);

	if (r == 0)
		r = channel_resolve_as(&ch, SHARE_CONSUMER);
	if (r != 0)
		return r;
	receiver = receiver_trylock(ch);
	if (receiver) {
		if (STAILQ_EMPTY(&receiver->stash) && !members_are_out_of_date(receiver->members) &&
		    !receiver->stale && !receiver->members->given_up)
			r = receiver_take_run(receiver, out, 0, 1);
		channel_unlock(ch);
	}
	if (r == 1 && !is_at_hand(ch, out)) {
		channel_stash(ch, out, 0);
		r = 0;
	}
	if (r == 0)
		return fail_constant(SHARE_EAGAIN, "there is no message at hand");
	return r > 0 ? 0 : r;
}

/* More messages, of which @done are there already: 1, or why there are no more. */
static int receive_more(share_channel *ch, int timeout_ms, void *stream, share_message *out,
			size_t n, size_t *done)
{
	size_t stride = out->size, before = *done;
	int64_t deadline = deadline_of(timeout_ms);
	int r = receive_at_once(ch, out, stride, n, done);
	share_message *m;

	if (*done > before) {
		m = message_at(out, *done - 1, stride);
		if (!is_data_alone(m)) {
			r = reach(ch, m);
			if (r == 1)
				r = order_or_stash(ch, deadline, stream, m);
			*done -= r != 1;
		}
		return r == 0 ? 1 : r;
	}
	if (r == SHARE_EAGAIN && timeout_ms == RECEIVER_LOOKS_ONLY)
		return r;
	if (r == SHARE_EAGAIN && timeout_ms == 0)
		return fail_constant(r, RECEIVER_NO_MESSAGE);
	if (r != 0 && r != SHARE_EAGAIN)
		return r;
	m = message_at(out, *done, stride);
	if (*done > 0)
		message_prepare(m, stride);
	r = receive(ch, timeout_ms, deadline, m);
	if (r == 1)
		r = order_or_stash(ch, deadline, stream, m);
	*done += r == 1;
	return r;
}

int share_recv_many(share_channel *ch, int timeout_ms, void *stream, share_message *out, size_t n)
{
	RANGE("share_recv", 0);
	HAZARDS;
	size_t done = 0;
	int r = n == 0 || n > INT32_MAX ? fail(SHARE_EINVAL, "%zu is no number of messages", n)
					: message_begin(out);

	if (r == 0)
		r = channel_resolve_as(&ch, SHARE_CONSUMER);
	if (r == 0)
		r = check_limit(timeout_ms);
	if (r == 0)
		r = stream_check(ch->client, NULL, stream);
	if (r == 0)
		r = receive_more(ch, timeout_ms, stream, out, n, &done);
	while (r == 1 && done < n)
		r = receive_more(ch, RECEIVER_LOOKS_ONLY, stream, out, n, &done);
	if (done == 0)
		return r;
	if (r == SHARE_EPIPE || r == SHARE_EOWNERDEAD)
		channel_tell_end_again(ch);
	return (int)done;
}
