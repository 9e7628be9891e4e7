/* SPDX-License-Identifier: MIT */

/* What makes a share-broker one whose clock is ahead, by as many milliseconds as the test says in
 * $SHARE_TEST_AHEAD: so that nobody has to wait for an hour. */

#include <stdatomic.h>
#include <stdint.h>

#include "tests/harness/plan.h"

static _Atomic uint64_t none, *ahead_ms = &none;

static void __attribute__((constructor)) open_plan(void)
{
	void *memory = plan_open("SHARE_TEST_AHEAD", sizeof(*ahead_ms));

	if (memory)
		ahead_ms = memory;
}

uint64_t __real_clock_ms(void);
uint64_t __wrap_clock_ms(void);
uint64_t __wrap_clock_ms(void)
{
	return __real_clock_ms() + atomic_load(ahead_ms);
}
