/* SPDX-License-Identifier: MIT */

/*
 * A producer's messages that all have acknowledged: their buffers go back behind the fences of
 * those who had them, at once, as whoever uses the memory next can be made to wait. Their tickets
 * stay taken until the fences are reached: until then the broker could have to know of them.
 *
 * Buffers are given back without the channel's lock, since that may mean to talk to the broker.
 */

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "libshare/channel/inside.h"
#include "libshare/client/error.h"

#define LOOKS_AT_COOLING 4 /* in a call that has something else to do */

/* ------------------------------------------------------------------------------------------- */
/* Fences                                                                                      */

/* Whether a fence of this member is still in what is in flight, or is waited for by a ticket. */
static bool has_fences(const struct sender *sender, uint64_t member)
{
	const struct channel_cooling *c;

	STAILQ_FOREACH (c, &sender->cooling, link)
		for (size_t i = 0; i < c->fences.n; i++)
			if (c->members[i] == member)
				return true;
	return ring_producer_has_fences(sender->ring, member);
}

static void forget_ghosts(struct sender *sender)
{
	struct ghosts *ghosts = &sender->ghosts;
	size_t n = 0;

	for (size_t i = 0; i < ghosts->n; i++)
		if (has_fences(sender, ghosts->all[i].member))
			ghosts->all[n++] = ghosts->all[i];
	ghosts->n = n;
}

/* The ghosts are gone through when there is no room, and as many again can come until the next
 * time: so each of them is looked at a constant number of times, and those of which no fence is
 * left take no room. */
int sender_make_room_for_ghosts(struct sender *sender)
{
	size_t room = sender->ghosts.n + CHANNEL_MEMBERS_MAX + 1;
	struct channel_ghost *grown;

	if (room <= sender->ghosts.room)
		return 0;
	forget_ghosts(sender);
	room = 2 * (sender->ghosts.n + CHANNEL_MEMBERS_MAX + 1);
	if (room <= sender->ghosts.room)
		return 0;
	grown = realloc(sender->ghosts.all, room * sizeof(*grown));
	if (!grown)
		return fail_system(-ENOMEM, "getting to know a member of a channel");
	sender->ghosts.all = grown;
	sender->ghosts.room = room;
	return 0;
}

void sender_remember_ghost(struct sender *sender, const struct channel_peer *p)
{
	if (!has_fences(sender, p->member))
		return;
	sender->ghosts.all[sender->ghosts.n++] = (struct channel_ghost){
	    .member = p->member,
	    .page = p->page,
	    .uid = p->uid,
	    .patience_ms = p->patience_ms,
	};
}

/* Of a member that is gone: whatever page of timelines this client still knows. One that it does
 * not know was dropped because its owner is dead. */
static bool hold_of_ghost(struct sender *sender, uint64_t member, struct ring_fence fence,
			  struct held_fence *out)
{
	for (size_t i = 0; i < sender->ghosts.n; i++)
		if (sender->ghosts.all[i].member == member)
			return fence_hold_known(
			    sender->ch->client,
			    WIRE_TIMELINE(sender->ghosts.all[i].page, fence.slot), fence.value,
			    out);
	return false;
}

/* False when there is nothing to wait for. */
static bool hold(struct sender *sender, uint32_t slot, uint64_t member, struct ring_fence fence,
		 struct held_fence *out)
{
	const struct channel_peer *p = &sender->members->peers[slot];

	/* nonsense is a consumer's own trouble: nothing protects what it has acknowledged */
	if (fence.slot == 0 || fence.slot >= TIMELINE_SLOTS || fence.value >= TIMELINE_POISON ||
	    MUTATION(ignore_ack_fences))
		return false;
	if (p->member == member && p->hold.page) {
		*out = fence_hold_again(sender->ch->client, &p->hold);
		out->slot = fence.slot;
		out->value = fence.value;
	} else if (!hold_of_ghost(sender, member, fence, out)) {
		return false;
	}
	if (fence_state(sender->ch->client, out) == TIMELINE_PENDING)
		return true;
	fence_drop(sender->ch->client, out);
	return false;
}

bool channel_hold_given(share_channel *ch, struct ring_fence given, struct held_fence *out)
{
	if (given.slot == 0 || MUTATION(ignore_given_fences))
		return false;
	*out = (struct held_fence){
	    .page = ch->client->page,
	    .slot = given.slot,
	    .value = given.value,
	};
	return fence_state(ch->client, out) == TIMELINE_PENDING;
}

void channel_given_fences(share_channel *ch, struct ring_fence given, struct fences *out)
{
	out->all = out->few;
	out->n = channel_hold_given(ch, given, &out->few[0]);
}

/* Those not yet reached, after what is in @out; @members: whose each is, or NULL. Without memory
 * for them, waits here. */
static void hold_all(struct sender *sender, const struct ring_return *ret, struct fences *out,
		     uint64_t *members)
{
	for (uint32_t i = 0; i < ret->n; i++) {
		struct held_fence f;

		if (!hold(sender, ret->fences[i].consumer, ret->fences[i].member,
			  ret->fences[i].fence, &f))
			continue;
		if (out->all == out->few && out->n == sizeof(out->few) / sizeof(out->few[0])) {
			struct held_fence *more = calloc(ret->n + 1, sizeof(*more));

			if (!more) {
				fence_block(sender->ch->client, &f, -1);
				fence_drop(sender->ch->client, &f);
				continue;
			}
			for (size_t k = 0; k < out->n; k++)
				more[k] = out->few[k];
			out->all = more;
		}
		if (members)
			members[out->n] = ret->fences[i].member;
		out->all[out->n++] = f;
	}
}

static bool are_reached(share_channel *ch, struct fences *f)
{
	while (f->n > 0 && fence_state(ch->client, &f->all[f->n - 1]) != TIMELINE_PENDING)
		fence_drop(ch->client, &f->all[--f->n]);
	return f->n == 0;
}

/* ------------------------------------------------------------------------------------------- */
/* Tickets                                                                                      */

static void cool_until_reached(struct sender *sender, const struct ring_return *ret,
			       struct channel_cooling *cooling)
{
	cooling->ticket = ret->ticket;
	cooling->since_ms = clock_coarse_ms();
	channel_given_fences(sender->ch, (struct ring_fence){0, 0}, &cooling->fences);
	hold_all(sender, ret, &cooling->fences, cooling->members);
	STAILQ_INSERT_TAIL(&sender->cooling, cooling, link);
}

static void retire(struct sender *sender, const struct ring_return *ret, bool pending)
{
	struct channel_cooling *cooling =
	    pending ? malloc(sizeof(*cooling) + ret->n * sizeof(cooling->members[0])) : NULL;
	struct fences fences;

	if (cooling) {
		cool_until_reached(sender, ret, cooling);
		return;
	}
	if (pending) {
		channel_given_fences(sender->ch, (struct ring_fence){0, 0}, &fences);
		hold_all(sender, ret, &fences, NULL);
		for (size_t i = 0; i < fences.n; i++)
			fence_block(sender->ch->client, &fences.all[i], -1);
		fences_done(sender->ch->client, &fences);
	}
	ring_producer_retire(sender->ring, ret->ticket);
}

void sender_cool(struct sender *sender, bool all)
{
	struct channel_cooling *c, *next;
	unsigned n = 0;

	for (c = STAILQ_FIRST(&sender->cooling); c && (all || n < LOOKS_AT_COOLING);
	     c = next, n++) {
		next = STAILQ_NEXT(c, link);
		if (!are_reached(sender->ch, &c->fences))
			continue;
		STAILQ_REMOVE(&sender->cooling, c, channel_cooling, link);
		ring_producer_retire(sender->ring, c->ticket);
		fences_done(sender->ch->client, &c->fences);
		free(c);
	}
}

/* ------------------------------------------------------------------------------------------- */

static struct channel_sent take_reference(struct sender *sender, void *reference)
{
	struct channel_sent *sent = reference, was = *sent;

	sender->with_memory -= was.buffer != NULL;
	sent->buffer = NULL;
	sent->next = sender->unsent;
	sender->unsent = sent;
	return was;
}

/* For share_channel_take_back(). Whoever does not take them back loses the oldest. */
static void set_aside(struct sender *sender, const struct ring_return *ret,
		      const struct channel_sent *sent, struct channel_return *out)
{
	struct channel_aside *a = malloc(sizeof(*a));

	out->buffer = sent->buffer;
	/* somebody who was left behind may still use it */
	if (ret->retained && sent->buffer)
		atomic_store_explicit(&sent->buffer->known, true, memory_order_relaxed);
	if (a) {
		a->buffer = sent->buffer;
		a->given = sent->given;
		a->message = *ret->message;
		STAILQ_INSERT_TAIL(&sender->aside, a, link);
		out->buffer = NULL;
		sender->n_aside++;
	}
	if (sender->n_aside <= sender->ch->shape.in_flight)
		return;
	a = STAILQ_FIRST(&sender->aside);
	STAILQ_REMOVE_HEAD(&sender->aside, link);
	sender->n_aside--;
	out->buffer = a->buffer;
	channel_given_fences(sender->ch, a->given, &out->fences);
	free(a);
}

bool sender_collect(struct sender *sender, bool all, size_t limit, struct channel_returns *out)
{
	struct ring_return ret;

	out->n = 0;
	while (limit-- > 0 && out->n < CHANNEL_RETURNS &&
	       ring_producer_reclaim(sender->ring, all, &ret)) {
		struct channel_return *r = &out->returns[out->n];
		struct channel_sent sent = take_reference(sender, ret.reference);
		bool pending = false;

		r->shared = ret.retained;
		r->buffer = sent.buffer;
		channel_given_fences(sender->ch, sent.given, &r->fences);
		if (ret.set_aside) {
			set_aside(sender, &ret, &sent, r);
		} else {
			size_t ours = r->fences.n;

			hold_all(sender, &ret, &r->fences, NULL);
			pending = r->fences.n > ours;
		}
		retire(sender, &ret, pending);
		if (r->buffer)
			out->n++;
		else
			fences_done(sender->ch->client, &r->fences);
	}
	return out->n < CHANNEL_RETURNS;
}

void channel_give_back(struct channel_returns *r)
{
	for (size_t i = 0; i < r->n; i++)
		buffer_release_after(r->returns[i].buffer, &r->returns[i].fences,
				     r->returns[i].shared);
	r->n = 0;
}

void sender_reclaim_unlocking(struct sender *sender, bool all)
{
	struct channel_returns returns;
	bool done;

	sender_cool(sender, all);
	do {
		done = sender_collect(sender, all, SIZE_MAX, &returns);
		if (returns.n == 0)
			break;
		channel_unlock(sender->ch);
		channel_give_back(&returns);
		channel_lock(sender->ch);
	} while (!done);
}

void sender_watch_backlog_unlocking(struct sender *sender)
{
	struct ring_sleep sleep;
	bool backlog = ring_producer_has_backlog(sender->ring);

	if (backlog && !sender->backlog) {
		sender->backlog = true;
		ring_producer_sleep(sender->ring, true, &sleep);
		sender_reclaim_unlocking(sender,
					 true); /* which hands out what there is room for by now */
	} else if (!backlog && sender->backlog) {
		sender->backlog = false;
		sender_awake(sender);
	}
	members_ring_doorbells(sender->members, ring_producer_wake(sender->ring));
}

void sender_awake(struct sender *sender)
{
	if (!sender->members->asleep && !sender->armed && !sender->backlog && !sender->awaited)
		ring_producer_awake(sender->ring);
}
