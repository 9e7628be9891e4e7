/* SPDX-License-Identifier: MIT */

/* What makes a share-broker one whose clock is ahead, by as many milliseconds as the test says: so
 * that nobody has to wait for an hour. And it counts the records that it drops in a turn of its
 * loop, and how often it looks at what a claim has. */

#include <stdbool.h>

#include "tests/themes/channels/later_broker.h"

#include "tests/harness/plan.h"

struct entry;
struct event_base;
struct journal;

static struct later_plan none, *plan = &none;
static uint64_t dropped; /* in this turn */

static void __attribute__((constructor)) open_plan(void)
{
	void *memory = plan_open(LATER_PLAN_VARIABLE, sizeof(*plan));

	if (memory)
		plan = memory;
}

uint64_t __real_clock_ms(void);
uint64_t __wrap_clock_ms(void);
uint64_t __wrap_clock_ms(void)
{
	uint64_t stopped = atomic_load(&plan->stopped_ms);

	return stopped ? stopped : __real_clock_ms() + atomic_load(&plan->ahead_ms);
}

void __real_journal_drop(struct journal *j, uint32_t *record);
void __wrap_journal_drop(struct journal *j, uint32_t *record);
void __wrap_journal_drop(struct journal *j, uint32_t *record)
{
	if (++dropped > atomic_load(&plan->most_dropped))
		atomic_store(&plan->most_dropped, dropped);
	__real_journal_drop(j, record);
}

bool __real_entry_is_of(const struct entry *entry, uint32_t ticket, uint32_t version);
bool __wrap_entry_is_of(const struct entry *entry, uint32_t ticket, uint32_t version);
bool __wrap_entry_is_of(const struct entry *entry, uint32_t ticket, uint32_t version)
{
	atomic_fetch_add(&plan->looks, 1);
	return __real_entry_is_of(entry, ticket, version);
}

/* A turn. */
int __real_event_base_loop(struct event_base *base, int flags);
int __wrap_event_base_loop(struct event_base *base, int flags);
int __wrap_event_base_loop(struct event_base *base, int flags)
{
	dropped = 0;
	return __real_event_base_loop(base, flags);
}
