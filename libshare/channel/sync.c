/* SPDX-License-Identifier: MIT */

/*
 * Asking who takes part in a channel. The broker's control page says when that has changed; the
 * broker is asked then, by one thread for all. The question goes on when nobody waits for the
 * answer any longer, as it brings descriptors, which are sent once: whoever comes next waits for
 * it.
 *
 * Who comes we are told before that, as the broker may be gone when we ask. That is kept until the
 * next answer, before which it belongs, or until it is seen that there will be none.
 */

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "libshare/channel/channel.h"
#include "libshare/client/room.h"

/* ------------------------------------------------------------------------------------------- */
/* What we are told unasked                                                                    */

static void told_free(struct channel_told *t)
{
	fd_list_close(&t->fds);
	free(t);
}

void channel_enlist(share_channel *ch)
{
	share_client *c = ch->client;

	pthread_mutex_lock(&c->lock);
	LIST_INSERT_HEAD(&c->channels, ch, of_client);
	pthread_mutex_unlock(&c->lock);
	ch->enlisted = true;
}

void channel_delist(share_channel *ch)
{
	share_client *c = ch->client;
	struct channel_told *t;

	if (!ch->enlisted)
		return;
	pthread_mutex_lock(&c->lock);
	LIST_REMOVE(ch, of_client);
	pthread_mutex_unlock(&c->lock);
	while ((t = STAILQ_FIRST(&ch->told))) {
		STAILQ_REMOVE_HEAD(&ch->told, link);
		told_free(t);
	}
}

/* Whoever had the slot before is gone. */
static void forget_told(share_channel *ch, uint32_t slot)
{
	struct channel_told *t;

	STAILQ_FOREACH (t, &ch->told, link)
		if (t->member.slot == slot)
			break;
	if (!t)
		return;
	STAILQ_REMOVE(&ch->told, t, channel_told, link);
	told_free(t);
}

/* With the client's lock held; takes what it needs of @fds. */
static void tell(share_client *c, const struct wire_channel_members *m, struct fd_list *fds)
{
	struct wire_member member;
	struct channel_told *t;
	share_channel *ch;

	if (m->members.size != sizeof(member) || fds->n != 3) {
		client_mark_lost(c, "the broker told of a member what makes no sense");
		return;
	}
	LIST_FOREACH (ch, &c->channels, of_client)
		if (ch->member == m->member)
			break;
	if (!ch) /* it was closed meanwhile */
		return;
	memcpy(&member, m->members.data, sizeof(member));
	forget_told(ch, member.slot);
	t = calloc(1, sizeof(*t));
	if (!t) {
		ch->told_lost = true;
		return;
	}
	t->member = member;
	t->fds = *fds;
	t->after = ch->sync.done;
	fds->n = 0;
	STAILQ_INSERT_TAIL(&ch->told, t, link);
}

static int hear(share_client *c, const struct wire_message *m, struct fd_list *fds)
{
	if (m->type != WIRE_CHANNEL_MEMBERS)
		return 0;
	tell(c, &m->channel_members, fds);
	return 1;
}

const struct client_room channel_room = {
    .hear = hear,
};

/* Of what we were told before the last answer came, or of @all. 0 or an error. */
static int apply_told_locked(share_channel *ch, bool all)
{
	struct channel_told_list list = STAILQ_HEAD_INITIALIZER(list);
	share_client *c = ch->client;
	struct channel_told *t, *next;
	int r = 0;

	pthread_mutex_unlock(&ch->lock);
	pthread_mutex_lock(&c->lock);
	for (t = STAILQ_FIRST(&ch->told); t; t = next) {
		next = STAILQ_NEXT(t, link);
		if (t->after && !all)
			continue;
		STAILQ_REMOVE(&ch->told, t, channel_told, link);
		STAILQ_INSERT_TAIL(&list, t, link);
	}
	if (ch->told_lost)
		r = SHARE_ENOMEM;
	ch->told_lost = false;
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_lock(&ch->lock);
	while ((t = STAILQ_FIRST(&list))) {
		STAILQ_REMOVE_HEAD(&list, link);
		if (r == 0)
			r = channel_apply_told_locked(ch, t);
		told_free(t);
	}
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Asking                                                                                      */

/* The broker sends descriptors once, and believes that we have them. */
static int say_what_was_lost(share_channel *ch)
{
	struct wire_message m = {.type = WIRE_CHANNEL_AFRESH};

	m.channel_afresh.member = ch->member;
	return rpc_send_unlocking(ch->client, &m);
}

static int start_to_ask_locked(share_channel *ch, bool afresh)
{
	struct wire_message m = {.type = WIRE_CHANNEL_SYNC};
	share_client *c = ch->client;
	struct channel_told *t;
	int r = 0;

	m.channel_sync.member = ch->member;
	pthread_mutex_unlock(&ch->lock);
	pthread_mutex_lock(&c->lock);
	ch->answer = (struct reply){.packet = NULL};
	ch->sync = (struct call){.reply = &ch->answer};
	STAILQ_FOREACH (t, &ch->told, link)
		t->after = false; /* the answer that is asked for now */
	if (afresh || ch->told_lost)
		r = say_what_was_lost(ch);
	ch->told_lost &= r != 0;
	if (r == 0)
		r = rpc_start_unlocking(c, &m, &ch->sync);
	if (r != 0) /* a broker may have answered before it was all sent */
		reply_done(&ch->answer);
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
	r = rpc_wait_until_unlocking(c, &ch->sync, deadline);
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
		r = apply_told_locked(ch, false);
		if (r == 0)
			r = channel_apply_locked(ch, &ch->answer);
		more = ch->answer.m.channel_members.more;
		*epoch = ch->answer.m.channel_members.epoch;
		reply_done(&ch->answer);
	}
	return r;
}

/* What is connected goes on, and so does what we were told before the broker was lost. */
static int go_on_alone_locked(share_channel *ch)
{
	pthread_mutex_unlock(&ch->lock);
	rpc_read_rest(ch->client);
	pthread_mutex_lock(&ch->lock);
	if (apply_told_locked(ch, true) == 0)
		channel_meet_all_locked(ch);
	ch->alone = true;
	return 0;
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
	return r == SHARE_EDISCONNECTED ? go_on_alone_locked(ch) : r;
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
	rpc_wait_unlocking(c, &ch->sync);
	pthread_mutex_unlock(&c->lock);
	reply_done(&ch->answer);
}
