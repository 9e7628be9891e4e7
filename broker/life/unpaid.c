/* SPDX-License-Identifier: MIT */

/*
 * What the broker has of memory beside what users pay for is nobody's, and leaves less for all: a
 * user who leaves a few objects in each part of what it took keeps the rest of the part from being
 * given back. How much there is is looked up as a whole, and not counted by what it is of. So the
 * sum is right, whatever a user has done to the memory.
 */

#include <malloc.h>

#include "base/mutation.h"
#include "base/system/process.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/journal/journal.h"
#include "broker/life/inside.h"

/* So much memory is the program's own. */
#define OWN_MEMORY (UINT64_C(8) << 20)
/* After so many commits there is a look at how much there is, which takes as long as one of
 * them. */
#define LOOK_EVERY 64

static uint64_t beyond_what_is_paid(const struct broker *b)
{
	uint64_t paid =
	    accounts_used(b->accounts, LIMIT_MEMORY) - accounts_nobodys(b->accounts, LIMIT_MEMORY);
	uint64_t all = process_own_memory(b->life->unpaid.memory) + journal_size(b->journal);

	return all > paid + OWN_MEMORY && !MUTATION(holes_cost_nothing) ? all - paid - OWN_MEMORY
									: 0;
}

void unpaid_count(struct broker *b)
{
	struct unpaid *u = &b->life->unpaid;
	uint64_t nobodys;

	if (u->n_commits++ % LOOK_EVERY > 0)
		return;
	nobodys = beyond_what_is_paid(b);
	if (nobodys > u->least + OWN_MEMORY) {
		malloc_trim(0);
		nobodys = u->least = beyond_what_is_paid(b);
	}
	if (nobodys < u->least)
		u->least = nobodys;
	accounts_subtract(b->accounts, LIMIT_MEMORY, accounts_nobodys(b->accounts, LIMIT_MEMORY));
	accounts_add(b->accounts, LIMIT_MEMORY, nobodys);
}
