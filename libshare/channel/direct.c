/* SPDX-License-Identifier: MIT */

/* What services need of the channels they are made of. */

#include "base/clock.h"
#include "libshare/channel/channel.h"
#include "libshare/client/error.h"

void channel_self(share_channel *ch, struct channel_target *out)
{
	*out = (struct channel_target){ch->member, ch->client->page_id, ch->slot};
}

/* NULL when it is gone. With the lock held. */
static const struct channel_peer *sender_of_locked(const share_message *m)
{
	const share_channel *ch = channel_of(m->channel);
	uint32_t slot = RECEIPT_SLOT(m->receipt);
	const struct channel_peer *p = &ch->peers[slot & (CHANNEL_MEMBERS_MAX - 1)];

	return p->member == m->producer ? p : NULL;
}

uint64_t channel_sender_page(const share_message *m)
{
	share_channel *ch = channel_of(m->channel);
	const struct channel_peer *p;
	uint64_t page;

	pthread_mutex_lock(&ch->lock);
	p = sender_of_locked(m);
	page = p ? p->page : 0;
	pthread_mutex_unlock(&ch->lock);
	return page;
}

int channel_sender_call(const share_message *m, uint32_t index, uint32_t *out)
{
	share_channel *ch = channel_of(m->channel);
	const struct channel_peer *p;
	uint32_t call = 0;
	bool gone, held;

	if (index >= ch->shape.in_flight)
		return fail(SHARE_EINVAL, "a producer has no such call");
	pthread_mutex_lock(&ch->lock);
	if (channel_is_out_of_date(ch))
		channel_sync_until_locked(ch, deadline_from(0));
	/* else the broker says so in the control page: no system call here */
	if (ch->alone || channel_is_out_of_date(ch))
		channel_look_for_deaths_locked(ch);
	p = sender_of_locked(m);
	gone = !p || p->over || (p->state != WIRE_MEMBER_HERE && p->state != WIRE_MEMBER_LEFT);
	held = p && ring_consumer_holds(ch->consumer, RECEIPT_SLOT(m->receipt),
					RECEIPT_TOKEN(m->receipt)) == RECEIPT_VERSION(m->receipt);
	if (!gone)
		call = atomic_load_explicit(&channel_token_at(p->map, &ch->shape, index)->call,
					    memory_order_acquire);
	pthread_mutex_unlock(&ch->lock);
	if (p && !held)
		return fail(SHARE_EINVAL, "this message was given up already");
	if (gone)
		return fail(SHARE_EOWNERDEAD, "the caller has died or left");
	*out = call;
	return 0;
}

void channel_set_call(share_channel *ch, uint32_t index, uint32_t value)
{
	atomic_store_explicit(&channel_token_at(ch->own, &ch->shape, index)->call, value,
			      memory_order_release);
}

void channel_set_owner(share_channel *ch, void *owner,
		       void (*before_ack)(void *owner, share_message *m))
{
	ch->owner = owner;
	ch->before_ack = before_ack;
}

void *channel_owner(share_channel *ch)
{
	return ch->owner;
}
