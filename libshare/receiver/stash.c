/* SPDX-License-Identifier: MIT */

/*
 * Messages that were received, but could not be made ready yet for a reason that may pass (a time
 * limit, want of memory). The next call takes them from here.
 */

#include <stdlib.h>

#include "libshare/program/error.h"
#include "libshare/receiver/data.h"

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

/* Answers 1 and a message. */
int receiver_take_from_stash(struct receiver *receiver, share_message *out)
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

	/* by another thread: nobody would take it */
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
	struct receiver *receiver = receiver_lock(ch);

	if (s) {
		s->message = *m;
		s->message.size = sizeof(s->message);
		STAILQ_INSERT_TAIL(&receiver->stash, s, link);
		m->channel = NULL;
		message_without_buffer(m);
		tell_of_stash(receiver, ms);
		bell_ring(&ch->changed);
	} else { /* a loss in broadcast, and said: it is as if it had been dropped */
		receiver_give_up(receiver, m, &(struct ring_fence){0, 0});
		receiver_wake_producers(receiver);
	}
	channel_unlock_and_end(ch);
}
