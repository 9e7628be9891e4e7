/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/themes/checker/board.h"

/* The processes of a run: starts them, kills some, sees to it that they get on, until the steps are
 * done or the time is over. */
struct supervisor;

struct supervisor *supervisor_start(struct board *board, int board_fd, share_client *client);

enum ending {
	ENDING_WELL = 0,
	ENDING_WRONG = 1,    /* a wrong word, or a worker that failed */
	ENDING_STUCK = 2,    /* somebody did not get on */
	ENDING_SKIPPED = 77, /* this machine cannot do it */
};
/* All workers are gone when it returns. */
enum ending supervisor_run(struct supervisor *s);
unsigned supervisor_kills(const struct supervisor *s);
unsigned supervisor_agent_kills(const struct supervisor *s);
unsigned supervisor_broker_kills(const struct supervisor *s);
unsigned supervisor_keeper_kills(const struct supervisor *s); /* or of its deputy */
unsigned supervisor_upgrades(const struct supervisor *s);

/* What the broker says, on stderr, for those who look into a failure. */
void supervisor_tell(share_client *client);
