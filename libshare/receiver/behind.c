/* SPDX-License-Identifier: MIT */

/*
 * Answers that were acknowledged behind work which is not done. Until that work is done, they take
 * room at the workers that have sent them, just as unacknowledged answers do. So a caller counts
 * both as its calls.
 */

#include <errno.h>
#include <stdlib.h>

#include "libshare/receiver/inside.h"
#include "libshare/sender/sender.h"

/* In this order: later ones may be done before. */
struct channel_behind {
	struct ring_fence work;
	uint32_t messages;
};

int receiver_count_behind(struct receiver *receiver)
{
	if (receiver->ch->shape.mode != CHANNEL_DIRECT)
		return 0;
	receiver->behind.all = calloc(receiver->ch->shape.depth, sizeof(*receiver->behind.all));
	return receiver->behind.all ? 0 : -ENOMEM;
}

static void forget_done(struct receiver *receiver)
{
	struct channel_behind *all = receiver->behind.all;
	uint32_t n = 0;

	receiver->behind.messages = 0;
	for (uint32_t i = 0; i < receiver->behind.n; i++) {
		struct held_fence pending;

		if (!channel_hold_given(receiver->ch, all[i].work, &pending))
			continue;
		receiver->behind.messages += all[i].messages;
		all[n++] = all[i];
	}
	receiver->behind.n = n;
}

void receiver_acked_behind(struct receiver *receiver, struct ring_fence work, uint32_t messages)
{
	struct channel_behind *all = receiver->behind.all;

	if (!all || work.slot == 0 || messages == 0)
		return;
	if (receiver->behind.n == receiver->ch->shape.depth)
		forget_done(receiver);
	receiver->behind.messages += messages;
	/* as many as there are places are those of a caller that asks for more than it may */
	if (receiver->behind.n == receiver->ch->shape.depth)
		all[receiver->behind.n - 1].messages += messages;
	else
		all[receiver->behind.n++] = (struct channel_behind){work, messages};
}

/* What a look has found. Nobody says when work is done: a GPU wakes nobody up. */
static void tell_of_less(struct receiver *receiver, bool too_much)
{
	if (receiver->members->too_much)
		channel_tell_less(receiver->ch,
				  receiver->members->late > 0 ? MEMBERS_LOOK_SOON_MS : -1);
	receiver->members->too_much = too_much;
	if (too_much && receiver->behind.n > 0)
		channel_tell_less(receiver->ch, MEMBERS_LOOK_SOON_MS);
}

uint32_t channel_owes(share_channel *ch, uint32_t many, bool tell, struct ring_fence *oldest)
{
	struct receiver *receiver = receiver_lock(ch);
	uint32_t n = receiver->members->held;

	if (n + receiver->behind.messages >= many)
		forget_done(receiver);
	n += receiver->behind.messages;
	*oldest = receiver->behind.n > 0 ? receiver->behind.all[0].work : (struct ring_fence){0, 0};
	if (tell)
		tell_of_less(receiver, n >= many);
	channel_unlock(ch);
	return n;
}
