/* SPDX-License-Identifier: MIT */

/*
 * A share-broker that cannot go on from the one before, in the way that $SHARE_TEST_ODD says:
 * "refuses" with a reason, is killed ("crashes"), "fails", "stops" or "never ends" while it finds
 * out; or "dies", "is killed" or "hangs" though it had found out that it could. Or "is slow", and
 * can go on. Or "is told late": it goes on as ever,
 * but when it hands over, its keeper and that one's deputy stand still until it has given that up.
 */

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/beat.h"
#include "base/clock.h"
#include "broker/broker.h"
#include "broker/keeper/keeper.h"
#include "broker/keeper/kept.h"
#include "broker/log/log.h"

static int *volatile nowhere = (int *)0x10;

static void get_on(uint64_t ms)
{
	uint64_t begin_ms = clock_ms();

	while (clock_ms() - begin_ms < ms) {
		beat();
		usleep(10000);
	}
}

int __real_broker_new(struct config *config, const struct keeper *keeper, struct broker **out);
int __wrap_broker_new(struct config *config, const struct keeper *keeper, struct broker **out);
int __wrap_broker_new(struct config *config, const struct keeper *keeper, struct broker **out)
{
	const char *how = getenv("SHARE_TEST_ODD");

	if (strcmp(how, "is slow") == 0 && keeper->rehearses)
		get_on(3500);
	if (strcmp(how, "never ends") == 0)
		get_on(UINT64_MAX / 2);
	if (strcmp(how, "stops") == 0)
		raise(SIGSTOP);
	if (strcmp(how, "is told late") == 0 || strcmp(how, "is slow") == 0)
		return __real_broker_new(config, keeper, out);
	if (strcmp(how, "refuses") == 0) {
		log_error("the journal is of a version that this broker does not read");
		return -EBADMSG;
	}
	if (strcmp(how, "crashes") == 0)
		raise(SIGKILL); /* for one, as others leave a core */
	if (strcmp(how, "fails") == 0)
		*nowhere = 1;
	if (strcmp(how, "is killed") == 0 && !keeper->rehearses)
		raise(SIGKILL);
	if (strcmp(how, "hangs") == 0 && !keeper->rehearses)
		raise(SIGSTOP);
	if (strcmp(how, "ends") == 0 || !keeper->rehearses)
		_exit(3);
	return __real_broker_new(config, keeper, out);
}

static void stand_still(const struct kept_history *history, int signal)
{
	if (history->keeper > 0)
		kill(history->keeper, signal);
	if (history->deputy > 0)
		kill(history->deputy, signal);
}

int __real_kept_hand_over(const char *version);
int __wrap_kept_hand_over(const char *version);
int __wrap_kept_hand_over(const char *version)
{
	struct kept_history history;
	int r;

	if (strcmp(getenv("SHARE_TEST_ODD"), "is told late") != 0)
		return __real_kept_hand_over(version);
	kept_history(&history);
	stand_still(&history, SIGSTOP);
	r = __real_kept_hand_over(version);
	stand_still(&history, SIGCONT);
	return r;
}
