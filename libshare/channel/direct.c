/* SPDX-License-Identifier: MIT */

/* What services need of the channels they are made of. */

#include "base/system/descriptor.h"
#include "libshare/channel/inside.h"

const struct channel_shape *channel_shape(const share_channel *ch)
{
	return &ch->shape;
}

void channel_self(share_channel *ch, struct channel_target *out)
{
	*out = (struct channel_target){ch->member, ch->client->page_id, ch->slot};
}

void channel_set_call(share_channel *ch, uint32_t index, uint32_t value)
{
	atomic_store_explicit(&channel_ticket_at(ch->own, &ch->shape, index)->call, value,
			      memory_order_release);
}

int channel_tell_of_less(share_channel *ch, int timer, share_channel *before)
{
	bool too_much = before && channel_unshared(before)->too_much;
	uint32_t late = before ? channel_unshared(before)->late : 0;
	struct members *members = channel_lock(ch);
	int less = timer < 0 ? -1 : fd_dup(timer), r = timer < 0 || less >= 0 ? 0 : less;

	fd_close(ch->less);
	ch->less = less < 0 ? -1 : less;
	members->too_much = too_much;
	members->late = late;
	if (too_much || late > 0)
		channel_tell_less(ch, 0);
	channel_unlock(ch);
	return r;
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
