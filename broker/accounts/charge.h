/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/config/config.h"

struct account;

/*
 * What was taken of an account for one object. Objects embed the charge they were made under and
 * return it in their own free.
 */
struct charge {
	struct account *account; /* NULL: nothing is charged */
	uint64_t resource : 5;
	uint64_t amount : 42;
	uint64_t own : 17; /* what it takes of the broker beside its price: multiples of 16 bytes */
};

/* Charges an account. False, and nothing is charged, when it would exceed the user's limit, or its
 * price (price.h) what the user may have of the broker's memory. */
bool charge_take(struct charge *c, struct account *a, enum limit_kind resource, uint64_t amount);
/* The same for a thing that has so many bytes of its own in the broker. */
bool charge_take_with(struct charge *c, struct account *a, enum limit_kind resource,
		      uint64_t amount, uint64_t own);
/* Changes how many bytes of its own the thing has, which is not refused. */
void charge_change_own(struct charge *c, uint64_t own);
/* The same, but so much beyond the limit may be used, and any memory of the broker. */
bool charge_take_beyond(struct charge *c, struct account *a, enum limit_kind resource,
			uint64_t amount, uint64_t own, uint64_t beyond);
/* The same within the limit, but of any memory of the broker: for what ends a connection when it is
 * refused. Whoever asks account_bears() before bounds it. */
bool charge_take_unasked(struct charge *c, struct account *a, enum limit_kind resource,
			 uint64_t amount, uint64_t own);
void charge_return(struct charge *c);
/* Says what a charge is for that is kept in another form. @own: see charge_take_with(). */
void charge_say(struct charge *c, enum limit_kind resource, uint64_t amount, uint64_t own);
/* Moves it to somebody who keeps what it is for, and cannot be refused that any more: beyond the
 * limit, if it must be. */
void charge_move(struct charge *c, struct account *to);
/* Splits off a part, which is returned by itself. */
void charge_split(struct charge *c, uint64_t amount, struct charge *part);

/* Grows an array for which a user pays, so that there is a place with this index, and zeros in all
 * new ones. 0 or -ENOMEM. */
int paid_grow(struct account *account, void **array, uint32_t *n, uint32_t index, size_t size);
/* Returns how many places it has then. */
uint32_t paid_room(uint32_t n, uint32_t index);
