/* SPDX-License-Identifier: MIT */

/*
 * The end of a membership, and what may have to be waited for before it. A producer hands what is
 * in flight over to the broker, which has taken references of its own by the time it answers. A
 * consumer goes with the last message it has.
 */

#include <stdlib.h>

#include "base/clock.h"
#include "libshare/channel/channel.h"
#include "libshare/client/error.h"
#include "pages/page.h"

#define SLICE_MS 500

/* ------------------------------------------------------------------------------------------- */
/* Before it                                                                                   */

static uint32_t waiting_locked(share_channel *ch)
{
	struct ring_producer_stats s;

	channel_reclaim_locked(ch, true);
	channel_watch_backlog_locked(ch); /* whoever makes room wakes the keeper, and that us */
	ring_producer_get_stats(ch->producer, &s);
	return s.waiting;
}

static int flush_locked(share_channel *ch, int64_t deadline)
{
	while (waiting_locked(ch) > 0) {
		int left = deadline_left(deadline), r = 0;

		if (left == 0)
			return SHARE_ETIMEDOUT;
		if (channel_is_out_of_date(ch))
			r = channel_sync_until_locked(ch, deadline);
		else
			channel_wait_changed_locked(ch,
						    left > 0 && left < SLICE_MS ? left : SLICE_MS);
		if (r < 0)
			return r;
	}
	return 0;
}

int share_channel_flush(share_channel *ch, int timeout_ms)
{
	int r = channel_resolve_as(&ch, SHARE_PRODUCER);

	if (r == 0 && timeout_ms < -1)
		r = fail(SHARE_EINVAL, "a time limit is -1, 0, or milliseconds");
	if (r != 0)
		return r;
	pthread_mutex_lock(&ch->lock);
	r = flush_locked(ch, deadline_from(timeout_ms));
	pthread_mutex_unlock(&ch->lock);
	if (r != SHARE_ETIMEDOUT)
		return r;
	return timeout_ms == 0 ? fail_constant(SHARE_EAGAIN, "messages wait for consumers")
			       : fail_constant(SHARE_ETIMEDOUT, "messages wait for consumers");
}

/* ------------------------------------------------------------------------------------------- */

static void leave(share_channel *ch)
{
	struct wire_message m = {.type = WIRE_CHANNEL_CLOSE};

	m.channel_close.member = ch->member;
	if (ch->member)
		rpc(ch->client, &m, NULL);
}

static void free_lists(share_channel *ch)
{
	struct channel_cooling *cooling;
	struct lent_buffer *l;

	while ((cooling = STAILQ_FIRST(&ch->cooling))) {
		STAILQ_REMOVE_HEAD(&ch->cooling, link);
		fences_done(ch->client, &cooling->fences);
		free(cooling);
	}
	while ((l = ch->handles)) {
		ch->handles = l->next;
		handle_free(l);
	}
	channel_displaced_done(ch);
	free(ch->sent);
	free(ch->ghosts);
}

static void channel_free(share_channel *ch)
{
	share_client *c = ch->client;

	if (ch->producer)
		ring_producer_free(ch->producer);
	if (ch->consumer)
		ring_consumer_free(ch->consumer);
	channel_sync_done(ch);
	channel_delist(ch);
	channel_peers_done(ch);
	free_lists(ch);
	if (ch->own)
		page_unmap(ch->own, channel_own_page_size(ch));
	page_unmap(ch->control, CHANNEL_CONTROL_SIZE);
	fd_close(ch->epoll);
	fd_close(ch->doorbell);
	fd_close(ch->wakeup);
	fd_close(ch->room);
	fd_close(ch->timer);
	pthread_cond_destroy(&ch->changed);
	pthread_mutex_destroy(&ch->lock);
	handle_free(ch);
	client_unref(c);
}

/* What is in flight is the broker's to look after now: ours are only references. It has taken its
 * own by the time it answers. */
static void drop_references(share_channel *ch)
{
	struct channel_aside *a;
	struct fences fences;

	for (uint32_t i = 0; ch->sent && i < ch->shape.in_flight; i++) {
		if (!ch->sent[i].buffer)
			continue;
		channel_given_fences(ch, ch->sent[i].given, &fences);
		buffer_release_after(ch->sent[i].buffer, &fences, true);
	}
	while ((a = STAILQ_FIRST(&ch->aside))) {
		STAILQ_REMOVE_HEAD(&ch->aside, link);
		channel_given_fences(ch, a->given, &fences);
		if (a->buffer)
			buffer_release_after(a->buffer, &fences, true);
		free(a);
	}
}

/* Not acknowledged, so that in a queue somebody else gets them. */
static void drop_stash_locked(share_channel *ch)
{
	struct channel_stashed *s;

	while ((s = STAILQ_FIRST(&ch->stash))) {
		STAILQ_REMOVE_HEAD(&ch->stash, link);
		if (s->message.buffer)
			lent_free_locked(ch, lent_of(buffer_of(s->message.buffer)));
		ch->held--;
		free(s);
	}
}

void channel_end(share_channel *ch)
{
	if (ch->role == SHARE_CONSUMER)
		leave(ch);
	channel_free(ch);
}

void channel_close(share_channel *ch)
{
	bool last;

	keeper_stop(ch);
	pthread_mutex_lock(&ch->lock);
	if (ch->producer)
		channel_reclaim_locked(ch, true);
	drop_stash_locked(ch);
	if (ch->consumer)
		channel_ring_doorbells_locked(ch, ring_consumer_receives_no_more(ch->consumer));
	pthread_mutex_unlock(&ch->lock);
	if (ch->role == SHARE_PRODUCER) {
		leave(ch);
		drop_references(ch);
	}
	pthread_mutex_lock(&ch->lock);
	ch->closed = true;
	last = ch->held == 0;
	pthread_mutex_unlock(&ch->lock);
	if (last)
		channel_end(ch);
}

void share_channel_close(share_channel *ch)
{
	ch = channel_take(ch);
	if (ch)
		channel_close(ch);
}
