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
#include "libshare/channel/inside.h"
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
	LIST_INSERT_HEAD(&c->channels, ch, in_client.link);
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
	LIST_REMOVE(ch, in_client.link);
	pthread_mutex_unlock(&c->lock);
	while ((t = STAILQ_FIRST(&ch->in_client.told))) {
		STAILQ_REMOVE_HEAD(&ch->in_client.told, link);
		told_free(t);
	}
}

/* Whoever was in its place before is gone. */
static void forget_told_client_locked(share_channel *ch, const struct wire_member *newer)
{
	struct channel_told *t;

	STAILQ_FOREACH (t, &ch->in_client.told, link)
		if (members_index(ch, &t->member) == members_index(ch, newer))
			break;
	if (!t)
		return;
	STAILQ_REMOVE(&ch->in_client.told, t, channel_told, link);
	told_free(t);
}

/* Keeps what the broker told, and takes the descriptors that belong to it from @fds. */
static void tell_client_locked(share_client *c, const struct wire_channel_members *m,
			       struct fd_list *fds)
{
	struct wire_member member;
	struct channel_told *t;
	share_channel *ch;

	if (m->members.size != sizeof(member) || fds->n != 3) {
		client_mark_lost(c, "the broker told of a member what makes no sense");
		return;
	}
	LIST_FOREACH (ch, &c->channels, in_client.link)
		if (ch->member == m->member)
			break;
	if (!ch) /* it was closed meanwhile */
		return;
	memcpy(&member, m->members.data, sizeof(member));
	forget_told_client_locked(ch, &member);
	t = calloc(1, sizeof(*t));
	if (!t) {
		ch->in_client.told_lost = true;
		return;
	}
	t->member = member;
	t->fds = *fds;
	t->after = ch->in_client.call.done;
	fds->n = 0;
	STAILQ_INSERT_TAIL(&ch->in_client.told, t, link);
}

static int hear(share_client *c, const struct wire_message *m, struct fd_list *fds)
{
	if (m->type != WIRE_CHANNEL_MEMBERS)
		return 0;
	tell_client_locked(c, &m->channel_members, fds);
	return 1;
}

const struct client_room channel_room = {
    .hear = hear,
};

/* Of what we were told before the last answer came, or of @all. 0 or an error. */
static int apply_told_unlocking(struct members *members, bool all)
{
	struct channel_in_client *ours = &members->ch->in_client;
	struct channel_told_list list = STAILQ_HEAD_INITIALIZER(list);
	share_client *c = members->ch->client;
	struct channel_told *t, *next;
	int r = 0;

	channel_unlock(members->ch);
	pthread_mutex_lock(&c->lock);
	for (t = STAILQ_FIRST(&ours->told); t; t = next) {
		next = STAILQ_NEXT(t, link);
		if (t->after && !all)
			continue;
		STAILQ_REMOVE(&ours->told, t, channel_told, link);
		STAILQ_INSERT_TAIL(&list, t, link);
	}
	if (ours->told_lost)
		r = SHARE_ENOMEM;
	ours->told_lost = false;
	pthread_mutex_unlock(&c->lock);
	channel_lock(members->ch);
	while ((t = STAILQ_FIRST(&list))) {
		STAILQ_REMOVE_HEAD(&list, link);
		if (r == 0)
			r = members_apply_told(members, t);
		told_free(t);
	}
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Asking                                                                                      */

/* The broker sends descriptors once, and believes that we have them; so where something was lost
 * here, it is told to send them @afresh. */
static int start_to_ask_unlocking(struct members *members, bool afresh)
{
	struct channel_in_client *ours = &members->ch->in_client;
	struct wire_message m = {.type = WIRE_CHANNEL_SYNC};
	share_client *c = members->ch->client;
	struct channel_told *t;
	int r;

	m.channel_sync.member = members->ch->member;
	if (members->role->ask)
		members->role->ask(members, &m.channel_sync);
	channel_unlock(members->ch);
	pthread_mutex_lock(&c->lock);
	ours->answer = (struct reply){.packet = NULL};
	ours->call = (struct call){.reply = &ours->answer};
	STAILQ_FOREACH (t, &ours->told, link)
		t->after = false; /* the answer that is asked for now */
	if (afresh || ours->told_lost)
		m.channel_sync.flags |= WIRE_CHANNEL_SYNC_AFRESH;
	r = rpc_start_unlocking(c, &m, &ours->call);
	ours->told_lost &= r != 0;
	if (r != 0) /* a broker may have answered before it was all sent */
		reply_done(&ours->answer);
	pthread_mutex_unlock(&c->lock);
	channel_lock(members->ch);
	members->asking = r == 0;
	return r;
}

static int wait_for_answer_unlocking(struct members *members, int64_t deadline)
{
	share_client *c = members->ch->client;
	int r;

	channel_unlock(members->ch);
	pthread_mutex_lock(&c->lock);
	r = rpc_wait_until_unlocking(c, &members->ch->in_client.call, deadline);
	pthread_mutex_unlock(&c->lock);
	channel_lock(members->ch);
	members->asking = r == 1;
	return r;
}

/* 0, an error, or 1: there is no answer yet. */
static int ask_unlocking(struct members *members, struct wire_channel_members *said,
			 int64_t deadline)
{
	struct channel_in_client *ours = &members->ch->in_client;
	bool more = true;
	int r = 0;

	if (!members->asking) {
		members->first = members->answers + 1;
		r = start_to_ask_unlocking(members, members->afresh);
	}
	while (r == 0 && more) {
		r = members->asking ? 0 : start_to_ask_unlocking(members, false);
		if (r == 0)
			r = wait_for_answer_unlocking(members, deadline);
		if (r != 0)
			break;
		r = apply_told_unlocking(members, false);
		if (r == 0)
			r = members_apply(members, &ours->answer);
		more = ours->answer.m.channel_members.more;
		*said = ours->answer.m.channel_members;
		said->members = (struct wire_bytes){NULL, 0};
		reply_done(&ours->answer);
	}
	return r;
}

/* What is connected goes on, and so does what we were told before the broker was lost. */
static int go_on_alone_unlocking(struct members *members)
{
	channel_unlock(members->ch);
	rpc_read_rest(members->ch->client);
	channel_lock(members->ch);
	if (apply_told_unlocking(members, true) == 0)
		members_meet_all_unlocking(members);
	members->alone = true;
	return 0;
}

/* What became of it is taken note of. */
static int learn_unlocking(struct members *members, int64_t deadline)
{
	struct wire_channel_members said = {0};
	int r = ask_unlocking(members, &said, deadline);

	if (r == 1)
		return r;
	if (r == 0) {
		members_forget_missing(members);
		r = members_meet_all_unlocking(members);
	}
	members->afresh = r != 0;
	if (r == 0)
		members->epoch = said.epoch;
	if (r == 0 && members->role->hear)
		members->role->hear(members, &said);
	return r == SHARE_EDISCONNECTED ? go_on_alone_unlocking(members) : r;
}

int members_sync_until_unlocking(struct members *members, int64_t deadline)
{
	bool asked_before;
	int r;

	while (members->syncing && deadline_left(deadline) != 0)
		bell_wait(&members->ch->changed, &members->ch->lock, deadline_left(deadline));
	if (!members_are_out_of_date(members))
		return 0;
	if (members->syncing)
		return 1;
	members->syncing = true;
	asked_before = members->asking;
	r = learn_unlocking(members, deadline);
	/* the answer to a question that somebody gave up waiting for does not say who has come
	 * since */
	if (r == 0 && asked_before && members_are_out_of_date(members))
		r = learn_unlocking(members, deadline);
	members->syncing = false;
	if (members->role->after_sync)
		members->role->after_sync(members);
	bell_ring(&members->ch->changed);
	return r;
}

/* The count in the control page does not change any more when the broker is gone. What it has said
 * before may be of somebody who has come. */
int members_look_for_broker(struct members *members)
{
	share_client *c = members->ch->client;

	if (members->role->others_may_act(members) || !client_sees_loss(c))
		return 0;
	if (members->alone)
		return client_lost(c);
	members->epoch = atomic_load(&members->ch->control->epoch) - 1;
	return 0;
}

void members_sync_deinit(struct members *members)
{
	DETAIL_STAYS;
	struct channel_in_client *ours = &members->ch->in_client;
	share_client *c = members->ch->client;

	if (!members->asking)
		return;
	pthread_mutex_lock(&c->lock);
	rpc_wait_until_unlocking(c, &ours->call, -1);
	pthread_mutex_unlock(&c->lock);
	reply_done(&ours->answer);
}
