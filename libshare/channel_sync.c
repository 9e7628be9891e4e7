/* SPDX-License-Identifier: MIT */

/*
 * Asking who takes part in a channel. The broker's control page says when that has changed; the
 * broker is asked then, by one thread for all. The question goes on when nobody waits for the
 * answer any longer, as it brings descriptors, which are sent once: whoever comes next waits for
 * it.
 */

#include "libshare/channel.h"

/* The broker sends descriptors once, and believes that we have them. */
static int say_what_was_lost(share_channel *ch)
{
	struct wire_message m = {.type = WIRE_CHANNEL_AFRESH};

	m.channel_afresh.member = ch->member;
	return rpc_send_locked(ch->client, &m);
}

static int start_to_ask_locked(share_channel *ch, bool afresh)
{
	struct wire_message m = {.type = WIRE_CHANNEL_SYNC};
	share_client *c = ch->client;
	int r = 0;

	m.channel_sync.member = ch->member;
	ch->answer = (struct reply){.packet = NULL};
	ch->sync = (struct call){.expected = WIRE_CHANNEL_MEMBERS, .reply = &ch->answer};
	pthread_mutex_unlock(&ch->lock);
	pthread_mutex_lock(&c->lock);
	if (afresh)
		r = say_what_was_lost(ch);
	if (r == 0)
		r = rpc_start_locked(c, &m, &ch->sync);
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_lock(&ch->lock);
	ch->asking = r == 0;
	return r;
}

static int wait_for_answer_locked(share_channel *ch, int64_t deadline)
{
	share_client *c = ch->client;
	int r;

	pthread_mutex_unlock(&ch->lock);
	pthread_mutex_lock(&c->lock);
	r = rpc_wait_until_locked(c, &ch->sync, deadline);
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_lock(&ch->lock);
	ch->asking = r == 1;
	return r;
}

/* 0, an error, or 1: there is no answer yet. */
static int ask_locked(share_channel *ch, uint32_t *epoch, int64_t deadline)
{
	bool more = true;
	int r = 0;

	if (!ch->asking) {
		ch->first = ch->answers + 1;
		r = start_to_ask_locked(ch, ch->afresh);
	}
	while (r == 0 && more) {
		r = ch->asking ? 0 : start_to_ask_locked(ch, false);
		if (r == 0)
			r = wait_for_answer_locked(ch, deadline);
		if (r != 0)
			break;
		r = channel_apply_locked(ch, &ch->answer);
		more = ch->answer.m.channel_members.more;
		*epoch = ch->answer.m.channel_members.epoch;
		reply_done(&ch->answer);
	}
	return r;
}

/* What became of it is taken note of. */
static int learn_locked(share_channel *ch, int64_t deadline)
{
	uint32_t epoch = 0;
	int r = ask_locked(ch, &epoch, deadline);

	if (r == 1)
		return r;
	if (r == 0)
		r = channel_meet_locked(ch, ch->first);
	ch->afresh = r != 0;
	if (r == 0)
		ch->epoch = epoch;
	/* what is connected goes on */
	if (r == SHARE_EDISCONNECTED) {
		ch->alone = true;
		r = 0;
	}
	return r;
}

int channel_sync_until_locked(share_channel *ch, int64_t deadline)
{
	int r;

	while (ch->syncing && deadline_left(deadline) != 0)
		channel_wait_changed_locked(ch, deadline_left(deadline));
	if (!channel_is_out_of_date(ch))
		return 0;
	if (ch->syncing)
		return 1;
	ch->syncing = true;
	r = learn_locked(ch, deadline);
	ch->syncing = false;
	if (ch->role == SHARE_PRODUCER) {
		/* somebody who was just admitted may sleep */
		channel_ring_doorbells_locked(ch, ring_producer_wake(ch->producer));
		channel_wake_senders_locked(ch);
	}
	pthread_cond_broadcast(&ch->changed);
	channel_settle_locked(ch);
	return r;
}

int channel_sync_locked(share_channel *ch)
{
	return channel_sync_until_locked(ch, -1);
}

void channel_sync_done(share_channel *ch)
{
	share_client *c = ch->client;

	if (!ch->asking)
		return;
	pthread_mutex_lock(&c->lock);
	rpc_wait_locked(c, &ch->sync);
	pthread_mutex_unlock(&c->lock);
	reply_done(&ch->answer);
}
