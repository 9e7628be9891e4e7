/* SPDX-License-Identifier: MIT */

/*
 * What sharectl shows of users: for each user, what it has of all that is limited, and the limit. A
 * resource of which it has nothing is shown, too, as its limit is looked for there.
 */

#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/reply/request.h"
#include "broker/report/report.h"

/* Adds what else belongs to a resource: a part of what is used, or what is not there yet. */
static bool add_more(json_t *row, const struct account *a, enum limit_kind kind)
{
	switch (kind) {
	case LIMIT_BYTES:
		return json_object_set_new(row, "gated",
					   json_integer(report_integer(account_gated(a)))) == 0;
	case LIMIT_DESCRIPTORS:
		return json_object_set_new(
			   row, "in_flight",
			   json_integer(report_integer(account_fds_in_flight(a)))) == 0;
	default:
		return true;
	}
}

static json_t *limit_row(const struct account *a, enum limit_kind kind)
{
	uint64_t limit = account_limit(a, kind);
	json_t *row =
	    json_pack("{s:I, s:s, s:I, s:o, s:b}", "uid", (json_int_t)account_uid(a), "resource",
		      limit_name(kind), "used", report_integer(account_used(a, kind)), "limit",
		      limit == LIMIT_NONE ? json_null() : json_integer(report_integer(limit)),
		      "size", (int)limit_is_size(kind));

	if (row && !add_more(row, a, kind)) {
		json_decref(row);
		return NULL;
	}
	return row;
}

/* Reports users in the order of uids, each with all resources. The cursor is both. */
void report_users(struct page *p)
{
	const struct client *asks = p->r->client;
	uint64_t at = report_cursor(p->r);
	const struct account *a;

	for (; (a = account_from(p->r->broker->accounts, at / LIMIT_KINDS));
	     at = ((uint64_t)account_uid(a) + 1) * LIMIT_KINDS) {
		if (at < (uint64_t)account_uid(a) * LIMIT_KINDS)
			at = (uint64_t)account_uid(a) * LIMIT_KINDS;
		if (!client_answers_for(asks, account_uid(a)))
			continue;
		for (; at / LIMIT_KINDS == account_uid(a); at++) {
			enum limit_kind kind = (enum limit_kind)(at % LIMIT_KINDS);

			if (!report_add_at(p, at, limit_row(a, kind)))
				return;
		}
	}
}
