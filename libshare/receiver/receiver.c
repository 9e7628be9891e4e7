/* SPDX-License-Identifier: MIT */

/*
 * A consumer's half of a channel, from open to end. It goes with the last message that the program
 * has.
 */

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "libshare/program/error.h"
#include "libshare/receiver/data.h"

static bool begin(struct members *members)
{
	struct receiver *receiver = calloc(1, sizeof(*receiver));

	members->receiver = receiver;
	if (!receiver)
		return false;
	receiver->ch = members->ch;
	receiver->members = members;
	STAILQ_INIT(&receiver->stash);
	return true;
}

static int open_ring(struct members *members, const share_channel_options *o)
{
	struct receiver *receiver = members->receiver;
	const share_channel *ch = members->ch;
	int r = ring_consumer_new(&ch->shape, ch->layout, ch->own, ch->slot, ch->member,
				  &receiver->ring);

	if (r == 0)
		r = receiver_count_behind(receiver);
	receiver->writable = o->flags & SHARE_CHANNEL_WRITABLE;
	receiver->latest = o->flags & SHARE_CHANNEL_LATEST;
	if (r == 0 && receiver->latest)
		ring_consumer_get_latest(receiver->ring);
	return r < 0 ? fail_system(r, "opening a channel") : 0;
}

/* Makes the timer that has an event loop look again, once there is such a loop. */
static int make_timer(share_channel *ch)
{
	struct epoll_event in = {.events = EPOLLIN, .data.u32 = UINT32_MAX};

	if (ch->timer >= 0)
		return 0;
	ch->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (ch->timer >= 0 && epoll_ctl(ch->epoll, EPOLL_CTL_ADD, ch->timer, &in) == 0)
		return 0;
	ch->timer = fd_close(ch->timer);
	return fail_system(-errno, "making a descriptor for a channel");
}

static int get_fd(struct members *members)
{
	int r = make_timer(members->ch);

	if (r != 0)
		return r;
	if (!members->wants_fd) {
		members->wants_fd = true;
		/* the loop arms nothing while somebody sleeps: that one is to sleep in its place */
		if (members->sleeper)
			waiter_wake(members->sleeper);
		/* who has looked before, without us knowing what for, has to look again */
		channel_look_later(members->ch, MEMBERS_LOOK_SOON_MS);
	}
	return members->ch->epoll;
}

static void get_stats(struct members *members, share_channel_stats *out)
{
	struct ring_consumer_stats s;

	ring_consumer_get_stats(members->receiver->ring, &s);
	out->received = s.received;
	out->acknowledged = s.acknowledged;
	out->rejected = s.rejected;
	out->dropped = s.lost;
	out->producers = members_count(members);
	out->consumers = 1;
}

static void receive_no_more(share_channel *ch)
{
	struct receiver *receiver = receiver_lock(ch);

	receiver_drop_stash(receiver);
	if (receiver->ring)
		members_ring_doorbells(receiver->members,
				       ring_consumer_receives_no_more(receiver->ring));
	channel_unlock(ch);
}

static void end(struct members *members)
{
	struct receiver *receiver = members->receiver;
	struct lent_buffer *l;

	if (receiver->ring)
		ring_consumer_free(receiver->ring);
	while ((l = receiver->handles)) {
		receiver->handles = l->next;
		handle_free(l);
	}
	data_free(receiver);
	free(receiver->behind.all);
	free(receiver);
}

const struct channel_role receiver_role = {
    .begin = begin,
    .open = open_ring,
    .get_fd = get_fd,
    .get_stats = get_stats,
    .close = receive_no_more,
    .end = end,
    .meet = receiver_meet,
    .note_death = receiver_note_death,
    .let_go = receiver_let_go,
    .ask = receiver_ask,
    .hear = receiver_hear,
    .others_may_act = receiver_may_get_more,
};
