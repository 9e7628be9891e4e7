/* SPDX-License-Identifier: MIT */

/*
 * What makes a dying broker one that can be recorded. With $SHARE_TEST_RECORD_TO the third broker
 * of a keeper writes down what those before have left, and goes on. The test kills the first one,
 * so part of that was made by a broker that was the next one itself. The second one dies as soon as
 * an agent has ended, as that is written down no longer than that.
 *
 * With $SHARE_TEST_GO_ON_FROM the first broker hands to its keeper what was written down once, has
 * the next one rehearse, and hands over to it, as a broker of that version would in an upgrade. If
 * the next one cannot go on it says why, and the service ends.
 */

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "broker/broker.h"
#include "broker/device/agent.h"
#include "broker/device/inside.h"
#include "broker/journal/journal.h"
#include "broker/keeper/keeper.h"
#include "broker/keeper/kept.h"
#include "broker/log/log.h"
#include "tests/themes/survival/recording.h"

#define DIES_OF_AGENT 2

static const struct keeper *keeper;

void __real_kept_init(const struct keeper *k);
void __wrap_kept_init(const struct keeper *k);
void __wrap_kept_init(const struct keeper *k)
{
	const char *path = getenv(RECORD_TO_VARIABLE);

	keeper = k;
	__real_kept_init(k);
	if (path && k->generation == DIES_OF_AGENT + 1)
		recording_write(path, k);
}

void __real_agent_note(struct agent *a);
void __wrap_agent_note(struct agent *a);
void __wrap_agent_note(struct agent *a)
{
	static bool is_dying; /* what looks whether all is noted notes it again */

	__real_agent_note(a);
	if (is_dying || !getenv(RECORD_TO_VARIABLE) || keeper->generation != DIES_OF_AGENT ||
	    journal_count(a->broker->journal, RECORD_CHILD) == 0)
		return;
	is_dying = true;
	broker_commit(a->broker);
	kill(getpid(), SIGKILL);
}

static void hand_over(const char *path)
{
	const char *version = recording_read(path, keeper);
	char why[KEPT_TEXT];

	kept_serves();
	if (kept_rehearse(why) == 0)
		kept_hand_over(version);
	log_error("refused: %s", why);
	kept_end(EXIT_FAILURE);
}

/* The last that happens before a broker is made. */
int __real_kept_keep_fixed(const int fds[static KEPT_FIXED]);
int __wrap_kept_keep_fixed(const int fds[static KEPT_FIXED]);
int __wrap_kept_keep_fixed(const int fds[static KEPT_FIXED])
{
	static bool has_begun;
	const char *path = getenv(GO_ON_FROM_VARIABLE);
	int r = __real_kept_keep_fixed(fds);

	if (r == 0 && path && keeper->generation == 1 && !has_begun) {
		has_begun = true;
		hand_over(path);
	}
	return r;
}
