/* SPDX-License-Identifier: MIT */

/*
 * Waiting for a message: what there is without waiting, a few looks before going to sleep, and the
 * sleep, of a thread or of an event loop.
 */

#include "base/clock.h"
#include "base/mutation.h"
#include "libshare/program/error.h"
#include "libshare/receiver/inside.h"

#define SPINS    20 /* looks before going to sleep: about a microsecond */
#define VAIN     4  /* spins for nothing, after which it is not done again but now and then */
#define AGAIN    64
#define SLICE_MS 500

/* While orphans wait, so many messages of who is there come before one of these is asked for. */
#define ORPHAN_TURN 16

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
		return receiver_take_from_stash(receiver, out);
	if (members_are_out_of_date(receiver->members))
		r = receiver_learn_who_is_there_unlocking(receiver);
	else
		receiver->slow = false;
	if (r == 0 && !STAILQ_EMPTY(&receiver->stash))
		return receiver_take_from_stash(receiver, out);
	if (r == 0 && receiver_wants_orphan(receiver) &&
	    ++receiver->orphans.turn % ORPHAN_TURN == 0)
		r = receiver_ask_for_orphan_unlocking(receiver, out);
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
	if (receiver_wants_orphan(receiver)) {
		r = receiver_ask_for_orphan_unlocking(receiver, out);
		if (r != 0)
			return r;
	}
	if (++receiver->looks % RECEIVER_LOOKS == 0)
		members_look_for_deaths(receiver->members);
	receiver_note_ends(receiver);
	/* Who has just closed the channel may have done so as somebody else has come, of whom the
	 * broker has told in the control page before: that is read after the word of the end. While
	 * the broker takes its time, the last one that we know need not be the last either. */
	if (!receiver->members->some_gone || receiver->slow ||
	    (members_are_out_of_date(receiver->members) && !MUTATION(end_without_asking)))
		return 0;
	return receiver_look_for_ends_unlocking(receiver, out);
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
