/* SPDX-License-Identifier: MIT */

/* A loan, as far as anybody knows it who has its handle: between which members, and its end. */

#include "libshare/buffer/grant.h"
#include "libshare/buffer/uses.h"
#include "libshare/channel/inside.h"

int channel_retain(share_buffer *b)
{
	struct wire_message m = {.type = WIRE_CHANNEL_RETAIN};
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	struct lent *lent = &lent_of(b)->lent;
	share_channel *ch = lent->channel;
	int r;

	m.channel_retain.member = ch->member;
	m.channel_retain.producer = lent->producer;
	m.channel_retain.buffer = b->id;
	m.channel_retain.size = b->size;
	r = rpc(ch->client, &m, &reply);
	if (r != 0)
		return r;
	/* the lock that channel_release() holds: what it takes for a loan stays one */
	buffers_lock_uses(ch->client);
	if (atomic_load_explicit(&b->lent, memory_order_relaxed)) {
		client_ref(ch->client);
		atomic_store_explicit(&b->lent, NULL, memory_order_release);
		buffers_unlock_uses(ch->client);
		return 0;
	}
	/* another thread was first: one lease is enough */
	buffers_unlock_uses(ch->client);
	return buffer_send_release(ch->client, b->id, 1, &(share_fence){0, 0});
}

bool channel_name_loan(share_buffer *b, uint64_t *member, uint64_t *producer)
{
	const struct lent *lent;

	/* as long as it is on loan its message is not given up, and the channel stays */
	buffers_lock_uses(b->client);
	lent = atomic_load_explicit(&b->lent, memory_order_relaxed);
	if (lent) {
		*member = lent->channel->member;
		*producer = lent->producer;
	}
	buffers_unlock_uses(b->client);
	return lent;
}
