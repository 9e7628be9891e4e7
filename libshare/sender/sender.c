/* SPDX-License-Identifier: MIT */

/*
 * A producer's half of a channel, from open to end. It hands what is in flight over to the broker
 * when it closes the channel: that has taken references of its own by the time it answers.
 */

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "libshare/program/error.h"
#include "libshare/sender/inside.h"

#define STALL_MS_DEFAULT 10000

static bool begin(struct members *members)
{
	struct sender *sender = calloc(1, sizeof(*sender));

	members->sender = sender;
	if (!sender)
		return false;
	sender->ch = members->ch;
	sender->members = members;
	sender->ready.room = -1;
	STAILQ_INIT(&sender->cooling);
	STAILQ_INIT(&sender->aside);
	STAILQ_INIT(&sender->taken);
	return true;
}

static int make_sent(struct sender *sender, uint32_t in_flight)
{
	sender->sent = calloc(in_flight, sizeof(*sender->sent));
	for (uint32_t i = in_flight; sender->sent && i-- > 0;) {
		sender->sent[i].next = sender->unsent;
		sender->unsent = &sender->sent[i];
	}
	return sender->sent ? 0 : -ENOMEM;
}

static int open_ring(struct members *members, const share_channel_options *o)
{
	struct sender *sender = members->sender;
	const share_channel *ch = members->ch;
	int r;

	if (o->wait_for > ch->shape.consumers)
		return fail(SHARE_EINVAL,
			    "the channel has at most %u consumers, and never the %u of wait_for",
			    ch->shape.consumers, o->wait_for);
	r = ring_producer_new(&ch->shape, ch->layout, ch->own, &sender->ring);
	if (r == 0)
		r = make_sent(sender, ch->shape.in_flight);
	sender->ready.room = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r == 0 && sender->ready.room < 0)
		r = -errno;
	if (r < 0)
		return fail_system(r, "opening a channel");
	sender->patience.stall_ms = o->stall_ms ? o->stall_ms : STALL_MS_DEFAULT;
	sender->patience.least_ms = sender->patience.stall_ms;
	sender->wait_for = o->wait_for;
	ring_producer_identify(sender->ring, ch->member);
	ring_producer_wait_for(sender->ring, o->wait_for);
	return 0;
}

static void get_stats(struct members *members, share_channel_stats *out)
{
	struct ring_producer_stats s;

	sender_reclaim_unlocking(members->sender);
	ring_producer_get_stats(members->sender->ring, &s);
	out->sent = s.sent;
	out->dropped = s.dropped;
	out->redelivered = s.redelivered;
	out->set_aside = s.set_aside;
	out->rejected = s.rejected;
	out->left_behind = s.left_behind;
	out->in_flight = s.in_flight;
	out->waiting = s.waiting;
	out->done = s.done;
	out->producers = 1;
	out->consumers = members_count(members);
}

/* ------------------------------------------------------------------------------------------- */
/* The end                                                                                     */

/* What is in flight is the broker's to look after now: ours are only references. It has taken its
 * own by the time it answers. */
static void drop_references(struct sender *sender)
{
	DETAIL_STAYS;
	share_channel *ch = sender->ch;
	struct channel_aside *a;
	struct channel_sent sent;
	struct fences fences;

	for (uint32_t i = 0; sender->sent && i < ch->shape.in_flight; i++) {
		/* who waits to send may be about to collect them, too */
		sender_lock(ch);
		sent = sender->sent[i];
		sender->sent[i].buffer = NULL;
		channel_unlock(ch);
		if (!sent.buffer)
			continue;
		channel_given_fences(ch, sent.given, &fences);
		buffer_release_after(sent.buffer, &fences, true);
	}
	for (;;) {
		sender_lock(ch);
		a = STAILQ_FIRST(&sender->aside);
		if (a)
			STAILQ_REMOVE_HEAD(&sender->aside, link);
		channel_unlock(ch);
		if (!a)
			return;
		for (uint32_t i = 0; i < a->n_buffers; i++) {
			channel_given_fences(ch, a->given, &fences);
			buffer_release_after(a->buffers[i], &fences, true);
		}
		free(a);
	}
}

/* Consumers are told in our own page, as the broker may be gone by the time that they ask it. The
 * last that this brings into the ring comes before that. */
static void end_of_messages_unlocking(struct sender *sender)
{
	struct members *members = sender->members;

	/* of some who have come we may not know yet, and nobody else tells them */
	if (members_are_out_of_date(members) && client_sees_loss(sender->ch->client))
		members_sync_until_unlocking(members, -1);
	ring_producer_end_history(sender->ring);
	sender_reclaim_unlocking(sender);
	members_ring_doorbells(members, ring_producer_sends_no_more(sender->ring));
}

static void hand_over(share_channel *ch)
{
	struct sender *sender;

	background_stop(ch);
	sender = sender_lock(ch);
	if (sender->ring)
		end_of_messages_unlocking(sender);
	channel_unlock(ch);
	channel_leave(ch);
	drop_references(channel_unshared(ch)->sender);
}

static void end(struct members *members)
{
	struct sender *sender = members->sender;
	struct channel_cooling *cooling;

	if (sender->ring)
		ring_producer_free(sender->ring);
	while ((cooling = STAILQ_FIRST(&sender->cooling))) {
		STAILQ_REMOVE_HEAD(&sender->cooling, link);
		while (cooling->n > 0)
			fence_drop(&cooling->held[--cooling->n].fence);
		free(cooling);
	}
	fd_close(sender->ready.room);
	free(sender->sent);
	owners_deinit(sender);
	free(sender);
}

const struct channel_role sender_role = {
    .begin = begin,
    .open = open_ring,
    .start = background_start,
    .get_fd = sender_get_fd,
    .get_stats = get_stats,
    .close = hand_over,
    .end = end,
    .meet = sender_meet,
    .note_death = sender_let_go,
    .let_go = sender_let_go,
    .after_sync = sender_wake_all,
    .others_may_act = sender_may_find_room,
};
