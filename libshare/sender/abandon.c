/* SPDX-License-Identifier: MIT */

/*
 * A consumer that was left behind keeps what it has taken, and so the tickets of that: if it never
 * acknowledges, or behind work that never ends, they would be gone for its producer. When tickets
 * are what is missing, the broker is asked to look after what such a consumer has. The tickets are
 * free again then; the memory is not: the broker has it until the consumer is done with it or dead.
 *
 * The background thread asks, so that no sender waits for the broker. Without a broker nothing can
 * be done until the consumer is dead.
 */

#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "libshare/sender/inside.h"

#define ASK_AGAIN_MS 100

static bool is_left_behind(const struct channel_peer *p)
{
	return p->member && p->known && p->left && !p->over;
}

/* The next one to be left to the broker; NULL: there is none. One that has closed the channel may
 * have fences that are never reached, too. In a direct channel its place is another one's by then,
 * who has as many tickets: nobody would be left any if it could do so again and again. */
static struct channel_owner *next(struct sender *sender, int64_t now)
{
	struct channel_cooling *c;

	for (uint32_t i = 0; i < sender->ch->shape.consumers; i++)
		if (is_left_behind(&sender->members->peers[i]))
			return sender->members->peers[i].owner;
	STAILQ_FOREACH (c, &sender->cooling, link)
		for (uint32_t i = 0; i < c->n; i++)
			if (c->held[i].owner->gone && (sender->ch->shape.mode == CHANNEL_DIRECT ||
						       sender_cools_too_long(sender, c, i, now)))
				return c->held[i].owner;
	return NULL;
}

void sender_want_tickets(struct sender *sender)
{
	int64_t now;

	if (sender->background.wants_tickets || sender->members->alone ||
	    !ring_producer_lacks_tickets(sender->ring))
		return;
	now = clock_coarse_ms();
	if (now < sender->background.abandon_at || !next(sender, now))
		return;
	sender->background.wants_tickets = true;
	sender->background.rests = false;
	eventfd_write(sender->ch->wakeup, 1);
}

/* The broker has these fences, where they still gate anything. */
static void forget_fences(struct sender *sender, struct channel_owner *owner)
{
	struct channel_cooling *c;

	STAILQ_FOREACH (c, &sender->cooling, link) {
		for (uint32_t i = 0; i < c->n;) {
			if (c->held[i].owner != owner) {
				i++;
				continue;
			}
			fence_drop(&c->held[i].fence);
			c->held[i] = c->held[--c->n];
			owner_done_with_fence(owner);
		}
	}
}

/* Adds the tickets that are only waiting for its fences. */
static void find_cooling(const struct sender *sender, const struct channel_owner *owner,
			 unsigned char *tickets)
{
	const struct channel_cooling *c;

	STAILQ_FOREACH (c, &sender->cooling, link)
		for (uint32_t i = 0; i < c->n; i++)
			if (c->held[i].owner == owner)
				ring_producer_add_tickets(sender->ring, c->ticket, tickets);
}

/* Asks the broker to look after what this consumer has. 0 or an error. */
static int ask_unlocking(struct sender *sender, const struct channel_owner *owner)
{
	const struct channel_peer *p = owner_peer(sender, owner);
	struct wire_message m = {.type = WIRE_CHANNEL_ABANDON};
	unsigned char tickets[CHANNEL_IN_FLIGHT_MAX / 8] = {0};
	int r;

	ring_producer_find_held(sender->ring,
				p ? members_index_of(sender->members, p) : CHANNEL_MEMBERS_MAX,
				owner->ring.member, tickets);
	find_cooling(sender, owner, tickets);
	m.channel_abandon.member = sender->ch->member;
	m.channel_abandon.consumer = owner->ring.member;
	m.channel_abandon.tickets.data = tickets;
	m.channel_abandon.tickets.size = (sender->ch->shape.in_flight + 7) / 8;
	channel_unlock(sender->ch);
	r = rpc(sender->ch->client, &m, NULL);
	channel_lock(sender->ch);
	return r;
}

void sender_abandon_unlocking(struct sender *sender)
{
	struct channel_owner *owner;
	int r = 0;

	while (r == 0 && !sender->members->alone && (owner = next(sender, clock_coarse_ms()))) {
		struct channel_peer *p;

		owner->ring.fences++; /* so that it stays */
		r = ask_unlocking(sender, owner);
		sender->members->alone |= r == SHARE_EDISCONNECTED;
		p = owner_peer(sender, owner);
		if (r == 0)
			forget_fences(sender, owner);
		if (r == 0 && !p)
			sender_charge_gone(sender, owner->uid);
		if (r == 0 && p && is_left_behind(p)) {
			ring_producer_abandon(sender->ring, members_index_of(sender->members, p));
			sender_let_go(sender->members, p);
		}
		owner_done_with_fence(owner);
	}
	sender->background.wants_tickets = false;
	if (r != 0)
		sender->background.abandon_at = clock_coarse_ms() + ASK_AGAIN_MS;
}
