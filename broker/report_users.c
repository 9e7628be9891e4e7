/* SPDX-License-Identifier: MIT */

/* What sharectl shows of users: for each, what it has of what is limited, and the limit. */

#include "broker/account.h"
#include "broker/broker.h"
#include "broker/client.h"
#include "broker/report.h"
#include "broker/request.h"

static bool is_size(enum limit_kind kind)
{
	return kind == LIMIT_BYTES || kind == LIMIT_METADATA || kind == LIMIT_UNSENT;
}

static json_t *row_of(const struct account *a, enum limit_kind kind)
{
	uint64_t limit = account_limit(a, kind);
	json_t *row =
	    json_pack("{s:I, s:s, s:I, s:o, s:b}", "uid", (json_int_t)account_uid(a), "resource",
		      limit_name(kind), "used", report_integer(account_used(a, kind)), "limit",
		      limit == LIMIT_NONE ? json_null() : json_integer(report_integer(limit)),
		      "size", (int)is_size(kind));

	if (row && kind == LIMIT_BYTES &&
	    json_object_set_new(row, "gated", json_integer(report_integer(account_gated(a)))) < 0) {
		json_decref(row);
		return NULL;
	}
	return row;
}

/* In the order of uids, each with those resources of which it has something. The cursor is both. */
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

			if (account_used(a, kind) > 0 && !report_add(p, row_of(a, kind))) {
				report_set_cursor(p, at);
				return;
			}
		}
	}
}
