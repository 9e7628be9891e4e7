/* SPDX-License-Identifier: MIT */

/*
 * Handing over to a broker of another program. Between two requests this one stops, and the keeper
 * has the new program go through all that a restart does, with copies of the journal and of all
 * pages, so that nobody sees what comes of that. If the new one can do it, this one ends, and the
 * next broker is of that program; else this one goes on, and says why. The client that has asked is
 * answered by the broker that serves then.
 */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/keeper/keeper.h"
#include "broker/life/inside.h"
#include "broker/log/log.h"
#include "broker/reply/deferred.h"
#include "broker/reply/request.h"
#include "broker/report/report.h"

/* The earlier broker had been asked to hand over, and this one is of the new program. */
static bool tell_of_upgrade(struct request *request, const struct keeper *keeper)
{
	struct page p;

	report_begin(&p, request, REPORT_ROWS_MAX);
	report_add(&p, json_pack("{s:o, s:s, s:i}", "from", report_text(keeper->version_before),
				 "to", SHARE_VERSION, "pid", (int)getpid()));
	return report_end(&p);
}

bool handle_upgrade(struct request *request)
{
	struct broker *b = request->broker;

	if (!client_may_operate(request->client))
		return request_fail(
		    request, SHARE_EACCES,
		    "only administrators may have the broker upgraded (\"admins\")");
	if (!b->keeper)
		return request_fail(request, SHARE_ENOTSUP, "this broker has no keeper");
	if (broker_is_ending(b))
		return request_fail(request, SHARE_EDISCONNECTED, "the broker is about to end");
	if (b->life->asks_again && b->keeper->before == KEEPER_HANDED_OVER)
		return tell_of_upgrade(request, b->keeper);
	if (b->life->asks_again && b->keeper->before == KEEPER_FELL_BACK)
		return request_fail(
		    request, SHARE_ENOTSUP,
		    "the broker of the new program could not go on: the log says why");
	return request_defer(request, &b->life->upgrades);
}

void upgrade_if_asked(struct broker *b)
{
	char why[KEPT_TEXT], text[KEPT_TEXT + 64];
	int r;

	if (TAILQ_EMPTY(&b->life->upgrades))
		return;
	r = kept_rehearse(why);
	if (r == 0) {
		r = kept_hand_over(SHARE_VERSION);
		snprintf(why, sizeof(why), "its keeper was not told: %s", strerror(-r));
	}
	snprintf(text, sizeof(text), "the program on the disk cannot go on: %s", why);
	log_error("not upgraded: %s", text);
	deferred_fail(&b->life->upgrades, SHARE_ENOTSUP, text);
	broker_commit(b);
}
