/* SPDX-License-Identifier: MIT */

/* What services need of the channels they are made of. */

#include "base/clock.h"
#include "libshare/channel/inside.h"
#include "libshare/program/error.h"

const struct channel_shape *channel_shape(const share_channel *ch)
{
	return &ch->shape;
}

void channel_self(share_channel *ch, struct channel_target *out)
{
	*out = (struct channel_target){ch->member, ch->client->page_id, ch->slot};
}

/* The producer of a message; NULL when it is gone. */
static const struct channel_peer *producer_of(const struct receiver *receiver,
					      const share_message *m)
{
	uint32_t row = RECEIPT_ROW(m->receipt);
	const struct channel_peer *p = &receiver->members->peers[row & (CHANNEL_MEMBERS_MAX - 1)];

	return p->member == m->producer ? p : NULL;
}

uint64_t channel_sender_page(const share_message *m)
{
	share_channel *ch = channel_of(m->channel);
	struct receiver *receiver = receiver_lock(ch);
	const struct channel_peer *p;
	uint64_t page;

	p = producer_of(receiver, m);
	page = p ? p->page : 0;
	channel_unlock(ch);
	return page;
}

int channel_sender_call(const share_message *m, uint32_t index, uint32_t *out)
{
	struct receiver *receiver;
	share_channel *ch = channel_of(m->channel);
	const struct channel_peer *p;
	uint32_t call = 0;
	bool gone, held;

	if (index >= ch->shape.in_flight)
		return fail(SHARE_EINVAL, "a producer has no such call");
	receiver = receiver_lock(ch);
	if (members_are_out_of_date(receiver->members))
		members_sync_until_unlocking(receiver->members, deadline_from(0));
	/* else the broker says so in the control page: no system call here */
	if (receiver->members->alone || members_are_out_of_date(receiver->members))
		members_look_for_deaths(receiver->members);
	p = producer_of(receiver, m);
	gone = !p || p->over || (p->state != WIRE_MEMBER_HERE && p->state != WIRE_MEMBER_LEFT);
	held = p && ring_consumer_holds(receiver->ring, RECEIPT_ROW(m->receipt),
					RECEIPT_TICKET(m->receipt)) == RECEIPT_VERSION(m->receipt);
	if (!gone)
		call = atomic_load_explicit(&channel_ticket_at(p->map, &ch->shape, index)->call,
					    memory_order_acquire);
	channel_unlock(ch);
	if (p && !held)
		return fail(SHARE_EINVAL, "this message was given up already");
	if (gone)
		return fail(SHARE_EOWNERDEAD, "the caller has died or left");
	*out = call;
	return 0;
}

void channel_set_call(share_channel *ch, uint32_t index, uint32_t value)
{
	atomic_store_explicit(&channel_ticket_at(ch->own, &ch->shape, index)->call, value,
			      memory_order_release);
}

void channel_set_came_back(share_channel *ch, void *owner, void (*came_back)(void *owner))
{
	channel_lock(ch);
	atomic_store_explicit(&ch->owner, owner, memory_order_relaxed);
	ch->came_back = came_back;
	channel_unlock(ch);
}

void channel_set_owner(share_channel *ch, void *owner,
		       void (*before_ack)(void *owner, share_message *m))
{
	ch->before_ack = before_ack;
	atomic_store_explicit(&ch->owner, owner, memory_order_release);
}

void channel_drop_owner(share_channel *ch)
{
	atomic_store_explicit(&ch->owner, NULL, memory_order_relaxed);
}

void *channel_owner(const share_channel *ch)
{
	void *owner = atomic_load_explicit(&ch->owner, memory_order_acquire);

	/* who drops it looks for hazards after that */
	if (!owner || !hazard_set(owner))
		return NULL;
	return atomic_load_explicit(&ch->owner, memory_order_relaxed) == owner ? owner : NULL;
}
