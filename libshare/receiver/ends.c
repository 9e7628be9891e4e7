/* SPDX-License-Identifier: MIT */

/*
 * Whether anything more may come: who takes part, what those that are gone have left (orphans,
 * which the broker gives to who has nothing else), and the end of the last producer.
 */

#include "base/clock.h"
#include "base/mutation.h"
#include "libshare/program/error.h"
#include "libshare/receiver/inside.h"

/* That long the broker is given to say who has come or gone, whatever the time limit: that there is
 * nothing to receive is true then, and it takes no time unless the broker is stopped. Without an
 * answer we go on, and look now and then whether there is one. */
#define PATIENCE_MS 500

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
int receiver_ask_for_orphan_unlocking(struct receiver *receiver, share_message *out)
{
	int r;

	receiver->orphans.wanted = true;
	/* anything but what it is */
	receiver->members->epoch =
	    atomic_load_explicit(&receiver->ch->control->epoch, memory_order_acquire) - 1;
	r = sync_in_time_unlocking(receiver);
	if (r == 0 && !STAILQ_EMPTY(&receiver->stash))
		r = receiver_take_from_stash(receiver, out);
	return r;
}

bool receiver_wants_orphan(const struct receiver *receiver)
{
	return receiver->orphans.waiting > 0 && !receiver->orphans.asked && !receiver->stale &&
	       !receiver->members->alone;
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

/* What waits is mostly of those that we know already. */
static bool rows_may_be_wanted(const struct receiver *receiver)
{
	return receiver->orphans.waiting > 0 && !receiver->stale && !receiver->members->alone;
}

/* Of those that are gone: what is drained, and whether it was the last. */
int receiver_look_for_ends_unlocking(struct receiver *receiver, share_message *out)
{
	int r;

	receiver->members->some_gone = false; /* before the lock is given up */
	if (receiver_forget_drained_unlocking(
		receiver, rows_may_be_wanted(receiver) ? spare_rows(receiver) : 0))
		receiver->members->some_gone = true;
	r = end_of_producers(receiver);
	if (r == 1 && !receiver->orphans.asked) {
		r = receiver_ask_for_orphan_unlocking(receiver, out);
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
void receiver_note_ends(struct receiver *receiver)
{
	uint32_t row;

	while (ring_consumer_end(receiver->ring, &row)) {
		receiver->members->peers[row].ended = true;
		receiver->members->some_gone = true;
	}
}

int receiver_learn_who_is_there_unlocking(struct receiver *receiver)
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
