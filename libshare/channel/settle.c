/* SPDX-License-Identifier: MIT */

/*
 * A producer that is gone may lose its slot to a new one while we still have messages of it. Our
 * row of the ledger is about the new one then; so what we have acknowledged to the old one, and
 * what we are yet to, is told to the broker, which looks after the memory.
 */

#include <errno.h>
#include <stdlib.h>

#include "libshare/channel/channel.h"
#include "libshare/client/error.h"

struct channel_displaced {
	STAILQ_ENTRY(channel_displaced) link;
	uint64_t producer;
	bool telling;  /* some thread does: what it says comes in order */
	uint32_t held; /* messages of it that are not acknowledged yet: the last entries */
	uint32_t n;    /* acknowledgements to be told of: the first; there is room for all */
	uint32_t room;
	struct wire_settled acks[];
};

static uint32_t count_acks(const share_channel *ch, uint32_t slot, struct channel_displaced *out)
{
	struct ring_fence fence;
	uint32_t n = 0, version;

	for (uint32_t token = 0; token < ch->shape.in_flight; token++) {
		if (!ring_consumer_has_acked(ch->consumer, slot, token, &version, &fence))
			continue;
		if (out)
			out->acks[n] =
			    (struct wire_settled){token, version, fence.slot, 0, fence.value};
		n++;
	}
	return n;
}

int channel_displace_locked(share_channel *ch, uint32_t slot)
{
	uint32_t held = ring_consumer_held(ch->consumer, slot);
	uint32_t most = count_acks(ch, slot, NULL) + held;
	struct channel_displaced *d = calloc(1, sizeof(*d) + most * sizeof(d->acks[0]));

	if (!d)
		return fail_system(-ENOMEM, "getting to know a member of a channel");
	d->producer = ch->peers[slot].member;
	d->n = count_acks(ch, slot, d);
	d->room = most;
	for (uint32_t token = 0; token < ch->shape.in_flight; token++) {
		uint32_t version = ring_consumer_holds(ch->consumer, slot, token);

		if (version && d->held < held)
			d->acks[most - ++d->held] = (struct wire_settled){token, version, 0, 0, 0};
	}
	ring_consumer_displace(ch->consumer, slot);
	STAILQ_INSERT_TAIL(&ch->displaced, d, link);
	return 0;
}

static bool is_held(struct channel_displaced *d, uint32_t token, uint32_t version)
{
	struct wire_settled *last = &d->acks[d->room - d->held];

	for (struct wire_settled *held = last; held < &d->acks[d->room]; held++) {
		if (held->token != token || held->version != version)
			continue;
		*held = *last;
		d->held--;
		return true;
	}
	return false;
}

bool channel_ack_displaced_locked(share_channel *ch, uint64_t producer, uint32_t token,
				  uint32_t version, struct ring_fence fence)
{
	struct channel_displaced *d;

	STAILQ_FOREACH (d, &ch->displaced, link) {
		if (d->producer != producer || !is_held(d, token, version))
			continue;
		d->acks[d->n++] = (struct wire_settled){token, version, fence.slot, 0, fence.value};
		return true;
	}
	return false;
}

/* As much as fits into a message. False when that was the last of it. */
static bool tell_some_locked(share_channel *ch, struct channel_displaced *d)
{
	struct wire_message m = {.type = WIRE_CHANNEL_SETTLE};
	struct wire_settled acks[WIRE_SETTLED_MAX];
	uint32_t n = d->n < WIRE_SETTLED_MAX ? d->n : WIRE_SETTLED_MAX;
	bool all = d->n == n && d->held == 0;

	d->n -= n;
	for (uint32_t i = 0; i < n; i++)
		acks[i] = d->acks[d->n + i];
	m.channel_settle.member = ch->member;
	m.channel_settle.producer = d->producer;
	m.channel_settle.flags = all ? WIRE_CHANNEL_SETTLE_ALL : 0;
	m.channel_settle.acks.data = acks;
	m.channel_settle.acks.size = n * (uint32_t)sizeof(acks[0]);
	d->telling = true;
	ch->held++; /* so that the channel stays */
	pthread_mutex_unlock(&ch->lock);
	rpc_send(ch->client, &m); /* without a broker there is nobody who would have to know */
	pthread_mutex_lock(&ch->lock);
	ch->held--;
	d->telling = false;
	return !all;
}

static struct channel_displaced *next_locked(share_channel *ch)
{
	struct channel_displaced *d;

	STAILQ_FOREACH (d, &ch->displaced, link)
		if (!d->telling && (d->n > 0 || d->held == 0))
			return d;
	return NULL;
}

void channel_settle_locked(share_channel *ch)
{
	struct channel_displaced *d;

	while ((d = next_locked(ch))) {
		if (tell_some_locked(ch, d))
			continue;
		STAILQ_REMOVE(&ch->displaced, d, channel_displaced, link);
		free(d);
	}
}

void channel_displaced_done(share_channel *ch)
{
	struct channel_displaced *d;

	while ((d = STAILQ_FIRST(&ch->displaced))) {
		STAILQ_REMOVE_HEAD(&ch->displaced, link);
		free(d);
	}
}
