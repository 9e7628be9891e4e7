/* SPDX-License-Identifier: MIT */

/*
 * The end of a membership, and what may have to be waited for before it. A producer hands what is
 * in flight over to the broker, which has taken references of its own by the time it answers. A
 * consumer goes with the last message it has.
 */

#include <stdlib.h>

#include <share/private/core.h>

#include "base/clock.h"
#include "libshare/channel/data.h"
#include "libshare/program/error.h"
#include "libshare/program/range.h"
#include "pages/page.h"

/* ------------------------------------------------------------------------------------------- */
/* Before it                                                                                   */

/* What is waited for: that nothing waits for consumers any more, or that every message with a
 * smaller number than @before is done with. */
struct goal {
	bool acknowledged;
	uint64_t before;
};

static bool is_reached_unlocking(struct sender *sender, const struct goal *goal)
{
	struct ring_producer_stats s;
	struct ring_sleep sleep;

	/* consumers ring once a sleep, so it is announced before each look; whoever acknowledges
	 * something wakes the background thread, and that us */
	if (goal->acknowledged)
		ring_producer_sleep(sender->ring, true, &sleep);
	sender_reclaim_unlocking(sender, true);
	/* so does whoever makes room */
	sender_watch_backlog_unlocking(sender);
	ring_producer_get_stats(sender->ring, &s);
	return goal->acknowledged ? s.done >= goal->before : s.waiting == 0;
}

/* Whether somebody is there who could do it, or may come. 0 or SHARE_EDISCONNECTED. */
static int look_for_others(struct sender *sender, const struct goal *goal)
{
	/* also who was left behind, or has closed the channel */
	if (goal->acknowledged && ring_producer_keepers(sender->ring) != 0)
		return 0;
	return members_look_for_broker(sender->members);
}

static int wait_for_unlocking(struct sender *sender, const struct goal *goal, int64_t deadline)
{
	if (sender->members->given_up)
		return wait_given_up();

	uint32_t call = goal->acknowledged ? READY_DRAIN : READY_FLUSH;
	/* what an event loop is told is another thread's, if we wait */
	bool looks_only = deadline_left(deadline) == 0;

	while (!is_reached_unlocking(sender, goal)) {
		int left = deadline_left(deadline), r = 0;

		if (left == 0 && (!sender_arm(sender, call) || !is_reached_unlocking(sender, goal)))
			return SHARE_ETIMEDOUT;
		if (left == 0)
			break;
		r = look_for_others(sender, goal);
		if (r < 0)
			return r;
		if (members_are_out_of_date(sender->members))
			r = members_sync_until_unlocking(sender->members, deadline);
		else
			r = members_wait_unlocking(sender->members, left);
		if (sender->members->given_up)
			r = wait_given_up();
		if (r < 0)
			return r;
	}
	if (looks_only)
		sender_disarm(sender, call);
	return 0;
}

/* From a handle to its channel. */
static int check_wait(share_channel **ch, int timeout_ms)
{
	int r = channel_resolve_as(ch, SHARE_PRODUCER);

	if (r == 0 && timeout_ms < -1)
		r = fail(SHARE_EINVAL, "a time limit is -1, 0, or milliseconds");
	return r;
}

/* Some messages wait for a consumer to come, or to have room. */
static int still_wait(const struct sender *sender, int error)
{
	return fail_constant(error, ring_producer_is_deserted(sender->ring)
					? "messages wait for a consumer, and the channel has none"
					: "messages wait for consumers to have room");
}

int share_channel_flush(share_channel *ch, int timeout_ms)
{
	RANGE("share_channel_flush", 0);
	HAZARDS;
	static const struct goal nothing_waits = {false, 0};
	struct sender *sender;
	int r = check_wait(&ch, timeout_ms);

	if (r != 0)
		return r;
	sender = sender_lock(ch);
	sender->members->waiting++;
	r = wait_for_unlocking(sender, &nothing_waits, deadline_from(timeout_ms));
	sender->members->waiting--;
	if (r == SHARE_ETIMEDOUT)
		r = still_wait(sender, timeout_ms == 0 ? SHARE_EAGAIN : SHARE_ETIMEDOUT);
	channel_unlock_and_end(ch);
	return r;
}

static int not_acknowledged(struct sender *sender, int error)
{
	uint64_t who = ring_producer_keepers(sender->ring);
	char name[SENDER_NAME_SIZE];

	if (!who)
		return still_wait(sender, error);
	return fail(error, "of the channel's consumers, %s yet to acknowledge messages",
		    sender_name(sender, who, name));
}

/* All that was sent until now, or with a smaller number than @before. */
static int drain(share_channel *ch, uint64_t before, int timeout_ms)
{
	struct ring_producer_stats s;
	struct sender *sender;
	struct goal goal;
	int r = check_wait(&ch, timeout_ms);

	if (r != 0)
		return r;
	sender = sender_lock(ch);
	ring_producer_get_stats(sender->ring, &s);
	goal = (struct goal){true, before < s.sent ? before : s.sent};
	sender->drains++;
	sender->members->waiting++;
	r = wait_for_unlocking(sender, &goal, deadline_from(timeout_ms));
	sender->members->waiting--;
	sender->drains--;
	sender_awake(sender);
	if (r == SHARE_ETIMEDOUT)
		r = not_acknowledged(sender, timeout_ms == 0 ? SHARE_EAGAIN : SHARE_ETIMEDOUT);
	channel_unlock_and_end(ch);
	return r;
}

int share_channel_drain(share_channel *ch, int timeout_ms)
{
	RANGE("share_channel_drain", 0);
	HAZARDS;
	return drain(ch, UINT64_MAX, timeout_ms);
}

int share_drain_before(share_channel *ch, uint64_t before, int timeout_ms)
{
	RANGE("share_channel_drain", 0);
	HAZARDS;
	return drain(ch, before, timeout_ms);
}

/* ------------------------------------------------------------------------------------------- */

static void leave(share_channel *ch)
{
	DETAIL_STAYS;
	struct wire_message m = {.type = WIRE_CHANNEL_CLOSE};

	m.channel_close.member = ch->member;
	if (ch->member)
		rpc(ch->client, &m, NULL);
}

static void sender_free(struct sender *sender)
{
	share_client *c = sender->ch->client;
	struct channel_cooling *cooling;

	if (sender->ring)
		ring_producer_free(sender->ring);
	while ((cooling = STAILQ_FIRST(&sender->cooling))) {
		STAILQ_REMOVE_HEAD(&sender->cooling, link);
		fences_deinit(c, &cooling->fences);
		free(cooling);
	}
	free(sender->sent);
	owners_deinit(sender);
}

static void receiver_free(struct receiver *receiver)
{
	struct lent_buffer *l;

	if (receiver->ring)
		ring_consumer_free(receiver->ring);
	while ((l = receiver->handles)) {
		receiver->handles = l->next;
		handle_free(l);
	}
	data_free(receiver);
	free(receiver->behind.all);
}

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

void channel_end(void *channel)
{
	DETAIL_STAYS;
	share_channel *ch = channel;
	struct members *members = channel_unshared(ch);
	share_client *c = ch->client;

	if (members->receiver)
		leave(ch);
	members_sync_deinit(members);
	channel_delist(ch);
	members_deinit(members);
	if (members->sender)
		sender_free(members->sender);
	else
		receiver_free(members->receiver);
	if (ch->own)
		page_unmap(ch->own, channel_page_size(ch, ch->role));
	page_unmap(ch->control, CHANNEL_CONTROL_SIZE);
	fd_close(ch->epoll);
	fd_close(ch->doorbell);
	fd_close(ch->wakeup);
	fd_close(ch->room);
	fd_close(ch->timer);
	channel_free(ch);
	client_unref(c);
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
	sender_reclaim_unlocking(sender, true);
	members_ring_doorbells(members, ring_producer_sends_no_more(sender->ring));
}

static void close_sender(share_channel *ch)
{
	struct sender *sender;

	background_stop(ch);
	sender = sender_lock(ch);
	if (sender->ring)
		end_of_messages_unlocking(sender);
	channel_unlock(ch);
	leave(ch);
	drop_references(channel_unshared(ch)->sender);
}

static void close_receiver(share_channel *ch)
{
	struct receiver *receiver = receiver_lock(ch);

	receiver_drop_stash(receiver);
	if (receiver->ring)
		members_ring_doorbells(receiver->members,
				       ring_consumer_receives_no_more(receiver->ring));
	channel_unlock(ch);
}

void channel_close(share_channel *ch)
{
	DETAIL_STAYS;
	channel_end_waits(ch);
	if (ch->role == SHARE_PRODUCER)
		close_sender(ch);
	else
		close_receiver(ch);
	channel_lock(ch)->closed = true;
	channel_unlock_and_end(ch);
}

void share_channel_close(share_channel *ch)
{
	RANGE("share_channel_close", 0);
	HAZARDS;

	ch = channel_take(ch);
	if (ch)
		channel_close(ch);
}
