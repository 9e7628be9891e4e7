/* SPDX-License-Identifier: MIT */

/*
 * What a producer makes of consumers: members.c and sync.c say who has come or gone, the ring is
 * told here.
 */

#include "libshare/sender/inside.h"

void sender_let_go(struct members *members, struct channel_peer *p)
{
	struct sender *sender = members->sender;

	if (p->known) {
		sender_charge_stall(sender, p);
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
		sender_set_patience(sender, p);
	} else if (p->known && p->state == WIRE_MEMBER_LEFT && !p->left) {
		sender_leave(sender, p);
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
