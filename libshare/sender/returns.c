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
#include <string.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "libshare/program/error.h"
#include "libshare/sender/inside.h"

#define LOOKS_AT_COOLING 4 /* in a call that has something else to do */

/* ------------------------------------------------------------------------------------------- */
/* Fences                                                                                      */

struct channel_owner *owner_new(struct sender *sender, const struct channel_peer *p)
{
	struct channel_owner *owner = calloc(1, sizeof(*owner));

	if (!owner) {
		fail_system(-ENOMEM, "getting to know a member of a channel");
		return NULL;
	}
	owner->ring.member = p->member;
	owner->uid = p->uid;
	if (p->hold.page)
		owner->hold = fence_hold_again(&p->hold);
	LIST_INSERT_HEAD(&sender->owners, owner, link);
	return owner;
}

static void owner_free(struct channel_owner *owner)
{
	LIST_REMOVE(owner, link);
	fence_drop(&owner->hold);
	free(owner);
}

void owner_is_gone(struct channel_owner *owner)
{
	owner->gone = true;
	if (owner->ring.fences == 0)
		owner_free(owner);
}

void owner_done_with_fence(struct channel_owner *owner)
{
	if (--owner->ring.fences == 0 && owner->gone)
		owner_free(owner);
}

void owners_deinit(struct sender *sender)
{
	struct channel_owner *owner;

	while ((owner = LIST_FIRST(&sender->owners)))
		owner_free(owner);
}

struct channel_peer *owner_peer(struct sender *sender, const struct channel_owner *owner)
{
	for (uint32_t i = 0; i < sender->ch->shape.consumers; i++)
		if (sender->members->peers[i].owner == owner)
			return &sender->members->peers[i];
	return NULL;
}

/* False when there is nothing to wait for. */
static bool hold(struct sender *sender, const struct ring_owned_fence *f, struct held_fence *out)
{
	const struct channel_owner *owner = owner_of(f);

	/* nonsense is a consumer's own trouble: nothing protects what it has acknowledged */
	if (f->fence.slot == 0 || f->fence.slot >= TIMELINE_SLOTS ||
	    f->fence.value >= TIMELINE_POISON || !owner->hold.page || MUTATION(ignore_ack_fences))
		return false;
	*out = fence_hold_again(&owner->hold);
	out->slot = f->fence.slot;
	out->value = f->fence.value;
	if (fence_state(sender->ch->client, out) == TIMELINE_PENDING)
		return true;
	fence_drop(out);
	return false;
}

static bool is_over(void *data, const struct ring_owned_fence *f)
{
	struct sender *sender = data;
	struct held_fence pending;

	if (hold(sender, f, &pending)) {
		fence_drop(&pending);
		return false;
	}
	owner_done_with_fence(owner_of(f));
	return true;
}

void sender_forget_fences(struct sender *sender)
{
	ring_producer_forget_fences(sender->ring, is_over, sender);
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

/* Those not yet reached, after what is in @out: whether there are any. Without memory for one,
 * waits here. */
static bool hold_all(struct sender *sender, const struct ring_return *ret, struct fences *out)
{
	bool any = false;

	for (uint32_t i = 0; i < ret->n; i++) {
		struct held_fence f;

		if (!hold(sender, &ret->fences[i], &f))
			continue;
		any = true;
		if (fences_add(out, &f))
			continue;
		fence_block(sender->ch->client, &f, -1);
		fence_drop(&f);
	}
	return any;
}

static bool are_reached(struct sender *sender, struct channel_cooling *c)
{
	while (c->n > 0 &&
	       fence_state(sender->ch->client, &c->held[c->n - 1].fence) != TIMELINE_PENDING) {
		fence_drop(&c->held[--c->n].fence);
		owner_done_with_fence(c->held[c->n].owner);
	}
	return c->n == 0;
}

/* ------------------------------------------------------------------------------------------- */
/* Tickets                                                                                      */

static void cool_until_reached(struct sender *sender, const struct ring_return *ret,
			       struct channel_cooling *cooling)
{
	cooling->ticket = ret->ticket;
	cooling->since_ms = clock_coarse_ms();
	cooling->n = 0;
	for (uint32_t i = 0; i < ret->n; i++) {
		struct channel_owner *owner = owner_of(&ret->fences[i]);

		if (!hold(sender, &ret->fences[i], &cooling->held[cooling->n].fence))
			continue;
		cooling->held[cooling->n++].owner = owner;
		owner->ring.fences++;
	}
	STAILQ_INSERT_TAIL(&sender->cooling, cooling, link);
}

static void retire(struct sender *sender, const struct ring_return *ret, bool pending)
{
	struct channel_cooling *cooling =
	    pending ? malloc(sizeof(*cooling) + ret->n * sizeof(cooling->held[0])) : NULL;
	struct held_fence f;

	if (cooling) {
		cool_until_reached(sender, ret, cooling);
		return;
	}
	for (uint32_t i = 0; pending && i < ret->n; i++)
		if (hold(sender, &ret->fences[i], &f)) {
			fence_block(sender->ch->client, &f, -1);
			fence_drop(&f);
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
		if (!are_reached(sender, c))
			continue;
		STAILQ_REMOVE(&sender->cooling, c, channel_cooling, link);
		ring_producer_retire(sender->ring, c->ticket);
		free(c);
	}
}

/* ------------------------------------------------------------------------------------------- */

static inline void give_back_sent(struct sender *sender, struct channel_sent *sent)
{
	sent->buffer = NULL;
	sent->further = NULL;
	sent->next = sender->unsent;
	sender->unsent = sent;
}

static struct channel_sent take_reference(struct sender *sender, void *reference)
{
	struct channel_sent *sent = reference, was = *sent;

	sender->with_memory -= was.buffer != NULL;
	give_back_sent(sender, sent);
	return was;
}

/* NULL without memory. */
static struct channel_aside *aside_new(const struct ring_message *m, uint32_t n_buffers)
{
	struct channel_aside *a =
	    malloc(sizeof(*a) + 2 * n_buffers * sizeof(share_buffer *) + m->data_size);
	unsigned char *data;

	if (!a)
		return NULL;
	a->message = *m;
	a->n_buffers = n_buffers;
	a->handles = a->buffers + n_buffers;
	data = (void *)(a->handles + n_buffers);
	memcpy(data, m->data, m->data_size);
	a->message.data = data;
	return a;
}

static inline struct channel_return *give_back_later(const struct sender *sender, share_buffer *b,
						     struct ring_fence given, bool shared,
						     struct channel_returns *out)
{
	struct channel_return *r = &out->returns[out->n++];

	r->buffer = b;
	r->shared = shared;
	channel_given_fences(sender->ch, given, &r->fences);
	return r;
}

/* Whoever does not take them back loses the oldest. */
static void lose_aside(struct sender *sender, struct channel_returns *out)
{
	struct channel_aside *a = STAILQ_FIRST(&sender->aside);

	STAILQ_REMOVE_HEAD(&sender->aside, link);
	sender->n_aside--;
	for (uint32_t i = 0; i < a->n_buffers; i++)
		give_back_later(sender, a->buffers[i], a->given, false, out);
	free(a);
}

/* For share_channel_take_back(). */
static void set_aside(struct sender *sender, const struct ring_return *ret,
		      const struct channel_sent *sent, struct channel_returns *out)
{
	uint32_t n = (sent->buffer != NULL) + ret->n_further;
	struct channel_aside *a = aside_new(ret->message, n);
	struct channel_sent *further = sent->further, *next;
	share_buffer *b = sent->buffer;

	for (uint32_t i = 0; i < n; i++, further = next) {
		bool shared = i == 0 ? ret->retained : ret->further_retained[i - 1];

		/* somebody who was left behind may still use it */
		if (shared)
			atomic_store_explicit(&b->known, true, memory_order_relaxed);
		if (a)
			a->buffers[i] = b;
		else
			give_back_later(sender, b, sent->given, shared, out);
		next = further ? further->further : NULL;
		b = further ? further->buffer : NULL;
		if (further)
			give_back_sent(sender, further);
	}
	if (!a)
		return;
	a->given = sent->given;
	STAILQ_INSERT_TAIL(&sender->aside, a, link);
	sender->n_aside++;
	sender_has_set_aside(sender);
	if (sender->n_aside > sender->ch->shape.in_flight)
		lose_aside(sender, out);
}

#define PLAIN_AT_ONCE 64

/* What has neither memory nor anything to wait for. How many, at most @limit. */
static size_t collect_plain(struct sender *sender, size_t limit)
{
	void *references[PLAIN_AT_ONCE];
	size_t n = 0;
	uint32_t got;

	do {
		got = ring_producer_retire_plain(
		    sender->ring, limit - n < PLAIN_AT_ONCE ? (uint32_t)(limit - n) : PLAIN_AT_ONCE,
		    references);
		for (uint32_t i = 0; i < got; i++) {
			struct channel_sent *sent = references[i];

			sent->next = sender->unsent;
			sender->unsent = sent;
		}
		n += got;
	} while (got == PLAIN_AT_ONCE);
	return n;
}

/* The buffers of a message behind its first one, each behind the same fences. */
static __attribute__((noinline)) void collect_further(struct sender *sender,
						      const struct ring_return *ret,
						      struct channel_sent *sent,
						      struct channel_returns *out)
{
	struct channel_sent *next;

	for (uint32_t i = 0; sent; sent = next, i++) {
		struct channel_return *r = give_back_later(sender, sent->buffer, sent->given,
							   ret->further_retained[i], out);

		next = sent->further;
		hold_all(sender, ret, &r->fences);
		give_back_sent(sender, sent);
	}
}

/* Whether there is something to come before the ticket is used again. */
static bool collect(struct sender *sender, const struct ring_return *ret,
		    const struct channel_sent *sent, struct channel_returns *out)
{
	struct channel_return *r =
	    give_back_later(sender, sent->buffer, sent->given, ret->retained, out);
	bool pending = hold_all(sender, ret, &r->fences);

	if (!r->buffer) {
		fences_deinit(&r->fences);
		out->n--;
	}
	if (__builtin_expect(sent->further != NULL, 0))
		collect_further(sender, ret, sent->further, out);
	return pending;
}

bool sender_collect(struct sender *sender, bool all, size_t limit, struct channel_returns *out)
{
	struct ring_return ret;

	out->n = 0;
	if (sender->with_memory == 0)
		limit -= collect_plain(sender, limit);
	while (limit-- > 0 && out->n < CHANNEL_RETURNS_SOME &&
	       ring_producer_reclaim(sender->ring, all, &ret)) {
		struct channel_sent sent = take_reference(sender, ret.reference);
		bool pending = false;

		if (ret.set_aside)
			set_aside(sender, &ret, &sent, out);
		else
			pending = collect(sender, &ret, &sent, out);
		retire(sender, &ret, pending);
		for (uint32_t i = 0; i < ret.n; i++)
			owner_done_with_fence(owner_of(&ret.fences[i]));
	}
	return out->n < CHANNEL_RETURNS_SOME;
}

void channel_give_back(struct channel_returns *r)
{
	DETAIL_STAYS;
	for (size_t i = 0; i < r->n; i++)
		buffer_release_after(r->returns[i].buffer, &r->returns[i].fences,
				     r->returns[i].shared);
	r->n = 0;
}

void sender_reclaim_unlocking(struct sender *sender)
{
	DETAIL_STAYS;
	struct channel_returns returns;
	bool done;

	sender_cool(sender, true);
	do {
		done = sender_collect(sender, true, SIZE_MAX, &returns);
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
		sender_reclaim_unlocking(sender); /* hands out what there is room for by now */
	} else if (!backlog && sender->backlog) {
		sender->backlog = false;
		sender_awake(sender);
	}
	members_ring_doorbells(sender->members, ring_producer_wake(sender->ring));
}
