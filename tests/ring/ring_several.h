/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/ring/ring_rig.h"

/* Messages of several buffers: number 5 has 5000 and those behind it, each somewhere else. */
#define MOST 4

static inline int try_send_several_to(uint64_t number, uint32_t n, uint32_t target)
{
	struct ring_further further[CHANNEL_BUFFERS_MAX - 1] = {{0}};
	struct ring_message m = {
	    .buffer = 1000 * number,
	    .segment = 7,
	    .offset = 512,
	    .size = 64,
	    .fence = {.slot = 3, .value = number},
	    .data_size = sizeof(number),
	    .data = (unsigned char *)&number,
	    .n_further = n - 1,
	    .further = further,
	};

	for (uint32_t i = 1; i < n; i++)
		further[i - 1] = (struct ring_further){.buffer = 1000 * number + i,
						       .segment = 7 + i,
						       .offset = i * 512,
						       .size = 64 + i};
	return ring_producer_send_several(producers[0], &m, target, (void *)(uintptr_t)number);
}

static inline int try_send_several(uint64_t number, uint32_t n)
{
	return try_send_several_to(number, n, 0);
}

static inline void sends_several(uint64_t number, uint32_t n)
{
	cr_assert_eq(try_send_several(number, n), 0, "no room for %lu", (unsigned long)number);
}

static inline void receives_several(uint32_t consumer, uint64_t number, uint32_t n)
{
	cr_assert_eq(try_receive(consumer), 1, "consumer %u gets nothing, not %lu", consumer,
		     (unsigned long)number);
	cr_assert_eq(*(uint64_t *)(void *)message.data, number);
	cr_assert_eq(message.buffer, 1000 * number);
	cr_assert_eq(message.fence.slot, 3);
	cr_assert_eq(message.fence.value, number);
	cr_assert_eq(message.n_further, n - 1);
	for (uint32_t i = 1; i < n; i++) {
		const struct ring_further *f = &message.further[i - 1];

		cr_assert_eq(f->buffer, 1000 * number + i);
		cr_assert_eq(f->segment, 7 + i);
		cr_assert_eq(f->offset, i * 512);
		cr_assert_eq(f->size, 64 + i);
	}
}

/* @retained: bit by bit, those of the further ones that are kept. */
static inline void acks_several(uint32_t consumer, unsigned retained)
{
	static const struct ring_fence none = {0, 0};

	cr_assert(ring_consumer_give_up(consumers[consumer], message_producer,
					producer_members[message_producer], message.ticket,
					message.version, &none, false, message.further,
					message.n_further, retained));
}

static inline void several_come_back(uint64_t number, uint32_t n)
{
	cr_assert(ring_producer_reclaim(producers[0], true, &returned));
	cr_assert_eq((uintptr_t)returned.reference, number);
	cr_assert_eq(returned.n_further, n - 1);
	ring_producer_retire(producers[0], returned.ticket);
}

/* Buffers behind the first ones of the messages that it has, as it says. */
static inline void has_further(uint32_t consumer, uint64_t n)
{
	cr_assert_eq(((const struct channel_ledger *)ledgers[consumer])->further, n);
}

static inline uint32_t tickets_in_use(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < shape.in_flight; i++)
		n += channel_ticket_at(rings[0], &shape, i)->buffer != 0;
	return n;
}
