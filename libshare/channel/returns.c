/* SPDX-License-Identifier: MIT */

/*
 * A producer's messages that all have acknowledged: their buffers go back behind the fences of
 * those who had them, at once, as whoever uses the memory next can be made to wait. Their tokens
 * stay taken until the fences are reached: until then the broker could have to know of them.
 *
 * Buffers are given back without the channel's lock, since that may mean to talk to the broker.
 */

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "libshare/channel/channel.h"
#include "libshare/client/error.h"

#define LOOKS_AT_COOLING 4 /* in a call that has something else to do */

/* ------------------------------------------------------------------------------------------- */
/* Fences                                                                                      */

int channel_make_room_for_ghosts_locked(share_channel *ch)
{
	size_t room = ch->n_ghosts + CHANNEL_MEMBERS_MAX + 1;
	struct channel_ghost *grown;

	if (room <= ch->room_for_ghosts)
		return 0;
	grown = realloc(ch->ghosts, 2 * room * sizeof(*grown));
	if (!grown)
		return fail_system(-ENOMEM, "getting to know a member of a channel");
	ch->ghosts = grown;
	ch->room_for_ghosts = 2 * room;
	return 0;
}

void channel_remember_ghost_locked(share_channel *ch, const struct channel_peer *p)
{
	struct ring_producer_stats stats;

	ring_producer_get_stats(ch->producer, &stats);
	if (stats.in_flight == 0)
		ch->n_ghosts = 0;
	ch->ghosts[ch->n_ghosts++] = (struct channel_ghost){
	    .member = p->member,
	    .page = p->page,
	    .uid = p->uid,
	    .patience_ms = p->patience_ms,
	};
}

/* Of a member that is gone: whatever page of timelines this client still knows. One that it does
 * not know was dropped because its owner is dead. */
static bool hold_of_ghost(share_channel *ch, uint64_t member, struct ring_fence fence,
			  struct held_fence *out)
{
	for (size_t i = 0; i < ch->n_ghosts; i++)
		if (ch->ghosts[i].member == member)
			return fence_hold_known(ch->client,
						WIRE_TIMELINE(ch->ghosts[i].page, fence.slot),
						fence.value, out);
	return false;
}

/* False when there is nothing to wait for. */
static bool hold(share_channel *ch, uint32_t slot, uint64_t member, struct ring_fence fence,
		 struct held_fence *out)
{
	const struct channel_peer *p = &ch->peers[slot];

	/* nonsense is a consumer's own trouble: nothing protects what it has acknowledged */
	if (fence.slot == 0 || fence.slot >= TIMELINE_SLOTS || fence.value >= TIMELINE_POISON ||
	    MUTATION(ignore_ack_fences))
		return false;
	if (p->member == member && p->hold.page) {
		*out = fence_hold_again(ch->client, &p->hold);
		out->slot = fence.slot;
		out->value = fence.value;
	} else if (!hold_of_ghost(ch, member, fence, out)) {
		return false;
	}
	if (fence_state(ch->client, out) == TIMELINE_PENDING)
		return true;
	fence_drop(ch->client, out);
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
static void hold_all(share_channel *ch, const struct ring_return *ret, struct fences *out,
		     uint64_t *members)
{
	for (uint32_t i = 0; i < ret->n; i++) {
		struct held_fence f;

		if (!hold(ch, ret->fences[i].consumer, ret->fences[i].member, ret->fences[i].fence,
			  &f))
			continue;
		if (out->all == out->few && out->n == sizeof(out->few) / sizeof(out->few[0])) {
			struct held_fence *more = calloc(ret->n + 1, sizeof(*more));

			if (!more) {
				fence_block(ch->client, &f, -1);
				fence_drop(ch->client, &f);
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
/* Tokens                                                                                      */

static void cool_locked_until_reached(share_channel *ch, const struct ring_return *ret,
				      struct channel_cooling *cooling)
{
	cooling->token = ret->token;
	cooling->since_ms = clock_coarse_ms();
	channel_given_fences(ch, (struct ring_fence){0, 0}, &cooling->fences);
	hold_all(ch, ret, &cooling->fences, cooling->members);
	STAILQ_INSERT_TAIL(&ch->cooling, cooling, link);
}

static void retire_locked(share_channel *ch, const struct ring_return *ret, bool pending)
{
	struct channel_cooling *cooling =
	    pending ? malloc(sizeof(*cooling) + ret->n * sizeof(cooling->members[0])) : NULL;
	struct fences fences;

	if (cooling) {
		cool_locked_until_reached(ch, ret, cooling);
		return;
	}
	if (pending) {
		channel_given_fences(ch, (struct ring_fence){0, 0}, &fences);
		hold_all(ch, ret, &fences, NULL);
		for (size_t i = 0; i < fences.n; i++)
			fence_block(ch->client, &fences.all[i], -1);
		fences_done(ch->client, &fences);
	}
	ring_producer_retire(ch->producer, ret->token);
}

void channel_cool_locked(share_channel *ch, bool all)
{
	struct channel_cooling *c, *next;
	unsigned n = 0;

	for (c = STAILQ_FIRST(&ch->cooling); c && (all || n < LOOKS_AT_COOLING); c = next, n++) {
		next = STAILQ_NEXT(c, link);
		if (!are_reached(ch, &c->fences))
			continue;
		STAILQ_REMOVE(&ch->cooling, c, channel_cooling, link);
		ring_producer_retire(ch->producer, c->token);
		fences_done(ch->client, &c->fences);
		free(c);
	}
}

/* ------------------------------------------------------------------------------------------- */

static struct channel_sent take_reference_locked(share_channel *ch, void *reference)
{
	struct channel_sent *sent = reference, was = *sent;

	ch->with_memory -= was.buffer != NULL;
	sent->buffer = NULL;
	sent->next = ch->unsent;
	ch->unsent = sent;
	return was;
}

/* For share_channel_take_back(). Whoever does not take them back loses the oldest. */
static void set_aside_locked(share_channel *ch, const struct ring_return *ret,
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
		STAILQ_INSERT_TAIL(&ch->aside, a, link);
		out->buffer = NULL;
		ch->n_aside++;
	}
	if (ch->n_aside <= ch->shape.in_flight)
		return;
	a = STAILQ_FIRST(&ch->aside);
	STAILQ_REMOVE_HEAD(&ch->aside, link);
	ch->n_aside--;
	out->buffer = a->buffer;
	channel_given_fences(ch, a->given, &out->fences);
	free(a);
}

bool channel_collect_locked(share_channel *ch, bool all, size_t limit, struct channel_returns *out)
{
	struct ring_return *ret = &ch->returned;

	out->n = 0;
	while (limit-- > 0 && out->n < CHANNEL_RETURNS &&
	       ring_producer_reclaim(ch->producer, all, ret)) {
		struct channel_return *r = &out->returns[out->n];
		struct channel_sent sent = take_reference_locked(ch, ret->reference);
		bool pending = false;

		r->shared = ret->retained;
		r->buffer = sent.buffer;
		channel_given_fences(ch, sent.given, &r->fences);
		if (ret->set_aside) {
			set_aside_locked(ch, ret, &sent, r);
		} else {
			size_t ours = r->fences.n;

			hold_all(ch, ret, &r->fences, NULL);
			pending = r->fences.n > ours;
		}
		retire_locked(ch, ret, pending);
		if (r->buffer)
			out->n++;
		else
			fences_done(ch->client, &r->fences);
	}
	return out->n < CHANNEL_RETURNS;
}

void channel_give_back(share_channel *ch, struct channel_returns *r)
{
	(void)ch;
	for (size_t i = 0; i < r->n; i++)
		buffer_release_after(r->returns[i].buffer, &r->returns[i].fences,
				     r->returns[i].shared);
	r->n = 0;
}

void channel_reclaim_locked(share_channel *ch, bool all)
{
	struct channel_returns returns;
	bool done;

	channel_cool_locked(ch, all);
	do {
		done = channel_collect_locked(ch, all, SIZE_MAX, &returns);
		if (returns.n == 0)
			break;
		pthread_mutex_unlock(&ch->lock);
		channel_give_back(ch, &returns);
		pthread_mutex_lock(&ch->lock);
	} while (!done);
}

void channel_watch_backlog_locked(share_channel *ch)
{
	struct ring_sleep sleep;
	bool backlog = ring_producer_has_backlog(ch->producer);

	if (backlog && !ch->backlog) {
		ch->backlog = true;
		ring_producer_sleep(ch->producer, true, &sleep);
		channel_reclaim_locked(ch,
				       true); /* which hands out what there is room for by now */
	} else if (!backlog && ch->backlog) {
		ch->backlog = false;
		channel_awake_locked(ch);
	}
	channel_ring_doorbells_locked(ch, ring_producer_wake(ch->producer));
}

void channel_awake_locked(share_channel *ch)
{
	if (!ch->asleep && !ch->armed && !ch->backlog && !ch->awaited)
		ring_producer_awake(ch->producer);
}
