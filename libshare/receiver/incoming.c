/* SPDX-License-Identifier: MIT */

/*
 * A message that comes in: it is taken from its ring, the program's struct says what it is, and its
 * buffers are on loan from there on.
 */

#include <errno.h>
#include <stdlib.h>

#include "base/probe.h"
#include "libshare/program/error.h"
#include "libshare/receiver/data.h"

static void fill(struct receiver *receiver, uint32_t row, const struct ring_message *m,
		 uint64_t lost, share_message *out)
{
	out->number = m->number;
	out->lost = lost;
	out->producer = receiver->members->peers[row].member;
	out->deliveries = m->deliveries;
	out->data_size = m->data_size;
	out->channel = handle_of(receiver->ch);
	out->receipt = RECEIPT(row, m->ticket, m->version);
	data_keep(receiver, out);
	out->error = 0;
	out->reserved = 0;
	out->after = 0;
	if (m->buffer == 0) /* else its handle has it */
		out->after = CHANNEL_PACK(CHANNEL_LARGE(m->fence.value), m->fence.slot);
	message_without_buffer(out);
}

void receiver_become_stale(struct receiver *receiver)
{
	const struct channel_shape *shape = &receiver->ch->shape;

	if (!receiver->stale)
		receiver->before_stale = (uint64_t)shape->rows * shape->depth;
	receiver->stale = true;
}

/* The buffers behind the first one, for which handles are reserved. Their fence is that one's. */
static __attribute__((noinline)) void hand_out_further(struct receiver *receiver, uint32_t row,
						       const struct ring_message *m,
						       share_message *out)
{
	struct channel_data *d = data_find(receiver, out);
	struct ring_message one = *m;

	d->n_further = m->n_further;
	d->handles[0] = out->buffer;
	for (uint32_t i = 0; i < m->n_further; i++) {
		struct lent_buffer *l = lent_new(receiver);

		one.buffer = m->further[i].buffer;
		one.segment = m->further[i].segment;
		one.offset = m->further[i].offset;
		one.size = m->further[i].size;
		one.ticket = m->further[i].ticket;
		one.version = m->further[i].version;
		d->handles[i + 1] = handle_lend(&l->b);
		(void)lent_fill(receiver, l, row, &one);
	}
	out->buffers = d->handles;
	out->n_buffers = 1 + m->n_further;
}

/* It was taken from its ring, and a handle is reserved. */
static inline __attribute__((always_inline)) void hand_out(struct receiver *receiver, uint32_t row,
							   const struct ring_message *m,
							   uint64_t lost, share_message *out)
{
	struct lent_buffer *l;

	lost += receiver->orphans.lost - receiver->orphans.lost_told;
	receiver->orphans.lost_told = receiver->orphans.lost;
	fill(receiver, row, m, lost, out);
	PROBE(receive, receiver->ch->member, m->buffer, out->data_size, out->number);
	receiver->members->held++;
	if (m->buffer == 0)
		return;
	l = lent_new(receiver);
	l->handle = handle_lend(&l->b);
	out->buffer = l->handle;
	out->buffers = &l->handle;
	out->n_buffers = 1;
	if (lent_fill(receiver, l, row, m)) {
		if (__builtin_expect(m->n_further > 0, 0))
			hand_out_further(receiver, row, m, out);
		return;
	}
	message_without_buffer(out);
	lent_free(receiver, l);
	out->error = fail(SHARE_EPROTO, "a producer sent a fence that is none");
	if (m->n_further > 0) /* they are acknowledged with it */
		data_find(receiver, out)->n_further = m->n_further;
}

/* Where a message may have several buffers, it is taken by itself. 0: no memory. */
static __attribute__((noinline)) uint32_t prepare_for_several(struct receiver *receiver,
							      struct ring_message *m)
{
	if (!lent_reserve(receiver, channel_buffers(&receiver->ch->shape)) ||
	    data_places(receiver, m, 1) == 0)
		return 0;
	m->further = receiver->free_data->further;
	receiver->free_data->n_further = receiver->free_data->retained = 0;
	return 1;
}

/* A message, which could not be put back, is taken when there are places for it: for so many of @n.
 */
static inline uint32_t prepare_places(struct receiver *receiver, struct ring_message *m, uint32_t n)
{
	if (__builtin_expect(receiver->ch->shape.buffers > 1, 0))
		return prepare_for_several(receiver, m);
	return lent_reserve(receiver, 1) ? data_places(receiver, m, n) : 0;
}

/* Up to @n messages that are there and are data alone, or one of another kind: how many, 0 when
 * there is none, or an error. */
int receiver_take_run(struct receiver *receiver, share_message *out, size_t stride, uint32_t n)
{
	struct ring_message m[RECEIVER_RUN];
	uint64_t lost = 0;
	uint32_t row = 0;
	int r;

	if (receiver->latest && receiver->members->held >= CHANNEL_LATEST_HELD)
		return fail(SHARE_EBUSY,
			    "this consumer gets the latest alone, and has %d messages: it has to "
			    "acknowledge one first",
			    CHANNEL_LATEST_HELD);
	n = prepare_places(receiver, m, n < RECEIVER_RUN ? n : RECEIVER_RUN);
	if (n == 0)
		return fail_system(-ENOMEM, "receiving a message");
	while ((r = ring_consumer_receive_run(receiver->ring, &row, m, n, &lost)) == -ESTALE)
		receiver_become_stale(receiver);
	if (r > 0 && receiver->stale)
		receiver->before_stale -=
		    (uint64_t)r < receiver->before_stale ? (uint64_t)r : receiver->before_stale;
	for (int i = 0; i < r; i++, lost = 0) {
		share_message *to = message_at(out, (size_t)i, stride);

		if (i > 0)
			message_prepare(to, stride);
		hand_out(receiver, row, &m[i], lost, to);
	}
	data_leave(receiver, m + (r > 0 ? r : 0), n - (r > 0 ? (uint32_t)r : 0));
	if (r == -EPROTO)
		return fail(SHARE_EPROTO, "what a producer has written makes no sense");
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Messages of producers that are gone, which the broker gives to who has nothing else          */

void receiver_hear(struct members *members, const struct wire_channel_members *m)
{
	struct receiver *receiver = members->receiver;
	struct channel_stashed *s;
	struct ring_message message;
	struct channel_peer *p;
	uint32_t row = 0;

	if (m->expelled)
		receiver_become_stale(receiver);
	receiver->orphans.asked = receiver->orphans.wanted && !m->given;
	receiver->orphans.wanted = false;
	receiver->orphans.waiting = m->waiting;
	receiver->orphans.others = m->others;
	receiver->orphans.lost = m->lost;
	/* somebody has messages of producers that were gone before we came: their end is something
	 * to tell, as it is to those who were there */
	if (receiver->last_end == 0 && (m->waiting > 0 || m->others > 0))
		receiver->had_producers = members->some_gone = true;
	if (!m->given || m->more || m->ticket >= receiver->ch->shape.in_flight)
		return;
	p = members->peers;
	while (row < receiver->ch->shape.rows &&
	       (p[row].member != m->producer || !p[row].known || p[row].over))
		row++;
	/* what cannot be done now is said again */
	if (row == receiver->ch->shape.rows || prepare_places(receiver, &message, 1) == 0)
		return;
	s = malloc(sizeof(*s));
	if (s) {
		receiver->orphans.had++;
		/* whose end is something to tell, though it was gone before we came */
		receiver->had_producers = members->some_gone = true;
	}
	if (!s || !ring_consumer_fetch(receiver->ring, row, m->ticket, m->version, m->deliveries,
				       &message)) {
		data_leave(receiver, &message, 1);
		free(s);
		return;
	}
	if (m->reached)
		message.fence = (struct ring_fence){0, 0};
	s->message = (share_message)SHARE_MESSAGE_INIT;
	hand_out(receiver, row, &message, 0, &s->message);
	STAILQ_INSERT_TAIL(&receiver->stash, s, link);
}
