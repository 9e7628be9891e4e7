/* SPDX-License-Identifier: MIT */

/*
 * What consumers may cost a producer that has no room. Each may keep it waiting for `stall_ms` and
 * is left behind then. So that nobody gets that again by opening the channel again, it is the user
 * who has the time: what its consumers that went, or were left behind, had kept the producer
 * waiting is missing to those that come after them, which have half of what is left of two stalls,
 * and is forgotten eight times as slowly as it was spent. So however often a user's consumers come,
 * in the long run they cost an eighth of the time, and an honest one that has failed is soon waited
 * for again. Who moves is waited for as long as it does: a consumer that is slow is no stall.
 *
 * Those who take part already keep the patience that they have come with, whatever others of their
 * user do.
 */

#include "base/clock.h"
#include "libshare/sender/inside.h"

#define SLICE_MS         500
#define COOLING_SLICE_MS 1 /* a GPU wakes nobody up */
#define PATIENCE_LOOK_MS 100
#define STALLS           2
#define FORGOTTEN_IN     8
#define TELL_AFTER_MS    1000

static uint64_t bit_of(const struct sender *sender, const struct channel_peer *p)
{
	return UINT64_C(1) << members_index_of(sender->members, p);
}

/* ------------------------------------------------------------------------------------------- */
/* A user's time                                                                               */

static int64_t spent_by(const struct channel_user *u, int64_t now)
{
	int64_t forgotten = (now - u->at_ms) / FORGOTTEN_IN;

	return forgotten < u->spent_ms ? u->spent_ms - forgotten : 0;
}

/* Its entry, or the one that there is least in. */
static struct channel_user *user_of(struct sender *sender, uint32_t uid, int64_t now)
{
	struct channel_user *least = &sender->patience.users[0];

	for (size_t i = 0; i < CHANNEL_MEMBERS_MAX; i++) {
		struct channel_user *u = &sender->patience.users[i];

		if (u->uid == uid && u->spent_ms > 0)
			return u;
		if (spent_by(u, now) < spent_by(least, now))
			least = u;
	}
	return least;
}

static void spend(struct sender *sender, uint32_t uid, int64_t since, int64_t now)
{
	struct channel_user *u = user_of(sender, uid, now);
	int64_t before = u->uid == uid ? spent_by(u, now) : 0;

	/* that its consumers stall at the same time costs no more than if one does */
	if (u->uid == uid && u->spent_ms > 0 && since < u->at_ms)
		since = u->at_ms;
	if (now - since > sender->patience.stall_ms)
		since = now - sender->patience.stall_ms;
	*u = (struct channel_user){uid, before + now - since, now};
}

/* A consumer was admitted, and is given its patience. */
static void set_patience(struct sender *sender, struct channel_peer *p)
{
	int64_t now = clock_coarse_ms(), left;
	const struct channel_user *u;

	p->owner->patience_ms = sender->patience.stall_ms;
	if (sender->patience.stall_ms == UINT32_MAX)
		return;
	u = user_of(sender, p->uid, now);
	if (u->uid == p->uid) {
		left = ((int64_t)STALLS * sender->patience.stall_ms - spent_by(u, now)) / 2;
		if (left < p->owner->patience_ms)
			p->owner->patience_ms = left > 0 ? (uint32_t)left : 0;
	}
	if (p->owner->patience_ms < sender->patience.least_ms)
		sender->patience.least_ms = p->owner->patience_ms;
}

/* Of the user's consumers that stall, the one that has for longest. */
static int64_t stalled_since(const struct sender *sender, uint32_t uid)
{
	int64_t since = INT64_MAX;

	for (uint64_t who = sender->patience.stalling; who; who &= who - 1) {
		const struct channel_peer *p = &sender->members->peers[__builtin_ctzll(who)];

		if (p->uid == uid && p->stalled_since < since)
			since = p->stalled_since;
	}
	return since == INT64_MAX ? sender->patience.full_since : since;
}

/* A consumer goes. If we are waiting, its user is charged for that. */
static void charge_stall(struct sender *sender, struct channel_peer *p)
{
	if (sender->patience.full_since && !p->charged)
		spend(sender, p->uid, stalled_since(sender, p->uid), clock_coarse_ms());
	p->charged = true;
}

void sender_charge_gone(struct sender *sender, uint32_t uid)
{
	if (sender->patience.full_since)
		spend(sender, uid, sender->patience.full_since, clock_coarse_ms());
}

/* ------------------------------------------------------------------------------------------- */
/* While there is no room                                                                      */

/* Leaves a consumer behind: it is not waited for any more. */
static void leave(struct sender *sender, struct channel_peer *p)
{
	charge_stall(sender, p);
	ring_producer_dismiss(sender->ring, members_index_of(sender->members, p), false);
	p->left = true;
	sender->patience.stalling &= ~bit_of(sender, p);
}

/* That is expensive, and those who try again and again need not look each time. */
static bool is_time_to_look(struct sender *sender, int64_t now)
{
	int64_t step = sender->patience.least_ms / 8 < PATIENCE_LOOK_MS
			   ? sender->patience.least_ms / 8
			   : PATIENCE_LOOK_MS;
	bool due = step == 0 || (sender->patience.look_at != 0 && now >= sender->patience.look_at);

	if (due || sender->patience.look_at == 0)
		sender->patience.look_at = now + step;
	return due;
}

static uint32_t least_patience(const struct sender *sender)
{
	uint32_t least = sender->patience.stall_ms;

	for (uint32_t i = 0; i < sender->ch->shape.consumers; i++) {
		const struct channel_peer *p = &sender->members->peers[i];

		if (p->known && !p->left && p->owner->patience_ms < least)
			least = p->owner->patience_ms;
	}
	return least;
}

bool sender_cools_too_long(struct sender *sender, const struct channel_cooling *c, uint32_t i,
			   int64_t now)
{
	return sender->patience.stall_ms != UINT32_MAX &&
	       now - c->since_ms >= c->held[i].owner->patience_ms;
}

/* Tickets are missing: leaves consumers behind whose fences keep them for longer than they may.
 * True when there were any. */
static bool leave_cooling(struct sender *sender, int64_t now)
{
	struct channel_cooling *c;
	bool any = false;

	if (!ring_producer_lacks_tickets(sender->ring))
		return false;
	STAILQ_FOREACH (c, &sender->cooling, link) {
		for (uint32_t i = 0; i < c->n; i++) {
			struct channel_peer *p = owner_peer(sender, c->held[i].owner);

			if (!p || p->left || !sender_cools_too_long(sender, c, i, now))
				continue;
			leave(sender, p);
			any = true;
		}
	}
	return any;
}

bool sender_leave_stalled_unlocking(struct sender *sender)
{
	int64_t now = clock_coarse_ms();
	uint64_t holdups;
	bool any = false;

	if (ring_producer_lacks_consumers(sender->ring)) {
		sender_has_room(sender); /* who is there is not in the way */
		return false;
	}
	if (!sender->patience.full_since)
		sender->patience.full_since = now;
	if (sender->patience.stall_ms == UINT32_MAX)
		return false;
	if (!is_time_to_look(sender, now))
		return false;
	sender->patience.least_ms = least_patience(sender);
	holdups = ring_producer_holdups(sender->ring);
	sender->patience.stalling &= holdups;
	for (; holdups; holdups &= holdups - 1) {
		uint32_t slot = (uint32_t)__builtin_ctzll(holdups);
		struct channel_peer *p = &sender->members->peers[slot];
		bool moved = ring_producer_has_moved(sender->ring, slot);

		if (moved || !(sender->patience.stalling & bit_of(sender, p))) {
			p->stalled_since = now;
			sender->patience.stalling |= bit_of(sender, p);
		}
		if (!moved && p->known && !p->left &&
		    now - p->stalled_since >= p->owner->patience_ms) {
			leave(sender, p);
			any = true;
		}
	}
	any |= leave_cooling(sender, now);
	if (any)
		sender_watch_backlog_unlocking(sender);
	return any;
}

void sender_has_room(struct sender *sender)
{
	uint64_t leaving = sender->patience.full_since ? ring_producer_leaving(sender->ring) : 0;

	for (; leaving; leaving &= leaving - 1)
		charge_stall(sender, &sender->members->peers[__builtin_ctzll(leaving)]);
	sender->patience.full_since = sender->patience.look_at = 0;
	sender->patience.stalling = 0;
	sender->patience.told = false;
}

/* Whoever waits for it in vain knows, but not those who look after the broker. */
void sender_tell_of_stall_unlocking(struct sender *sender)
{
	struct wire_message m = {.type = WIRE_CHANNEL_STALLED,
				 .channel_stalled = {.member = sender->ch->member}};
	share_client *c = sender->ch->client;

	if (sender->patience.told || !sender->patience.full_since ||
	    (sender->blocked == 0 && !(sender->ready.armed & READY_SEND)) ||
	    clock_coarse_ms() - sender->patience.full_since < TELL_AFTER_MS ||
	    c->version < WIRE_VERSION_CHANNEL_STALLED)
		return;
	sender->patience.told = true;
	channel_unlock(sender->ch);
	rpc_send(c, &m);
	channel_lock(sender->ch);
}

/* Consumers are waited for, and may be left behind. */
static bool some_lose_patience(struct sender *sender)
{
	return sender->patience.stall_ms != UINT32_MAX && ring_producer_holdups(sender->ring) != 0;
}

bool sender_clock_runs(struct sender *sender)
{
	bool tells = sender->ch->client->version >= WIRE_VERSION_CHANNEL_STALLED;

	if (!sender->patience.full_since ||
	    (sender->blocked == 0 && !(sender->ready.armed & READY_SEND)))
		return false;
	return (tells && !sender->patience.told) || some_lose_patience(sender);
}

int sender_slice(struct sender *sender, int left)
{
	bool asks_again = sender->background.abandon_at > clock_coarse_ms();
	int slice = STAILQ_EMPTY(&sender->cooling) ? SLICE_MS : COOLING_SLICE_MS;

	if (sender->patience.least_ms / 2 < (uint32_t)slice)
		slice = (int)(sender->patience.least_ms / 2) + 1;
	/* else the background thread wakes us */
	if (STAILQ_EMPTY(&sender->cooling) && !asks_again && !some_lose_patience(sender))
		return left;
	return left >= 0 && left < slice ? left : slice;
}

/* ------------------------------------------------------------------------------------------- */
/* members.c and sync.c say who has come or gone, the ring is told here                        */

void sender_let_go(struct members *members, struct channel_peer *p)
{
	struct sender *sender = members->sender;

	if (p->known) {
		charge_stall(sender, p);
		ring_producer_dismiss(sender->ring, members_index_of(members, p), true);
		owner_is_gone(p->owner);
	}
	p->known = false;
	p->owner = NULL;
	sender->patience.stalling &= ~(UINT64_C(1) << members_index_of(members, p));
	members_close_peer(members, p);
}

int sender_meet(struct members *members, struct channel_peer *p)
{
	struct sender *sender = members->sender;

	if (!p->known && p->state == WIRE_MEMBER_HERE) {
		p->owner = owner_new(sender, p);
		if (!p->owner)
			return SHARE_ENOMEM;
		if (p->flags & WIRE_MEMBER_OLDEST)
			sender_forget_fences(sender);
		ring_producer_admit(sender->ring, members_index_of(members, p), &p->owner->ring,
				    p->map, p->row,
				    (p->flags & WIRE_MEMBER_OLDEST ? RING_OLDEST : 0) |
					(p->flags & WIRE_MEMBER_LATEST ? RING_LATEST : 0));
		p->known = true;
		set_patience(sender, p);
	} else if (p->known && p->state == WIRE_MEMBER_LEFT && !p->left) {
		leave(sender, p);
	}
	return 0;
}

/* Somebody who was just admitted may sleep. */
void sender_wake_all(struct members *members)
{
	members_ring_doorbells(members, ring_producer_wake(members->sender->ring));
	members_wake_others(members);
}

/* Who was left behind, who has closed the channel and has messages, and fences that are not reached
 * keep tickets and nothing else. */
bool sender_may_find_room(struct members *members)
{
	struct sender *sender = members->sender;
	bool lacks_tickets = ring_producer_lacks_tickets(sender->ring);
	uint64_t closed = ring_producer_leaving(sender->ring), keep = 0;

	if (ring_producer_lacks_consumers(sender->ring))
		return false;
	if (lacks_tickets && closed)
		keep = ring_producer_holdups(sender->ring);
	for (uint32_t i = 0; i < sender->ch->shape.consumers; i++) {
		const struct channel_peer *p = &sender->members->peers[i];
		bool counts = !p->left && !(closed >> i & 1);

		if (p->member && !p->over &&
		    (counts || (lacks_tickets && (p->left || keep >> i & 1))))
			return true;
	}
	return lacks_tickets && !STAILQ_EMPTY(&sender->cooling);
}
