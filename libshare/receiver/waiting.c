/* SPDX-License-Identifier: MIT */

/*
 * Waiting for a message: what was put by, what there is without waiting and whether anything more
 * may come, a few looks before going to sleep, and the sleep, of a thread or of an event loop.
 */

#include <stdlib.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "libshare/program/error.h"
#include "libshare/receiver/data.h"

#define SPINS    20 /* looks before going to sleep: about a microsecond */
#define VAIN     4  /* spins for nothing, after which it is not done again but now and then */
#define AGAIN    64
#define SLICE_MS 500

/* While orphans wait, so many messages of who is there come before one of these is asked for. */
#define ORPHAN_TURN 16

/* That long the broker is given to say who has come or gone, whatever the time limit: that there is
 * nothing to receive is true then, and it takes no time unless the broker is stopped. Without an
 * answer we go on, and look now and then whether there is one. */
#define PATIENCE_MS 500

/* ------------------------------------------------------------------------------------------- */
/* Messages that were received, but could not be made ready yet for a reason that may pass (a  */
/* time limit, want of memory). The next call takes them from here.                            */

/* Not acknowledged, so that in a queue somebody else gets them. */
void receiver_drop_stash(struct receiver *receiver)
{
	struct channel_stashed *s;

	while ((s = STAILQ_FIRST(&receiver->stash))) {
		STAILQ_REMOVE_HEAD(&receiver->stash, link);
		receiver_free_loans(receiver, &s->message);
		data_drop(receiver, &s->message);
		receiver->members->held--;
		free(s);
	}
}

/* There is one: answers 1 and the message, whose error is the thread's last one. */
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

	/* given up by another thread, so that nobody would take it */
	if (members->given_up || members->closed) {
		receiver_drop_stash(receiver);
		return;
	}
	if (members->sleeper)
		waiter_wake(members->sleeper);
	if (members->asleep || !members->wants_fd)
		return;
	if (ms > 0)
		channel_drain_doorbell(receiver->ch);
	channel_look_later(receiver->ch, ms);
}

/* For the next call, which may have it in so many milliseconds. */
void channel_stash(share_channel *ch, share_message *m, int ms)
{
	DETAIL_STAYS;
	struct channel_stashed *s = malloc(sizeof(*s));
	struct receiver *receiver;

	if (!s) { /* a loss in broadcast, and said: it is as if it had been dropped */
		message_give_up(ch, m, &(struct ring_fence){0, 0});
		return;
	}
	s->message = *m;
	s->message.size = sizeof(s->message);
	m->channel = NULL;
	message_without_buffer(m);
	receiver = receiver_lock(ch);
	STAILQ_INSERT_TAIL(&receiver->stash, s, link);
	tell_of_stash(receiver, ms);
	bell_ring(&ch->changed);
	channel_unlock_and_end(ch);
}

/* ------------------------------------------------------------------------------------------- */
/* Whether anything more may come: who takes part, what those that are gone have left          */
/* (orphans, which the broker gives to who has nothing else), and the end of the last producer */

/* Producers that we do not know yet have to wait where the broker takes its time (is stopped, say):
 * those we know have not, nor has who wants to know that there is nothing. */
static int sync_in_time_unlocking(struct receiver *receiver)
{
	int r = members_sync_until_unlocking(receiver->members,
					     deadline_from(receiver->slow ? 0 : PATIENCE_MS));

	receiver->slow = r == 1;
	return r == 1 ? 0 : r;
}

/* Who holds something is told of the end nevertheless: it may wait for that to give it back. Once
 * the broker is lost no message can come; but those that it said to wait were received by nobody,
 * so there is no end to tell. */
static bool orphans_may_come(const struct receiver *receiver)
{
	if (!channel_has_copies(&receiver->ch->shape, receiver->ch->layout) || receiver->stale ||
	    receiver->members->held > 0)
		return false;
	return receiver->orphans.waiting > 0 ||
	       (!receiver->members->alone &&
		(!receiver->orphans.asked ||
		 (receiver->orphans.others > 0 && !MUTATION(end_early))));
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

static bool orphans_wait(const struct receiver *receiver)
{
	return receiver->orphans.waiting > 0 && !receiver->stale && !receiver->members->alone;
}

/* Whether the broker has an orphan for who asks. */
static bool wants_orphan(const struct receiver *receiver)
{
	return orphans_wait(receiver) && !receiver->orphans.asked;
}

/* The last producer has gone, and this was not said yet; or 1: messages that it or others have left
 * may yet come to who has none. If the broker is lost while such messages wait, that is an error.
 */
static int end_of_producers(struct receiver *receiver)
{
	int end = receiver->last_end ? receiver->last_end : SHARE_EPIPE;

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
		return receiver->members->alone ? client_lost(receiver->ch->client) : 1;
	receiver->had_producers = false;
	receiver->last_end = end;
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

/* Of those that are gone: what is drained, and whether it was the last. 0, 1 and an orphan, or an
 * error. */
static int look_for_ends_unlocking(struct receiver *receiver, share_message *out)
{
	int r;

	receiver->members->some_gone = false; /* before the lock is given up */
	/* what waits is mostly of those that we know already, so their rows may be wanted */
	if (receiver_forget_drained_unlocking(receiver,
					      orphans_wait(receiver) ? spare_rows(receiver) : 0))
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

/* 0 or an error. Who always has something to receive looks for no ends, and needs rows as well. */
static int learn_who_is_there_unlocking(struct receiver *receiver)
{
	int r = sync_in_time_unlocking(receiver);

	if (r == 0)
		receiver_forget_drained_unlocking(receiver, spare_rows(receiver));
	return r;
}

void channel_tell_end_again(share_channel *ch)
{
	struct receiver *receiver;
	receiver = receiver_lock(ch);
	receiver->had_producers = true;
	receiver->members->some_gone = true;
	channel_unlock(ch);
}

/* ------------------------------------------------------------------------------------------- */
/* Waiting                                                                                     */

static int nothing_yet(const struct receiver *receiver, int timeout_ms)
{
	if (timeout_ms == RECEIVER_LOOKS_ONLY)
		return SHARE_EAGAIN;
	if (receiver->slow)
		return fail_constant(timeout_ms == 0 ? SHARE_EAGAIN : SHARE_ETIMEDOUT,
				     "there is no message of the producers that are known, but the "
				     "broker has not answered who else has come");
	if (timeout_ms == 0)
		return fail_constant(SHARE_EAGAIN, RECEIVER_NO_MESSAGE);
	return fail_constant(SHARE_ETIMEDOUT,
			     members_count(receiver->members) > 0
				 ? "no message came within the time limit"
				 : "no message came within the time limit: the channel has no "
				   "producer");
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
		r = receiver_take_run(receiver, out, 0, 1);
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
	if (++receiver->looks % RECEIVER_LOOKS == 0)
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
		return RECEIVER_SLOW_MS;
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
		channel_look_later(receiver->ch, 0);
	} else if (receiver->slow) {
		channel_look_later(receiver->ch, RECEIVER_SLOW_MS);
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
int receiver_wait_unlocking(struct receiver *receiver, int timeout_ms, int64_t deadline,
			    share_message *out)
{
	int r = receiver->members->given_up ? wait_given_up() : look_unlocking(receiver, out);
	bool slept = false;

	if (r == 0 && timeout_ms != RECEIVER_LOOKS_ONLY)
		r = look_for_broker_unlocking(receiver, out);
	if (r == 0 && timeout_ms != 0 && timeout_ms != RECEIVER_LOOKS_ONLY)
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
		channel_look_later(receiver->ch, 0);
	if (r == 0)
		receiver->look_again = false;
	return r == 0 ? nothing_yet(receiver, timeout_ms) : r;
}

void channel_look_again(share_channel *ch)
{
	struct receiver *receiver = receiver_lock(ch);

	receiver->look_again = true;
	members_wake_others(receiver->members);
	channel_look_later(receiver->ch, 0);
	channel_unlock(ch);
}
