/* SPDX-License-Identifier: MIT */

/*
 * Receiving. A message is taken from its ring with the channel's lock held, then its memory is made
 * reachable and the stream ordered without. What cannot be done yet for a reason that may pass (a
 * time limit, want of memory) leaves the message in a stash, from which the next call takes it.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <share/private/core.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "base/probe.h"
#include "libshare/buffer/segment.h"
#include "libshare/channel/data.h"
#include "libshare/order/order.h"
#include "libshare/program/error.h"
#include "libshare/program/range.h"

#define SPINS    20 /* looks before going to sleep: about a microsecond */
#define VAIN     4  /* spins for nothing, after which it is not done again but now and then */
#define AGAIN    64
#define SLICE_MS 500

/* That long the broker is given to say who has come or gone, whatever the time limit: that there is
 * nothing to receive is true then, and it takes no time unless the broker is stopped. Without an
 * answer we go on, and look so often whether there is one. */
#define PATIENCE_MS 500
#define SLOW_MS     20
#define WORK_MS     1 /* so often an event loop looks for work that a message comes after */

/* While orphans wait, so many messages of who is there come before one of these is asked for. */
#define ORPHAN_TURN 16

#define LOOK_ONLY (-2) /* as a time limit: 0, without being asked again */
#define LOOKS     1024 /* until it is seen that a producer has died, by who never sleeps */

#define NO_MESSAGE "there is no message"

static int nothing_yet(const struct receiver *receiver, int timeout_ms)
{
	if (timeout_ms == LOOK_ONLY)
		return SHARE_EAGAIN;
	if (receiver->slow)
		return fail_constant(timeout_ms == 0 ? SHARE_EAGAIN : SHARE_ETIMEDOUT,
				     "there is no message of the producers that are known, but the "
				     "broker has not answered who else has come");
	if (timeout_ms == 0)
		return fail_constant(SHARE_EAGAIN, NO_MESSAGE);
	return fail_constant(SHARE_ETIMEDOUT,
			     members_count(receiver->members) > 0
				 ? "no message came within the time limit"
				 : "no message came within the time limit: the channel has no "
				   "producer");
}

/* ------------------------------------------------------------------------------------------- */
/* One message out of its ring                                                                 */

static void no_buffer(share_message *m)
{
	m->buffer = NULL;
	m->buffers = NULL;
	m->n_buffers = 0;
}

static void fill(struct receiver *receiver, uint32_t row, const struct ring_message *m,
		 uint64_t lost, share_message *out)
{
	out->number = m->number;
	out->lost = lost;
	out->producer = receiver->members->peers[row].member;
	out->deliveries = m->deliveries;
	out->data_size = m->data_size;
	out->channel = handle_of(receiver->ch);
	out->receipt = RECEIPT(row, m->ticket, m->version);
	data_keep(receiver, out);
	out->error = 0;
	out->reserved = 0;
	out->after = 0;
	if (m->buffer == 0) /* else its handle has it */
		out->after = CHANNEL_PACK(CHANNEL_LARGE(m->fence.value), m->fence.slot);
	no_buffer(out);
}

void receiver_become_stale(struct receiver *receiver)
{
	const struct channel_shape *shape = &receiver->ch->shape;

	if (!receiver->stale)
		receiver->before_stale = (uint64_t)shape->rows * shape->depth;
	receiver->stale = true;
}

/* The buffers behind the first one, for which handles are reserved. Their fence is that one's. */
static __attribute__((noinline)) void hand_out_further(struct receiver *receiver, uint32_t row,
						       const struct ring_message *m,
						       share_message *out)
{
	struct channel_data *d = data_find(receiver, out);
	struct ring_message one = *m;

	d->n_further = m->n_further;
	d->handles[0] = out->buffer;
	for (uint32_t i = 0; i < m->n_further; i++) {
		struct lent_buffer *l = lent_new(receiver);

		one.buffer = m->further[i].buffer;
		one.segment = m->further[i].segment;
		one.offset = m->further[i].offset;
		one.size = m->further[i].size;
		one.ticket = m->further[i].ticket;
		one.version = m->further[i].version;
		d->handles[i + 1] = handle_lend(&l->b);
		(void)lent_fill(receiver, l, row, &one);
	}
	out->buffers = d->handles;
	out->n_buffers = 1 + m->n_further;
}

/* It was taken from its ring, and a handle is reserved. */
static inline __attribute__((always_inline)) void hand_out(struct receiver *receiver, uint32_t row,
							   const struct ring_message *m,
							   uint64_t lost, share_message *out)
{
	struct lent_buffer *l;

	lost += receiver->orphans.lost - receiver->orphans.lost_told;
	receiver->orphans.lost_told = receiver->orphans.lost;
	fill(receiver, row, m, lost, out);
	PROBE(receive, receiver->ch->member, m->buffer, out->data_size, out->number);
	receiver->members->held++;
	if (m->buffer == 0)
		return;
	l = lent_new(receiver);
	l->handle = handle_lend(&l->b);
	out->buffer = l->handle;
	out->buffers = &l->handle;
	out->n_buffers = 1;
	if (lent_fill(receiver, l, row, m)) {
		if (__builtin_expect(m->n_further > 0, 0))
			hand_out_further(receiver, row, m, out);
		return;
	}
	no_buffer(out);
	lent_free(receiver, l);
	out->error = fail(SHARE_EPROTO, "a producer sent a fence that is none");
	if (m->n_further > 0) /* they are acknowledged with it */
		data_find(receiver, out)->n_further = m->n_further;
}

/* There is a message whose memory is not to be used. */
static void spoil(share_message *m, int error)
{
	share_channel *ch = channel_of(m->channel);
	struct receiver *receiver;

	if (m->buffer) {
		receiver = receiver_lock(ch);
		lent_free(receiver, lent_of(buffer_of(m->buffer)));
		receiver_free_further(receiver, m);
		channel_unlock(ch);
	}
	no_buffer(m);
	m->after = 0;
	m->error = error;
}

/* Of an array whose elements may be larger than ours. */
static share_message *message_at(share_message *out, size_t i, size_t stride)
{
	return (share_message *)(void *)((char *)out + i * stride);
}

/* It is one of these from here on. */
static void prepare(share_message *m, size_t stride)
{
	m->size = stride;
	if (stride > sizeof(*m)) /* a program that knows more */
		memset(m + 1, 0, stride - sizeof(*m));
}

/* So many at most are taken in one step. */
#define RUN 16

/* Where a message may have several buffers, it is taken by itself. 0: no memory. */
static __attribute__((noinline)) uint32_t prepare_for_several(struct receiver *receiver,
							      struct ring_message *m)
{
	if (!lent_reserve_all(receiver, channel_buffers(&receiver->ch->shape)) ||
	    data_places(receiver, m, 1) == 0)
		return 0;
	m->further = receiver->free_data->further;
	receiver->free_data->n_further = receiver->free_data->retained = 0;
	return 1;
}

/* A message, which could not be put back, is taken when there are places for it: for so many of @n.
 */
static inline uint32_t prepare_places(struct receiver *receiver, struct ring_message *m, uint32_t n)
{
	if (__builtin_expect(receiver->ch->shape.buffers > 1, 0))
		return prepare_for_several(receiver, m);
	return lent_reserve(receiver) ? data_places(receiver, m, n) : 0;
}

/* Up to @n messages that are there and are data alone, or one of another kind: how many, 0 when
 * there is none, or an error. */
static int take_run(struct receiver *receiver, share_message *out, size_t stride, uint32_t n)
{
	struct ring_message m[RUN];
	uint64_t lost = 0;
	uint32_t row = 0;
	int r;

	if (receiver->ch->latest && receiver->members->held >= CHANNEL_LATEST_HELD)
		return fail(SHARE_EBUSY,
			    "this consumer gets the latest alone, and has %d messages: it has to "
			    "acknowledge one first",
			    CHANNEL_LATEST_HELD);
	n = prepare_places(receiver, m, n < RUN ? n : RUN);
	if (n == 0)
		return fail_system(-ENOMEM, "receiving a message");
	while ((r = ring_consumer_receive_run(receiver->ring, &row, m, n, &lost)) == -ESTALE)
		receiver_become_stale(receiver);
	if (r > 0 && receiver->stale)
		receiver->before_stale -=
		    (uint64_t)r < receiver->before_stale ? (uint64_t)r : receiver->before_stale;
	for (int i = 0; i < r; i++, lost = 0) {
		share_message *to = message_at(out, (size_t)i, stride);

		if (i > 0)
			prepare(to, stride);
		hand_out(receiver, row, &m[i], lost, to);
	}
	data_leave(receiver, m + (r > 0 ? r : 0), n - (r > 0 ? (uint32_t)r : 0));
	if (r == -EPROTO)
		return fail(SHARE_EPROTO, "what a producer has written makes no sense");
	return r;
}

/* 1 and a message, 0 when there is none, or an error. */
static int take(struct receiver *receiver, share_message *out)
{
	return take_run(receiver, out, 0, 1);
}

/* Answers 1 and a message. */
static int take_from_stash(struct receiver *receiver, share_message *out)
{
	struct channel_stashed *s = STAILQ_FIRST(&receiver->stash);

	STAILQ_REMOVE_HEAD(&receiver->stash, link);
	struct_out(share_message, out, &s->message);
	if (s->message.error != 0)
		fail(s->message.error, "%s", share_strerror(s->message.error));
	free(s);
	return 1;
}

/* Whoever waits may have it: another thread, and an event loop in so many milliseconds, before
 * which it would only be told the same. What came meanwhile is seen then as well. */
static void tell_of_stash(struct receiver *receiver, int ms)
{
	const struct members *members = receiver->members;

	if (members->sleeper)
		waiter_wake(members->sleeper);
	if (members->asleep || !members->wants_fd)
		return;
	if (ms > 0)
		channel_drain_doorbell(receiver->ch);
	receiver_look_again(receiver, ms);
}

/* For the next call, which may have it in so many milliseconds. */
static void stash(share_channel *ch, share_message *m, int ms)
{
	struct receiver *receiver;
	struct channel_stashed *s = malloc(sizeof(*s));

	if (!s) { /* a loss in broadcast, and said: it is as if it had been dropped */
		channel_ack_unused(m);
		return;
	}
	s->message = *m;
	s->message.size = sizeof(s->message);
	m->channel = NULL;
	no_buffer(m);
	receiver = receiver_lock(ch);
	STAILQ_INSERT_TAIL(&receiver->stash, s, link);
	/* by another thread: nobody would take it */
	if (receiver->members->given_up || receiver->members->closed)
		receiver_drop_stash(receiver);
	else
		tell_of_stash(receiver, ms);
	bell_ring(&ch->changed);
	channel_unlock_and_end(ch);
}

/* ------------------------------------------------------------------------------------------- */
/* Messages of producers that are gone, which the broker gives to who has nothing else          */

void receiver_apply_orphans(struct receiver *receiver, const struct wire_channel_members *m)
{
	struct channel_stashed *s;
	struct ring_message message;
	struct channel_peer *p;
	uint32_t row = 0;

	receiver->orphans.asked = receiver->orphans.wanted && !m->given;
	receiver->orphans.wanted = false;
	receiver->orphans.waiting = m->waiting;
	receiver->orphans.others = m->others;
	receiver->orphans.lost = m->lost;
	if (!m->given || m->more || m->ticket >= receiver->ch->shape.in_flight)
		return;
	p = receiver->members->peers;
	while (row < receiver->ch->shape.rows &&
	       (p[row].member != m->producer || !p[row].known || p[row].over))
		row++;
	/* what cannot be done now is said again */
	if (row == receiver->ch->shape.rows || prepare_places(receiver, &message, 1) == 0)
		return;
	s = malloc(sizeof(*s));
	if (!s) {
		data_leave(receiver, &message, 1);
		return;
	}
	receiver->orphans.had++;
	/* whose end is something to tell, though it was gone before we came */
	receiver->had_producers = true;
	receiver->members->some_gone = true;
	if (!ring_consumer_fetch(receiver->ring, row, m->ticket, m->version, m->deliveries,
				 &message)) {
		data_leave(receiver, &message, 1);
		free(s);
		return;
	}
	if (m->reached)
		message.fence = (struct ring_fence){0, 0};
	s->message = (share_message)SHARE_MESSAGE_INIT;
	hand_out(receiver, row, &message, 0, &s->message);
	STAILQ_INSERT_TAIL(&receiver->stash, s, link);
}

/* Producers that we do not know yet have to wait where the broker takes its time (is stopped, say):
 * those we know have not, nor has who wants to know that there is nothing. */
static int sync_in_time_unlocking(struct receiver *receiver)
{
	int r = members_sync_until_unlocking(receiver->members,
					     deadline_from(receiver->slow ? 0 : PATIENCE_MS));

	receiver->slow = r == 1;
	return r == 1 ? 0 : r;
}

/* Who holds something is told of the end nevertheless: it may wait for that to give it back. */
static bool orphans_may_come(const struct receiver *receiver)
{
	if (!channel_has_copies(&receiver->ch->shape, receiver->ch->layout) ||
	    receiver->members->alone || receiver->stale || receiver->members->held > 0)
		return false;
	return !receiver->orphans.asked || receiver->orphans.waiting > 0 ||
	       (receiver->orphans.others > 0 && !MUTATION(end_early));
}

/* 1 and a message, 0, or an error. */
static int ask_for_orphan_unlocking(struct receiver *receiver, share_message *out)
{
	int r;

	receiver->orphans.wanted = true;
	/* anything but what it is */
	receiver->members->epoch =
	    atomic_load_explicit(&receiver->ch->control->epoch, memory_order_acquire) - 1;
	r = sync_in_time_unlocking(receiver);
	if (r == 0 && !STAILQ_EMPTY(&receiver->stash))
		r = take_from_stash(receiver, out);
	return r;
}

static bool wants_orphan(const struct receiver *receiver)
{
	return receiver->orphans.waiting > 0 && !receiver->orphans.asked && !receiver->stale &&
	       !receiver->members->alone;
}

/* ------------------------------------------------------------------------------------------- */
/* Waiting for one                                                                             */

/* The last producer has gone, and this was not said yet; or 1: messages that it or others have left
 * may yet come to who has none. */
static int end_of_producers(struct receiver *receiver)
{
	int end = receiver->last_end;

	if (!receiver->had_producers)
		return 0;
	for (uint32_t i = 0; i < receiver->ch->shape.rows; i++) {
		const struct channel_peer *p = &receiver->members->peers[i];

		if (!p->member || p->over)
			continue;
		/* empty, but held: the end of what there is to receive */
		if ((members_is_there(p) && !p->ended) || !p->known ||
		    !ring_consumer_is_empty(receiver->ring, i))
			return 0;
		end = members_end_of(p);
	}
	if (orphans_may_come(receiver))
		return 1;
	receiver->had_producers = false;
	for (uint32_t i = 0; i < receiver->ch->shape.rows; i++)
		receiver->members->peers[i].end_told = true;
	if (end == SHARE_EOWNERDEAD)
		return fail(end, "the last producer of this channel has died");
	return fail(end, "the last producer has closed this channel");
}

/* So many producers that are gone may have a row though they are drained. The other half is for
 * those to come: who has no row for one is expelled. */
static uint32_t spare_rows(const struct receiver *receiver)
{
	return receiver->ch->shape.rows / 2;
}

/* What waits is mostly of those that we know already. */
static bool rows_may_be_wanted(const struct receiver *receiver)
{
	return receiver->orphans.waiting > 0 && !receiver->stale && !receiver->members->alone;
}

/* Of those that are gone: what is drained, and whether it was the last. */
static int look_for_ends_unlocking(struct receiver *receiver, share_message *out)
{
	int r;

	receiver->members->some_gone = false; /* before the lock is given up */
	if (receiver_forget_drained_unlocking(
		receiver, rows_may_be_wanted(receiver) ? spare_rows(receiver) : 0))
		receiver->members->some_gone = true;
	r = end_of_producers(receiver);
	if (r == 1 && !receiver->orphans.asked) {
		r = ask_for_orphan_unlocking(receiver, out);
		if (r == 0)
			r = end_of_producers(receiver);
		else if (r == 1)
			return r;
	}
	if (r != 1)
		return r;
	receiver->members->some_gone = true; /* it is looked again when the broker says something */
	return 0;
}

/* Producers that say themselves that they have closed the channel. */
static void note_ends(struct receiver *receiver)
{
	uint32_t row;

	while (ring_consumer_end(receiver->ring, &row)) {
		receiver->members->peers[row].ended = true;
		receiver->members->some_gone = true;
	}
}

/* Who always has something to receive looks for no ends, and needs rows as well. */
static int learn_who_is_there_unlocking(struct receiver *receiver)
{
	int r = sync_in_time_unlocking(receiver);

	if (r == 0)
		receiver_forget_drained_unlocking(receiver, spare_rows(receiver));
	return r;
}

/* What there is without waiting: 1, 0 or an error. */
static int look_unlocking(struct receiver *receiver, share_message *out)
{
	int r = 0;

	if (!STAILQ_EMPTY(&receiver->stash))
		return take_from_stash(receiver, out);
	if (members_are_out_of_date(receiver->members))
		r = learn_who_is_there_unlocking(receiver);
	else
		receiver->slow = false;
	if (r == 0 && !STAILQ_EMPTY(&receiver->stash))
		return take_from_stash(receiver, out);
	if (r == 0 && wants_orphan(receiver) && ++receiver->orphans.turn % ORPHAN_TURN == 0)
		r = ask_for_orphan_unlocking(receiver, out);
	if (r == 0 && (!receiver->stale || receiver->before_stale > 0))
		r = take(receiver, out);
	if (r != 0)
		return r;
	if (receiver->stale)
		return fail(SHARE_ESTALE,
			    "this consumer kept a producer waiting for too long, or owes "
			    "acknowledgements to too many that are gone: it has to open the "
			    "channel again");
	receiver_wake_producers(receiver);
	if (wants_orphan(receiver)) {
		r = ask_for_orphan_unlocking(receiver, out);
		if (r != 0)
			return r;
	}
	if (++receiver->looks % LOOKS == 0)
		members_look_for_deaths(receiver->members);
	note_ends(receiver);
	/* Who has just closed the channel may have done so as somebody else has come, of whom the
	 * broker has told in the control page before: that is read after the word of the end. While
	 * the broker takes its time, the last one that we know need not be the last either. */
	if (!receiver->members->some_gone || receiver->slow ||
	    (members_are_out_of_date(receiver->members) && !MUTATION(end_without_asking)))
		return 0;
	return look_for_ends_unlocking(receiver, out);
}

/* There is nothing: whether there may be something later. 0, 1 and a message, or an error. */
static int look_for_broker_unlocking(struct receiver *receiver, share_message *out)
{
	int r = members_look_for_broker(receiver->members);

	if (r != 0 || !members_are_out_of_date(receiver->members))
		return r;
	r = look_unlocking(receiver, out);
	return r == 0 ? members_look_for_broker(receiver->members) : r;
}

/* How long to sleep at most; -1: until somebody rings. That is for who sleeps where all ring of
 * whom it may have to hear: producers, the broker of others, and what is left of those that have
 * died. */
static int longest_sleep(const struct receiver *receiver, const struct ring_sleep *s)
{
	if (receiver->slow || receiver->orphans.waiting > 0)
		return SLOW_MS;
	return s->word || s->unsure ? SLICE_MS : -1;
}

/* 0, or an error: the wait is to end. */
static int sleep_for_a_slice_unlocking(struct receiver *receiver, const struct ring_sleep *s,
				       int left)
{
	int most = longest_sleep(receiver, s),
	    slice = most < 0 || (left >= 0 && left < most) ? left : most,
	    r = members_sleep_unlocking(receiver->members, s, slice);

	receiver->orphans.asked = false;
	receiver->sleeps_long = r == 1;
	if (r == 1)
		members_look_for_deaths(receiver->members);
	return r < 0 ? r : 0;
}

/* Sleeps, unless there is something after all: 1, 0 or an error. One thread sleeps for all. */
static int sleep_unlocking(struct receiver *receiver, int64_t deadline, share_message *out)
{
	struct members *members = receiver->members;
	int left = deadline_left(deadline), r;
	struct ring_sleep s;

	if (members->asleep)
		return members_wait_unlocking(members, left);
	members->sleeper = waiter_take(receiver->ch->client);
	if (!members->sleeper)
		return SHARE_ENOMEM;
	members->asleep = true;
	ring_consumer_sleep(
	    receiver->ring,
	    members->wants_fd || (receiver->sleeps_long && waiter_can_poll(members->sleeper)), &s);
	r = look_unlocking(receiver, out);
	/* an event loop that has come meanwhile is to be woken as well */
	if (r == 0 && !(s.word && members->wants_fd) &&
	    (receiver->slow || !members_are_out_of_date(members)))
		r = sleep_for_a_slice_unlocking(receiver, &s, left);
	ring_consumer_awake(receiver->ring);
	members->asleep = false;
	waiter_give_back(members->sleeper);
	members->sleeper = NULL;
	bell_ring(&receiver->ch->changed);
	return r;
}

/* An event loop will be told. */
static int arm_unlocking(struct receiver *receiver, share_message *out)
{
	struct ring_sleep s;
	int r;

	if (!receiver->members->wants_fd || receiver->members->asleep)
		return 0;
	channel_drain_doorbell(receiver->ch);
	members_look_for_deaths(receiver->members);
	ring_consumer_sleep(receiver->ring, true, &s);
	r = look_unlocking(receiver, out);
	if (r != 0) {
		/* what comes from here on is announced by nobody until we are asked again */
		ring_consumer_awake(receiver->ring);
		receiver_look_again(receiver, 0);
	} else if (receiver->slow) {
		receiver_look_again(receiver, SLOW_MS);
	}
	return r;
}

/*
 * For as long as it takes to go to sleep and be woken there is nothing to lose; but where the other
 * side needs this processor, or longer than that in any case, it only costs time. The lock is kept:
 * it is soon over.
 */
static int spin_unlocking(struct receiver *receiver, share_message *out)
{
	int r = 0;

	if (receiver->in_vain >= VAIN && receiver->in_vain++ % AGAIN != 0)
		return 0;
	for (int i = 0; r == 0 && i < SPINS; i++) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
		r = look_unlocking(receiver, out);
	}
	receiver->in_vain = r == 0 ? receiver->in_vain + 1 : 0;
	return r;
}

/* 1, or an error. */
static int wait_unlocking(struct receiver *receiver, int timeout_ms, int64_t deadline,
			  share_message *out)
{
	int r = receiver->members->given_up ? wait_given_up() : look_unlocking(receiver, out);
	bool slept = false;

	if (r == 0 && timeout_ms != LOOK_ONLY)
		r = look_for_broker_unlocking(receiver, out);
	if (r == 0 && timeout_ms != 0 && timeout_ms != LOOK_ONLY)
		r = spin_unlocking(receiver, out);
	if (r == 0 && timeout_ms == 0)
		r = arm_unlocking(receiver, out);
	receiver->sleeps_long = false;
	while (r == 0 && deadline != 0 && deadline_left(deadline) != 0 && !receiver->look_again) {
		slept = true;
		r = sleep_unlocking(receiver, deadline, out);
		if (r == 0 && receiver->members->given_up)
			r = wait_given_up();
		if (r == 0)
			r = look_unlocking(receiver, out);
		if (r == 0)
			r = look_for_broker_unlocking(receiver, out);
	}
	/* the sleep was announced in place of the event loop's, which has to look now */
	if (slept && receiver->members->wants_fd)
		receiver_look_again(receiver, 0);
	if (r == 0)
		receiver->look_again = false;
	return r == 0 ? nothing_yet(receiver, timeout_ms) : r;
}

/* ------------------------------------------------------------------------------------------- */

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
	       (receiver->looks + 1) % LOOKS != 0;
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
		uint32_t most = n - *done < RUN ? (uint32_t)(n - *done) : RUN;
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
			prepare(first, stride);
		r = take_run(receiver, first, stride, there);
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
		stash(ch, m, SLOW_MS);
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
	r = wait_unlocking(receiver, timeout_ms, deadline, out);
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
	return timeout_ms == 0 || timeout_ms == LOOK_ONLY ? 0 : deadline_from(timeout_ms);
}

/* 1, or an error: it is stashed then. */
static int order(share_channel *ch, int64_t deadline, void *stream, share_message *out)
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
	stash(ch, out, WORK_MS);
	return r == SHARE_ETIMEDOUT && deadline == 0
		   ? fail(SHARE_EAGAIN, "the work of the next message's producer is still running")
		   : r;
}

static int check(const share_channel *ch, int timeout_ms)
{
	int r = channel_check_role(ch, SHARE_CONSUMER);

	if (r == 0 && timeout_ms < -1)
		r = fail(SHARE_EINVAL, "a time limit is -1, 0, or milliseconds, not %d",
			 timeout_ms);
	return r;
}

/* 1, or an error. */
static int receive_ordered(share_channel *ch, int timeout_ms, void *stream, share_message *out)
{
	int64_t deadline = deadline_of(timeout_ms);
	int r = receive(ch, timeout_ms, deadline, out);

	return r == 1 ? order(ch, deadline, stream, out) : r;
}

int channel_receive(share_channel *ch, int timeout_ms, share_message *out)
{
	int r = check(ch, timeout_ms);
	size_t done = 0;

	if (r == 0)
		r = receive_at_once(ch, out, sizeof(*out), 1, &done);
	if (done == 1)
		r = reach(ch, out);
	else if (r == SHARE_EAGAIN && timeout_ms == 0)
		r = fail_constant(SHARE_EAGAIN, NO_MESSAGE);
	else if (r == 0 || r == SHARE_EAGAIN)
		r = receive(ch, timeout_ms, deadline_of(timeout_ms), out);
	return r > 0 ? 0 : r;
}

void channel_put_back(share_message *m)
{
	stash(channel_of(m->channel), m, WORK_MS);
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
		r = channel_resolve(&ch);
	if (r == 0)
		r = check(ch, 0);
	if (r != 0)
		return r;
	receiver = receiver_trylock(ch);
	if (receiver) {
		if (STAILQ_EMPTY(&receiver->stash) && !members_are_out_of_date(receiver->members) &&
		    !receiver->stale && !receiver->members->given_up)
			r = take(receiver, out);
		channel_unlock(ch);
	}
	if (r == 1 && !is_at_hand(ch, out)) {
		stash(ch, out, 0);
		r = 0;
	}
	if (r == 0)
		return fail_constant(SHARE_EAGAIN, "there is no message at hand");
	return r > 0 ? 0 : r;
}

static void tell_end_again(share_channel *ch)
{
	struct receiver *receiver;
	receiver = receiver_lock(ch);
	receiver->had_producers = true;
	receiver->members->some_gone = true;
	channel_unlock(ch);
}

/* More messages, of which @done are there already: 1, or why there are no more. */
static int receive_more(share_channel *ch, int timeout_ms, void *stream, share_message *out,
			size_t n, size_t *done)
{
	size_t stride = out->size, before = *done;
	int r = receive_at_once(ch, out, stride, n, done);
	share_message *m;

	if (*done > before) {
		m = message_at(out, *done - 1, stride);
		if (!is_data_alone(m)) {
			r = reach(ch, m);
			if (r == 1)
				r = order(ch, deadline_of(timeout_ms), stream, m);
			*done -= r != 1;
		}
		return r == 0 ? 1 : r;
	}
	if (r == SHARE_EAGAIN && timeout_ms == LOOK_ONLY)
		return r;
	if (r == SHARE_EAGAIN && timeout_ms == 0)
		return fail_constant(r, NO_MESSAGE);
	if (r != 0 && r != SHARE_EAGAIN)
		return r;
	m = message_at(out, *done, stride);
	if (*done > 0)
		prepare(m, stride);
	r = receive_ordered(ch, timeout_ms, stream, m);
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
		r = channel_resolve(&ch);
	if (r == 0)
		r = check(ch, timeout_ms);
	if (r == 0)
		r = stream_check(ch->client, NULL, stream);
	if (r == 0)
		r = receive_more(ch, timeout_ms, stream, out, n, &done);
	while (r == 1 && done < n)
		r = receive_more(ch, LOOK_ONLY, stream, out, n, &done);
	if (done == 0)
		return r;
	if (r == SHARE_EPIPE || r == SHARE_EOWNERDEAD)
		tell_end_again(ch);
	return (int)done;
}
