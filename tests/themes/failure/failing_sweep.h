/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <share/share.h>

#include "tests/themes/failure/failing.h"

/*
 * A scenario, again and again, each time with another call of the broker's failing. Of all the
 * calls that it makes the broker make, some twenty fail, evenly spread; all of them do with
 * SHARE_TEST_FULL=1 in the environment.
 */

/* Returns how many of its own calls failed; scenario_disconnects() says the rest. */
typedef int (*sweep_scenario)(void);

/* Before the fixture's start: brokers are such whose calls fail. */
void sweep_prepare(void);

/* What fails in the broker, for tests that say so themselves. */
extern struct failing_plan *sweep_plan;

/* All of it, with a witness of its own. */
void sweep(sweep_scenario run, unsigned what, int error, bool all_after);
/* From now on the agents are killed before each scenario. */
void sweep_lose_agents(void);

/* One connection that is there all the time: it has a buffer and a name, and keeps them. */
struct witness {
	share_client *client;
	share_pool *pool;
	share_buffer *kept;
	int64_t clients; /* before the first scenario */
};

void witness_start(struct witness *w);
void witness_end(struct witness *w);

/*
 * One scenario, in a process of its own, and as a user of its own if that can be: whose account
 * ends with it, and has to be empty then. Expects afterwards that the witness and newcomers are
 * served, and nothing is left. Returns how many calls of that kind were made.
 */
unsigned long sweep_once(const struct witness *w, sweep_scenario run, unsigned what, int error,
			 bool all_after, unsigned long nth);
/* From one failure to the next, when there are so many calls. */
unsigned long sweep_step(unsigned long calls);
