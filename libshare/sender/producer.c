/* SPDX-License-Identifier: MIT */

/*
 * Sending. The signal comes first, once for all messages of a call: whoever gets one of them waits
 * for it. What there is no room for waits, fails or drops others, as the channel has it; consumers
 * that keep a producer waiting for too long are left behind.
 */

#include <errno.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "base/probe.h"
#include "libshare/program/error.h"
#include "libshare/segment/segment.h"
#include "libshare/sender/inside.h"

struct sending {
	const struct channel_target *to;
	struct ring_fence fence;
	int timeout_ms;
	bool waits;
};

/* There is room for a message with a loan, which first needs a lease of our own. */
#define NEEDS_LEASE 1

/* ------------------------------------------------------------------------------------------- */
/* Into the ring                                                                               */

/* The first of several buffers that is a loan; NULL: none is. */
static share_buffer *first_loan(const share_outgoing *m)
{
	for (uint32_t i = 0; i < m->n_buffers; i++) {
		share_buffer *b = buffer_of(m->buffers[i]);

		if (atomic_load_explicit(&b->lent, memory_order_acquire))
			return b;
	}
	return NULL;
}

/* There is room for them: a reference of the message's on each. */
static void refer_to_all(struct sender *sender, const share_outgoing *m, struct ring_fence given,
			 struct channel_sent *sent)
{
	bool is_given = m->flags & SHARE_OUTGOING_GIVE;

	for (uint32_t i = 0; i < m->n_buffers; i++) {
		share_buffer *b = buffer_of(m->buffers[i]);
		struct channel_sent *each = sender->unsent;

		sender->unsent = each->next;
		each->buffer = b;
		each->given = is_given ? given : (struct ring_fence){0, 0};
		each->further = NULL;
		if (i > 0)
			sent->further = each;
		sent = each;
	}
}

static struct ring_further further_of(const share_buffer *b)
{
	return (struct ring_further){
	    .buffer = b->id, .segment = b->segment->id, .offset = b->offset, .size = b->size};
}

/* Of a message of several: 0, NEEDS_LEASE or negative errno. Each of them is counted before others
 * can have it, as it may come back at once. */
static int put_several(struct sender *sender, const share_outgoing *m, const struct sending *s)
{
	struct ring_further further[CHANNEL_BUFFERS_MAX - 1];
	const share_buffer *first = buffer_of(m->buffers[0]);
	struct channel_sent *sent = sender->unsent;
	struct ring_message out = {
	    .buffer = first->id,
	    .segment = first->segment->id,
	    .offset = first->offset,
	    .size = first->size,
	    .fence = s->fence,
	    .deliveries = m->deliveries,
	    .data_size = (uint32_t)m->data_size,
	    .data = (unsigned char *)(uintptr_t)m->data, /* for looking only */
	    .n_further = m->n_buffers - 1,
	    .further = further,
	};
	int r;

	if (first_loan(m)) {
		r = ring_producer_look_for_room(sender->ring, s->to ? s->to->slot : 0,
						m->n_buffers);
		return r == 0 ? NEEDS_LEASE : r;
	}
	for (uint32_t i = 0; i < m->n_buffers; i++) {
		share_buffer *b = buffer_of(m->buffers[i]);

		if (i > 0)
			further[i - 1] = further_of(b);
		if (!(m->flags & SHARE_OUTGOING_GIVE))
			buffer_ref(b);
		buffer_message_sent(b);
	}
	r = ring_producer_send_several(sender->ring, &out, s->to ? s->to->slot : 0, sent);
	if (r == 0) {
		PROBE(send, sender->ch->member, out.buffer, out.data_size);
		refer_to_all(sender, m, s->fence, NULL);
		sender->with_memory++;
		return 0;
	}
	for (uint32_t i = 0; i < m->n_buffers; i++) {
		share_buffer *b = buffer_of(m->buffers[i]);

		buffer_message_over(b);
		if (!(m->flags & SHARE_OUTGOING_GIVE)) /* never the last one */
			atomic_fetch_sub_explicit(&b->refs, 1, memory_order_relaxed);
	}
	return r;
}

/* 0, NEEDS_LEASE or negative errno. What was given is not the caller's any more, and may be gone.
 */
static int put(struct sender *sender, const share_outgoing *m, const struct sending *s)
{
	struct ring_message out;
	struct channel_sent *sent = sender->unsent;
	share_buffer *b = buffer_of(m->buffer);
	bool given = m->flags & SHARE_OUTGOING_GIVE;
	int r;

	if (__builtin_expect(m->n_buffers > 1, 0))
		return put_several(sender, m, s);
	if (b && atomic_load_explicit(&b->lent, memory_order_acquire)) {
		r = ring_producer_look_for_room(sender->ring, s->to ? s->to->slot : 0, 1);
		return r == 0 ? NEEDS_LEASE : r;
	}
	out.buffer = b ? b->id : 0;
	out.segment = b ? b->segment->id : 0;
	out.offset = b ? b->offset : 0;
	out.size = b ? b->size : 0;
	out.fence = s->fence;
	out.n_further = 0;
	out.deliveries = m->deliveries;
	out.data_size = (uint32_t)m->data_size;
	out.data = (unsigned char *)(uintptr_t)m->data; /* for looking only */
	if (b && !given)
		buffer_ref(b);
	if (b)
		buffer_message_sent(b);
	/* without one, all tickets are in use */
	r = ring_producer_send(sender->ring, &out, s->to ? s->to->slot : 0, sent);
	if (r == 0) {
		PROBE(send, sender->ch->member, out.buffer, out.data_size);
		sent->buffer = b;
		sent->given = given ? s->fence : (struct ring_fence){0, 0};
		sender->unsent = sent->next;
		sender->with_memory += b != NULL;
	} else if (b) {
		buffer_message_over(b);
		if (!given) /* never the last one: the caller has it */
			atomic_fetch_sub_explicit(&b->refs, 1, memory_order_relaxed);
	}
	return r;
}

static bool is_there(struct sender *sender, const struct channel_target *to)
{
	const struct channel_peer *p =
	    &sender->members->peers[to->slot & (CHANNEL_MEMBERS_MAX - 1)];

	return to->slot < sender->ch->shape.consumers && p->member == to->member &&
	       p->page == to->page && p->known && !p->left;
}

/* Acknowledgements are looked at only if they can help: their lines are what consumers write. */
static int put_once_more_unlocking(struct sender *sender, const share_outgoing *m,
				   const struct sending *s)
{
	/* the ring is the broker's then, and what is in it */
	if (ring_producer_lacks_tickets(sender->ring) && !sender->members->given_up)
		sender_reclaim_unlocking(sender);
	return sender->members->given_up ? wait_given_up() : put(sender, m, s);
}

static int put_again_unlocking(struct sender *sender, const share_outgoing *m,
			       const struct sending *s)
{
	int r = put_once_more_unlocking(sender, m, s);

	/* each time another message has gone for it */
	for (uint32_t i = 0;
	     r == -EAGAIN && i < CHANNEL_BUFFERS_MAX && ring_producer_has_made_way(sender->ring);
	     i++)
		r = put_once_more_unlocking(sender, m, s);
	return r;
}

/* Sleeps, unless there is room after all: 0, -EAGAIN, or an error. */
static int sleep_unlocking(struct sender *sender, const share_outgoing *m, const struct sending *s,
			   int left)
{
	struct members *members = sender->members;
	struct ring_sleep sleep;
	int r;

	if (members->asleep) {
		r = members_wait_unlocking(members, sender_slice(sender, left));
		return r == 0 ? -EAGAIN : r;
	}
	members->sleeper = waiter_take(sender->ch->client);
	if (!members->sleeper)
		return SHARE_ENOMEM;
	members->asleep = true;
	ring_producer_sleep(sender->ring, sender_wants_doorbell(sender), &sleep);
	r = put_again_unlocking(sender, m, s);
	if (r == -EAGAIN && !members_are_out_of_date(members)) {
		int slice = sender_slice(sender, left), ended;

		/* the doorbell is the background thread's, which passes it on */
		if (sleep.word) {
			ended = members_sleep_unlocking(members, &sleep, slice);
		} else {
			members->sleeps++;
			ended = members_wait_unlocking(members, slice);
		}
		r = ended < 0 ? ended : -EAGAIN;
	}
	members->asleep = false;
	waiter_give_back(members->sleeper);
	members->sleeper = NULL;
	sender_awake(sender);
	bell_ring(&sender->ch->changed);
	return r;
}

/* What came of asking who takes part. The broker does not know a member any more that another
 * thread has given up, and what is in the ring is the closing thread's then. */
static int result_of_sync(const struct sender *sender, int r)
{
	if (sender->members->given_up)
		return wait_given_up();
	return r == 1
		   ? fail_constant(SHARE_ETIMEDOUT,
				   "the broker has not said within the time limit who takes part")
		   : r;
}

/* One message that did not fit at once: 0, NEEDS_LEASE or an error. */
static int put_full_unlocking(struct sender *sender, const share_outgoing *m,
			      const struct sending *s)
{
	int64_t deadline = s->waits ? deadline_from(s->timeout_ms) : -1;

	for (;;) {
		int r, left = s->waits ? deadline_left(deadline) : 0;

		if (members_are_out_of_date(sender->members)) {
			r = members_sync_until_unlocking(sender->members, s->waits ? deadline : -1);
			if (r != 0)
				return result_of_sync(sender, r);
		}
		if (s->to && !is_there(sender, s->to))
			return fail(SHARE_ENOENT, "that consumer is not there any more");
		r = put_again_unlocking(sender, m, s);
		if (r == -EAGAIN && sender_leave_stalled_unlocking(sender))
			continue;
		if (r == -EAGAIN) {
			int lost;

			sender_want_tickets(sender);
			lost = members_look_for_broker(sender->members);
			if (lost != 0)
				return lost;
			if (members_are_out_of_date(sender->members))
				continue;
		}
		if (r == -EAGAIN && left != 0)
			r = sleep_unlocking(sender, m, s, left);
		else if (r == -EAGAIN && sender_arm(sender, READY_SEND))
			r = put_again_unlocking(sender, m, s);
		if (r == -EAGAIN && left == 0)
			return sender_no_room(sender, s->waits);
		if (r == -ENOENT)
			return fail(SHARE_ENOENT, "that consumer is not there any more");
		if (r != -EAGAIN)
			return r;
	}
}

/* So that the broker knows who has the memory as long as the message is in flight. */
static int lease_unlocking(struct sender *sender, const share_outgoing *m)
{
	int r;
	share_buffer *b = m->n_buffers > 1 ? first_loan(m) : buffer_of(m->buffer);

	if (!b)
		return 0; /* another thread has got one for each meanwhile */
	channel_unlock(sender->ch);
	r = channel_retain(b);
	channel_lock(sender->ch);
	return sender->members->given_up ? wait_given_up() : r;
}

/* How many, or an error when there were none. */
static int put_all_unlocking(struct sender *sender, const share_outgoing *messages, size_t n,
			     const struct sending *s)
{
	size_t done = 0;
	int r = 0;

	while (r == 0 && done < n) {
		r = put(sender, &messages[done], s);
		if (r == -EAGAIN && done == 0) {
			sender->blocked += s->waits;
			r = put_full_unlocking(sender, &messages[0], s);
			sender->blocked -= s->waits;
			if (r < 0)
				return r;
		} else if (r == -EAGAIN && ring_producer_lacks_tickets(sender->ring)) {
			r = put_again_unlocking(sender, &messages[done], s);
		}
		if (r == 0) {
			done++;
		} else if (r == NEEDS_LEASE) {
			r = lease_unlocking(sender, &messages[done]);
			if (r != 0 && done == 0)
				return r;
		}
	}
	if (done == 0)
		return fail(SHARE_ENOENT, "that consumer is not there any more");
	return (int)done;
}

#define COLLECT_AT_ONCE 64

/* How many messages to take back, if they were acknowledged, after @sent messages are on their way.
 * Memory is wanted soon, while it is warm: more of these than were sent, so that it keeps up; not
 * many, so that nobody waits for it. Tickets alone are taken back when half of them are gone, and
 * then many, as to look for each message would pull the lines of acknowledgements to and fro
 * between us and consumers. */
static size_t how_many_to_collect(const struct sender *sender, int sent)
{
	size_t few = 2 * (size_t)(sent > 0 ? sent : 1) + 2;

	if (sent > 0 && !ring_producer_has_plenty(sender->ring))
		return few > COLLECT_AT_ONCE ? few : COLLECT_AT_ONCE;
	return sender->with_memory > 0 || !STAILQ_EMPTY(&sender->cooling) ? few : 0;
}

/* Those of its buffers that a message gives. */
static uint32_t n_given(const share_outgoing *m)
{
	if (!m->buffer || !(m->flags & SHARE_OUTGOING_GIVE))
		return 0;
	return m->n_buffers > 1 ? m->n_buffers : 1;
}

static share_buffer *nth_buffer(const share_outgoing *m, uint32_t i)
{
	return i == 0 ? m->buffer : m->buffers[i];
}

/* The first @n of those are the caller's still. */
static void keep_first(const share_outgoing *m, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		handle_keep(buffer_of(nth_buffer(m, i)));
}

/* So are all of those that were not sent. */
static void keep_given(const share_outgoing *messages, size_t from, size_t n)
{
	for (size_t i = from; i < n; i++)
		keep_first(&messages[i], n_given(&messages[i]));
}

/* From the caller: all that are given, or none and an error. */
static int take_given(const share_outgoing *messages, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < n_given(&messages[i]); k++) {
			share_buffer *handle = nth_buffer(&messages[i], k);

			if (handle_take(handle, HANDLE_BUFFER))
				continue;
			keep_first(&messages[i], k);
			keep_given(messages, 0, i);
			return handle_fault(handle, HANDLE_BUFFER);
		}
	return 0;
}

static int send_taken(share_channel *ch, const struct channel_target *to,
		      const share_outgoing *messages, size_t n, void *stream, int timeout_ms,
		      struct ring_fence *signalled)
{
	struct sender *sender;
	struct sending s = {.to = to, .timeout_ms = timeout_ms, .waits = timeout_ms != 0};
	struct channel_returns returns;
	size_t collect;
	int r = channel_signal_for(ch, messages, n, stream, &s.fence), done;

	if (r != 0)
		return r;
	if (signalled)
		*signalled = s.fence;
	sender = sender_lock(ch);
	sender->members->waiting++;
	if (members_are_out_of_date(sender->members) && !MUTATION(send_without_looking))
		r = members_sync_until_unlocking(sender->members,
						 timeout_ms > 0 ? deadline_from(timeout_ms) : -1);
	r = result_of_sync(sender, r);
	if (r == 0 && to && !is_there(sender, to))
		r = fail(SHARE_ENOENT, "there is no such consumer");
	done = r != 0 ? r : put_all_unlocking(sender, messages, n, &s);
	sender->members->waiting--;
	if (r != 0 || sender->members->given_up) {
		channel_unlock_and_end(ch);
		return done;
	}
	if (done > 0) {
		members_ring_doorbells(sender->members, ring_producer_wake(sender->ring));
		sender_has_room(sender);
		if (sender->ready.armed & (READY_SEND | READY_REFUSED) || sender->ready.of_service)
			sender_found_room(sender);
		background_rouse(sender);
	}
	returns.n = 0;
	collect = how_many_to_collect(sender, done);
	if (collect > 0) {
		sender_cool(sender, false);
		sender_collect(sender, false, collect, &returns);
	}
	if (sender->backlog || ch->shape.mode != CHANNEL_BROADCAST)
		sender_watch_backlog_unlocking(sender);
	channel_unlock(ch);
	if (returns.n > 0)
		channel_give_back(&returns);
	return done;
}

/* As most are that are sent one after the other; channel_check_outgoing() says what all can be. */
static bool is_nothing_but_data(const share_channel *ch, const share_outgoing *m,
				const void *stream)
{
	return !m->buffer && !stream && (m->flags | m->deliveries | m->reserved) == 0 &&
	       m->data_size <= ch->shape.data_max && (m->data || m->data_size == 0);
}

int channel_send(share_channel *ch, const struct channel_target *to, const share_outgoing *messages,
		 size_t n, void *stream, int timeout_ms, struct ring_fence *signalled)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		if (!is_nothing_but_data(ch, &messages[i], stream))
			r = channel_check_outgoing(ch, &messages[i], stream);
	if (r == 0)
		r = take_given(messages, n);
	if (r != 0)
		return r;
	r = send_taken(ch, to, messages, n, stream, timeout_ms, signalled);
	keep_given(messages, r > 0 ? (size_t)r : 0, n);
	return r;
}
