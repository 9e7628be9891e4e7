/* SPDX-License-Identifier: MIT */

/*
 * The end of a membership. A producer hands what is in flight over to the broker, which has taken
 * references of its own by the time it answers. A consumer goes with the last message it has.
 */

#include <stdlib.h>

#include "libshare/channel/data.h"
#include "libshare/program/error.h"
#include "libshare/program/range.h"
#include "pages/page.h"

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
