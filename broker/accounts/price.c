/* SPDX-License-Identifier: MIT */

#include "broker/accounts/price.h"

#include "base/mutation.h"
#include "broker/journal/journal.h"

#define LARGE      4096
#define OF_RECORDS 32 /* what is beside these bytes in their record */

/* Returns what bytes take that lie in the memory of the broker and in the journal, whose entries
 * have some sizes only; and of large ones few have room in one of its chunks. */
static uint64_t twice(uint64_t bytes)
{
	return bytes + (bytes < LARGE ? bytes + bytes / 8 : journal_taken_by(bytes + OF_RECORDS));
}

/* For each of what is counted; and of what is measured in bytes, beside these. What waits is
 * limited by bytes that stand for work as well, so its price is that of its own bytes. */
static const uint32_t each[LIMIT_KINDS] = {
    [LIMIT_CONNECTIONS] = 1500, [LIMIT_LEASES] = 86,     [LIMIT_NAMES] = 315,
    [LIMIT_TOKENS] = 480,       [LIMIT_WATCHES] = 145,   [LIMIT_WAITS] = 430,
    [LIMIT_POOLS] = 9600,       [LIMIT_METADATA] = 60,   [LIMIT_UNSENT] = 120,
    [LIMIT_EVENTS] = 450,       [LIMIT_CHANNELS] = 1625, [LIMIT_FENCES] = 130,
    [LIMIT_SEGMENTS] = 540,
};

uint64_t price_of(enum limit_kind resource, uint64_t amount, uint64_t of_its_own)
{
	if (MUTATION(cost_nothing))
		return 0;
	switch (resource) {
	case LIMIT_METADATA:
		return each[resource] + twice(amount);
	case LIMIT_UNSENT:
		return each[resource] + twice(of_its_own);
	default:
		return each[resource] * amount + twice(of_its_own);
	}
}
