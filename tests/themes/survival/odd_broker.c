/* SPDX-License-Identifier: MIT */

/*
 * A share-broker that cannot go on from the one before, in the way that $SHARE_TEST_ODD says:
 * "refuses" with a reason, is killed ("crashes") or "fails" while it finds out; or "dies", "is
 * killed" or "hangs" though it had found out that it could.
 */

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/broker.h"
#include "broker/keeper/keeper.h"
#include "broker/log/log.h"

static int *volatile nowhere = (int *)0x10;

int __real_broker_new(struct config *config, const struct keeper *keeper, struct broker **out);
int __wrap_broker_new(struct config *config, const struct keeper *keeper, struct broker **out);
int __wrap_broker_new(struct config *config, const struct keeper *keeper, struct broker **out)
{
	const char *how = getenv("SHARE_TEST_ODD");

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
