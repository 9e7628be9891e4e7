/* SPDX-License-Identifier: MIT */

/*
 * What sharectl shows of requests: for each message of the protocol that clients have sent, how
 * many there were, how many were refused with which error, and how long the answers took.
 */

#include <share/share.h>

#include "broker/broker.h"
#include "broker/reply/request.h"
#include "broker/report/report.h"

#define ERROR_NAME(name, number, text) [COUNTED_##name] = #name,
static const char *const error_names[COUNTED_ERRORS] = {SHARE_ERRORS(ERROR_NAME)};

static json_t *refusals(const struct request_counters *c)
{
	json_t *list = json_object();

	for (int i = 0; i < COUNTED_ERRORS; i++)
		if (c->refused[i] > 0)
			json_object_set_new(list, error_names[i] ? error_names[i] : "other",
					    json_integer(report_integer(c->refused[i])));
	return list;
}

/* Lists how many answers are in each class: they took no longer than its `longest_ns`, and longer
 * than that of the class before. The last class has no end. */
static json_t *classes(const struct latency *l)
{
	json_t *list = json_array();

	for (int i = 0; i < LATENCY_CLASSES; i++) {
		uint64_t longest = latency_longest(i);

		json_array_append_new(list, json_pack("{s:o, s:I}", "longest_ns",
						      longest == UINT64_MAX
							  ? json_null()
							  : json_integer(report_integer(longest)),
						      "answers", report_integer(l->in_class[i])));
	}
	return list;
}

static json_t *row_of(enum wire_type type, const struct request_counters *c)
{
	return json_pack("{s:s, s:I, s:o, s:I, s:I, s:o}", "request", wire_describe(type)->name,
			 "arrived", report_integer(c->n), "refused", refusals(c), "timed",
			 report_integer(c->latency.n), "total_ns",
			 report_integer(c->latency.sum_ns), "classes", classes(&c->latency));
}

/* Reports messages in the order of the protocol's numbers. */
void report_requests(struct page *p)
{
	const struct broker_counters *all = &p->r->broker->counters;

	for (uint64_t type = report_cursor(p->r); type < WIRE_TYPE_COUNT; type++) {
		const struct request_counters *c = &all->by_message[type];

		if (c->n > 0 && !report_add_at(p, type, row_of((enum wire_type)type, c)))
			return;
	}
}
