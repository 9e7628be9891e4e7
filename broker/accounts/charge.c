/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/accounts/account.h"
#include "broker/accounts/inside.h"

/* The largest number that a charge's member has room for. An amount is that of one thing, and no
 * block has 4 TiB. */
#define RESOURCE_MAX ((UINT64_C(1) << 5) - 1)
#define AMOUNT_MAX   ((UINT64_C(1) << 42) - 1)
#define OWN_MAX      ((UINT64_C(1) << 17) - 1)
#define OWN_UNIT     16u
_Static_assert(LIMIT_KINDS <= RESOURCE_MAX, "a charge has room for all kinds");

static uint64_t units_of(uint64_t own)
{
	return (own + OWN_UNIT - 1) / OWN_UNIT;
}

void charge_say(struct charge *c, enum limit_kind resource, uint64_t amount, uint64_t own)
{
	c->resource = resource & RESOURCE_MAX;
	c->amount = amount & AMOUNT_MAX;
	c->own = units_of(own) & OWN_MAX;
}

static void set(struct charge *c, struct account *a, enum limit_kind resource, uint64_t amount,
		uint64_t own)
{
	*c = (struct charge){.account = account_ref(a)};
	charge_say(c, resource, amount, own);
}

bool charge_take_beyond(struct charge *c, struct account *a, enum limit_kind resource,
			uint64_t amount, uint64_t own, uint64_t beyond)
{
	uint64_t units = units_of(own);

	if (units > OWN_MAX || !account_take(a, resource, amount, units * OWN_UNIT, beyond))
		return false;
	set(c, a, resource, amount, own);
	return true;
}

bool charge_take_with(struct charge *c, struct account *a, enum limit_kind resource,
		      uint64_t amount, uint64_t own)
{
	return charge_take_beyond(c, a, resource, amount, own, 0);
}

bool charge_take(struct charge *c, struct account *a, enum limit_kind resource, uint64_t amount)
{
	return charge_take_with(c, a, resource, amount, 0);
}

void charge_change_own(struct charge *c, uint64_t own)
{
	uint64_t before = c->own * OWN_UNIT;

	charge_say(c, (enum limit_kind)c->resource, c->amount, own);
	if (!c->account)
		return;
	account_must_take(c->account, (enum limit_kind)c->resource, 0, c->own * OWN_UNIT);
	account_return(c->account, (enum limit_kind)c->resource, 0, before);
}

bool charge_take_unasked(struct charge *c, struct account *a, enum limit_kind resource,
			 uint64_t amount, uint64_t own)
{
	if (!account_has_room(a, resource, amount))
		return false;
	set(c, a, resource, amount, own);
	account_must_take(a, resource, amount, c->own * OWN_UNIT);
	return true;
}

void charge_return(struct charge *c)
{
	struct account *a = c->account;

	if (!a)
		return;
	account_return(a, (enum limit_kind)c->resource, c->amount, c->own * OWN_UNIT);
	c->account = NULL;
	account_unref(a);
}

void charge_move(struct charge *c, struct account *to)
{
	struct charge old = *c;

	account_must_take(to, (enum limit_kind)c->resource, c->amount, c->own * OWN_UNIT);
	c->account = account_ref(to);
	charge_return(&old);
}

void charge_split(struct charge *c, uint64_t amount, struct charge *part)
{
	uint64_t n = amount < c->amount ? amount : c->amount;

	*part = (struct charge){0};
	if (!c->account)
		return;
	set(part, c->account, (enum limit_kind)c->resource, n, 0);
	c->amount -= part->amount;
}

uint32_t paid_room(uint32_t n, uint32_t index)
{
	uint32_t room = n ? n : 16;

	while (room <= index)
		room *= 2;
	return room;
}

int paid_grow(struct account *account, void **array, uint32_t *n, uint32_t index, size_t size)
{
	uint32_t room = paid_room(*n, index);
	char *grown;

	grown = realloc(*array, room * size);
	if (!grown)
		return -ENOMEM;
	memset(grown + *n * size, 0, (room - *n) * size);
	account_must_add(account, (room - *n) * size);
	*array = grown;
	*n = room;
	return 0;
}
