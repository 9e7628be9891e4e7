/* SPDX-License-Identifier: MIT */

/*
 * A producer that is gone may lose its slot to a new one while we still have messages of it. Our
 * row of the ledger is about the new one then; so what we have acknowledged to the old one, and
 * what we are yet to, is told to the broker, which looks after the memory.
 */

#include <errno.h>
#include <stdlib.h>

#include "libshare/channel/inside.h"
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

static uint32_t count_acks(const struct receiver *receiver, uint32_t slot,
			   struct channel_displaced *out)
{
	struct ring_fence fence;
	uint32_t n = 0, version;

	for (uint32_t ticket = 0; ticket < receiver->ch->shape.in_flight; ticket++) {
		if (!ring_consumer_has_acked(receiver->ring, slot, ticket, &version, &fence))
			continue;
		if (out)
			out->acks[n] =
			    (struct wire_settled){ticket, version, fence.slot, 0, fence.value};
		n++;
	}
	return n;
}

int receiver_displace(struct receiver *receiver, uint32_t slot)
{
	uint32_t held = ring_consumer_held(receiver->ring, slot);
	uint32_t most = count_acks(receiver, slot, NULL) + held;
	struct channel_displaced *d = calloc(1, sizeof(*d) + most * sizeof(d->acks[0]));

	if (!d)
		return fail_system(-ENOMEM, "getting to know a member of a channel");
	d->producer = receiver->members->peers[slot].member;
	d->n = count_acks(receiver, slot, d);
	d->room = most;
	for (uint32_t ticket = 0; ticket < receiver->ch->shape.in_flight; ticket++) {
		uint32_t version = ring_consumer_holds(receiver->ring, slot, ticket);

		if (version && d->held < held)
			d->acks[most - ++d->held] = (struct wire_settled){ticket, version, 0, 0, 0};
	}
	ring_consumer_displace(receiver->ring, slot);
	STAILQ_INSERT_TAIL(&receiver->displaced, d, link);
	return 0;
}

static bool is_held(struct channel_displaced *d, uint32_t ticket, uint32_t version)
{
	struct wire_settled *last = &d->acks[d->room - d->held];

	for (struct wire_settled *held = last; held < &d->acks[d->room]; held++) {
		if (held->ticket != ticket || held->version != version)
			continue;
		*held = *last;
		d->held--;
		return true;
	}
	return false;
}

bool receiver_ack_displaced(struct receiver *receiver, uint64_t producer, uint32_t ticket,
			    uint32_t version, struct ring_fence fence)
{
	struct channel_displaced *d;

	STAILQ_FOREACH (d, &receiver->displaced, link) {
		if (d->producer != producer || !is_held(d, ticket, version))
			continue;
		d->acks[d->n++] =
		    (struct wire_settled){ticket, version, fence.slot, 0, fence.value};
		return true;
	}
	return false;
}

/* As much as fits into a message. False when that was the last of it. */
static bool tell_some_unlocking(struct receiver *receiver, struct channel_displaced *d)
{
	struct wire_message m = {.type = WIRE_CHANNEL_SETTLE};
	struct wire_settled acks[WIRE_SETTLED_MAX];
	uint32_t n = d->n < WIRE_SETTLED_MAX ? d->n : WIRE_SETTLED_MAX;
	bool all = d->n == n && d->held == 0;

	d->n -= n;
	for (uint32_t i = 0; i < n; i++)
		acks[i] = d->acks[d->n + i];
	m.channel_settle.member = receiver->ch->member;
	m.channel_settle.producer = d->producer;
	m.channel_settle.flags = all ? WIRE_CHANNEL_SETTLE_ALL : 0;
	m.channel_settle.acks.data = acks;
	m.channel_settle.acks.size = n * (uint32_t)sizeof(acks[0]);
	d->telling = true;
	receiver->members->held++; /* so that the channel stays */
	channel_unlock(receiver->ch);
	rpc_send(receiver->ch->client,
		 &m); /* without a broker there is nobody who would have to know */
	channel_lock(receiver->ch);
	receiver->members->held--;
	d->telling = false;
	return !all;
}

static struct channel_displaced *next(struct receiver *receiver)
{
	struct channel_displaced *d;

	STAILQ_FOREACH (d, &receiver->displaced, link)
		if (!d->telling && (d->n > 0 || d->held == 0))
			return d;
	return NULL;
}

void receiver_tell_displaced_unlocking(struct receiver *receiver)
{
	struct channel_displaced *d;

	while ((d = next(receiver))) {
		if (tell_some_unlocking(receiver, d))
			continue;
		STAILQ_REMOVE(&receiver->displaced, d, channel_displaced, link);
		free(d);
	}
}

void receiver_displaced_done(struct receiver *receiver)
{
	struct channel_displaced *d;

	while ((d = STAILQ_FIRST(&receiver->displaced))) {
		STAILQ_REMOVE_HEAD(&receiver->displaced, link);
		free(d);
	}
}
