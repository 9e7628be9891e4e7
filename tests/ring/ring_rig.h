/* SPDX-License-Identifier: MIT */
#pragma once

#include <criterion/criterion.h>

#include <share/channel.h>

#include "ring/ring.h"

/*
 * Both halves of a channel over pages of this process. Messages carry a number of the test's, by
 * which they are known: it is their data, and their buffer is 1000 above it.
 */
#define RIG_PRODUCERS 2
#define RIG_CONSUMERS 4

extern struct channel_shape shape; /* change it before anybody comes */

extern struct ring_producer *producers[RIG_PRODUCERS];
extern struct ring_consumer *consumers[RIG_CONSUMERS];
extern void *rings[RIG_PRODUCERS], *ledgers[RIG_CONSUMERS];
extern uint64_t producer_members[RIG_PRODUCERS], consumer_members[RIG_CONSUMERS];

/* What was received last. */
extern struct ring_message message;
extern unsigned char message_data[CHANNEL_DATA_MAX];
extern struct ring_further message_further[CHANNEL_BUFFERS_MAX - 1];
extern uint32_t message_producer;
extern uint64_t message_lost;

/* 4 entries and 8 tickets, broadcast, block. One producer with @n consumers. */
void rig(uint32_t mode, uint32_t when_full, uint32_t n);
void producer_comes(uint32_t slot);
/* Attached to all producers there are, and admitted by them. */
void consumer_comes(uint32_t slot, bool oldest);
void latest_comes(uint32_t slot, bool oldest); /* one that gets the latest alone */

int try_send(uint32_t producer, uint64_t number, uint32_t target);
void sends(uint64_t number);      /* by producer 0, and there is room */
void sends_data(uint64_t number); /* the same, of data alone */
void sends_to(uint64_t number, uint32_t target);
/* Into `message`. What ring_consumer_receive() says. */
int try_receive(uint32_t consumer);
void receives(uint32_t consumer, uint64_t number);
void receives_nothing(uint32_t consumer);
void acks_this(uint32_t consumer, const struct ring_message *m, uint32_t fence, bool retained);
void acks(uint32_t consumer); /* `message` */
/* receives and acknowledges */
void uses(uint32_t consumer, uint64_t number);

/* The next message of producer 0 that is back, and its ticket retired. */
extern struct ring_return returned;
void comes_back(uint64_t number);
void nothing_comes_back(void);
void so_many_come_back(uint32_t n); /* and no more */
struct ring_producer_stats stats(void);
