/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "broker/config/config.h"

/*
 * The price list: what each thing takes of the broker's memory and of the journal, in bytes, with
 * what goes with it. price_test finds out what is really allocated.
 */

/* Returns the price of @amount of a resource; @of_its_own bytes more belong to the thing itself,
 * which the journal has once more. */
uint64_t price_of(enum limit_kind resource, uint64_t amount, uint64_t of_its_own);

/* A buffer has so many bytes of its own, which its memory is charged with as long as it is one. */
#define PRICE_BUFFER_OWN 80u
/* A block that nobody holds, but that work still runs on, has these, beside its fences. */
#define PRICE_GATED_OWN 48u
/* A token or a wait that ends by itself has these. */
#define PRICE_TIMER_OWN 72u
/* A segment of memory that a client had already has these: what it takes to close its
 * descriptors. */
#define PRICE_ADOPTED_OWN 64u
/* As many bytes of its own have this price. */
#define OWN_OF_PRICE(price) ((price)*8 / 17)
/* The prices of what nothing else counts. */
#define PRICE_TIMELINES   8800u /* the page and its record: they may outlive their client */
#define PRICE_OPEN_POOL   200u  /* it includes what a client has of the pool beside buffers */
#define PRICE_POSSESSION  24u   /* of a segment, by a client */
#define PRICE_EVENT_LEASE 96u
#define PRICE_CLAIM       160u /* a consumer's on a producer */
#define PRICE_ENTRY       128u /* a message that was taken over, for each consumer that has it */
#define PRICE_INHERITED   72u  /* the same, whoever has it, and its place in a table */
#define PRICE_ORPHAN      264u /* a message whose producer is gone, and its places in tables */
