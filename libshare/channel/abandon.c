/* SPDX-License-Identifier: MIT */

/*
 * A consumer that was left behind keeps what it has taken, and so the tickets of that: if it never
 * acknowledges, or behind work that never ends, they would be gone for its producer. When tickets
 * are what is missing, the broker is asked to look after what such a consumer has. The tickets are
 * free again then; the memory is not: the broker has it until the consumer is done with it or dead.
 *
 * The keeper asks, so that no sender waits for the broker. Without a broker nothing can be done
 * until the consumer is dead.
 */

#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "libshare/channel/inside.h"
#include "libshare/client/error.h"

#define ASK_AGAIN_MS 100

static struct channel_peer *find_peer(struct sender *sender, uint64_t member)
{
	for (uint32_t i = 0; i < sender->ch->shape.consumers; i++)
		if (sender->members->peers[i].member == member && sender->members->peers[i].known)
			return &sender->members->peers[i];
	return NULL;
}

static bool is_left_behind(const struct channel_peer *p)
{
	return p->member && p->known && p->left && !p->over;
}

static const struct channel_ghost *find_ghost(const struct sender *sender, uint64_t member)
{
	for (size_t i = 0; i < sender->ghosts.n; i++)
		if (sender->ghosts.all[i].member == member)
			return &sender->ghosts.all[i];
	return NULL;
}

/* As long as it may keep us waiting, the consumer has kept this behind its work. */
static bool is_too_long(struct sender *sender, const struct channel_cooling *c, size_t i,
			int64_t now)
{
	const struct channel_peer *p = find_peer(sender, c->members[i]);
	const struct channel_ghost *g = p ? NULL : find_ghost(sender, c->members[i]);
	uint32_t patience_ms = p ? p->patience_ms : g ? g->patience_ms : sender->ch->stall_ms;

	return sender->ch->stall_ms != UINT32_MAX && now - c->since_ms >= patience_ms;
}

bool sender_leave_cooling(struct sender *sender, int64_t now)
{
	struct channel_cooling *c;
	bool any = false;

	if (!ring_producer_lacks_tickets(sender->ring))
		return false;
	STAILQ_FOREACH (c, &sender->cooling, link) {
		for (size_t i = 0; i < c->fences.n; i++) {
			struct channel_peer *p = find_peer(sender, c->members[i]);

			if (!p || p->left || !is_too_long(sender, c, i, now))
				continue;
			sender_leave(sender, p);
			any = true;
		}
	}
	return any;
}

/* The next one to be left to the broker; 0: there is none. One that has closed the channel may have
 * fences that are never reached, too. */
static uint64_t next(struct sender *sender, int64_t now)
{
	struct channel_cooling *c;

	for (uint32_t i = 0; i < sender->ch->shape.consumers; i++)
		if (is_left_behind(&sender->members->peers[i]))
			return sender->members->peers[i].member;
	STAILQ_FOREACH (c, &sender->cooling, link)
		for (size_t i = 0; i < c->fences.n; i++)
			if (!find_peer(sender, c->members[i]) && is_too_long(sender, c, i, now))
				return c->members[i];
	return 0;
}

void sender_want_tickets(struct sender *sender)
{
	int64_t now;

	if (sender->keeper.wants_tickets || sender->members->alone ||
	    !ring_producer_lacks_tickets(sender->ring))
		return;
	now = clock_coarse_ms();
	if (now < sender->keeper.abandon_at || !next(sender, now))
		return;
	sender->keeper.wants_tickets = true;
	sender->keeper.rests = false;
	eventfd_write(sender->ch->wakeup, 1);
}

/* The broker has these fences, where they still gate anything. */
static void forget_fences(struct sender *sender, uint64_t member)
{
	struct channel_cooling *c;

	STAILQ_FOREACH (c, &sender->cooling, link) {
		for (size_t i = 0; i < c->fences.n;) {
			if (c->members[i] != member) {
				i++;
				continue;
			}
			fence_drop(sender->ch->client, &c->fences.all[i]);
			c->fences.n--;
			c->fences.all[i] = c->fences.all[c->fences.n];
			c->members[i] = c->members[c->fences.n];
		}
	}
}

/* Asks the broker to look after what this consumer has. 0 or an error. */
static int ask_unlocking(struct sender *sender, uint64_t member)
{
	const struct channel_peer *p = find_peer(sender, member);
	struct wire_message m = {.type = WIRE_CHANNEL_ABANDON};
	unsigned char tickets[CHANNEL_IN_FLIGHT_MAX / 8] = {0};
	int r;

	ring_producer_find_held(sender->ring,
				p ? members_slot_of(sender->members, p) : CHANNEL_MEMBERS_MAX,
				member, tickets);
	m.channel_abandon.member = sender->ch->member;
	m.channel_abandon.consumer = member;
	m.channel_abandon.tickets.data = tickets;
	m.channel_abandon.tickets.size = (sender->ch->shape.in_flight + 7) / 8;
	channel_unlock(sender->ch);
	r = rpc(sender->ch->client, &m, NULL);
	channel_lock(sender->ch);
	return r;
}

void sender_abandon_unlocking(struct sender *sender)
{
	uint64_t member;
	int r = 0;

	while (r == 0 && !sender->members->alone && (member = next(sender, clock_coarse_ms()))) {
		const struct channel_ghost *ghost;
		struct channel_peer *p;

		r = ask_unlocking(sender, member);
		sender->members->alone |= r == SHARE_EDISCONNECTED;
		if (r != 0)
			break;
		forget_fences(sender, member);
		p = find_peer(sender, member);
		ghost = find_ghost(sender, member);
		if (!p && ghost)
			sender_charge_ghost(sender, ghost->uid);
		if (!p || !is_left_behind(p))
			continue;
		ring_producer_abandon(sender->ring, members_slot_of(sender->members, p));
		sender_dismiss(sender, p);
	}
	sender->keeper.wants_tickets = false;
	if (r != 0)
		sender->keeper.abandon_at = clock_coarse_ms() + ASK_AGAIN_MS;
}
