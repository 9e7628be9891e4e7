/* SPDX-License-Identifier: MIT */

/*
 * What sharectl shows. A request gets one page of JSON objects. It is bounded in bytes and in
 * objects that are looked at, so that a report over a million buffers holds nobody up. A cursor is
 * the key of the last object seen, or the place of the next one; what comes and goes between pages
 * may be missed.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/share.h>

#include "base/clock.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/channel/channel.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/device/device.h"
#include "broker/journal/journal.h"
#include "broker/keeper/kept.h"
#include "broker/membership/membership.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/names/names.h"
#include "broker/order/order.h"
#include "broker/reply/request.h"
#include "broker/report/report.h"
#include "wire/wire.h"

void report_begin(struct page *p, struct request *r, size_t enough)
{
	p->r = r;
	p->enough = enough;
	p->size = p->cursor_size = 0;
	p->passed_over = (struct wire_bytes){0};
	p->failed = false;
}

bool report_end(struct page *p)
{
	struct wire_message m = {.type = WIRE_REPORT};

	if (p->failed)
		return request_fail_memory(p->r);
	m.report.cursor = (struct wire_bytes){p->cursor, (uint32_t)p->cursor_size};
	m.report.rows = (struct wire_bytes){p->rows, (uint32_t)p->size};
	return request_reply(p->r, &m, NULL, 0);
}

bool report_add(struct page *p, json_t *row)
{
	size_t room = REPORT_ROWS_MAX - p->size, n;

	if (!row) {
		p->failed = true;
		return true;
	}
	/* the next page begins with what was found */
	if (p->size >= p->enough) {
		json_decref(row);
		return false;
	}
	n = json_dumpb(row, p->rows + p->size, room, JSON_COMPACT);
	if (n == 0) { /* to write a row takes memory, too */
		p->failed = true;
	} else if (n < room) {
		p->size += n;
		p->rows[p->size++] = '\n';
	}
	json_decref(row);
	return n < room;
}

bool report_add_at(struct page *p, uint64_t cursor, json_t *row)
{
	if (report_add(p, row))
		return true;
	report_set_cursor(p, cursor);
	return false;
}

void report_set_cursor(struct page *p, uint64_t next)
{
	p->cursor_size = (size_t)snprintf(p->cursor, sizeof(p->cursor), "%" PRIu64, next);
}

uint64_t report_cursor(const struct request *r)
{
	const struct wire_bytes *c = &r->m->query.cursor;
	char text[24] = "";

	memcpy(text, c->data, c->size < sizeof(text) ? c->size : sizeof(text) - 1);
	return strtoull(text, NULL, 10);
}

json_int_t report_integer(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : (json_int_t)value;
}

json_t *report_identifier(uint64_t id)
{
	char hex[19];

	snprintf(hex, sizeof(hex), "0x%" PRIx64, id);
	return json_string(hex);
}

json_t *report_text(const char *s)
{
	json_t *t = json_string(s);

	return t ? t : json_string("?");
}

bool report_shows_pool(const struct request *r, const struct pool *p)
{
	return pool_may(p, r->client, RIGHT_READ);
}

/* ------------------------------------------------------------------------------------------- */

static json_t *age_or_null(int64_t ms)
{
	return ms < 0 ? json_null() : json_integer(ms);
}

void report_status(struct page *p)
{
	struct broker *b = p->r->broker;
	uint64_t segment_bytes = 0, used = 0, pools = 0, quarantined = 0;
	struct kept_history history;
	const struct pool *pool;
	int64_t oldest = -1;

	kept_history(&history);
	LIST_FOREACH (pool, &b->memory->pools, link) {
		pools++;
		segment_bytes += pool->extent.reserved;
		used += pool->extent.used;
	}
	for (uint32_t i = 0; i < b->clients->n_slots; i++) {
		const struct client *c = b->clients->by_slot[i];
		int64_t age = c ? client_oldest_lease_ms(c) : -1;

		quarantined += c && c->state == CLIENT_QUARANTINED;
		oldest = age > oldest ? age : oldest;
	}
	report_add(
	    p,
	    json_pack(
		"{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
		"s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
		"s:I, s:I, s:I, s:o}",
		"version", SHARE_VERSION, "pid", report_integer(getpid()), "keeper",
		(json_int_t)history.keeper, "deputy", (json_int_t)history.deputy, "uptime_ms",
		(json_int_t)(clock_ms() - b->started_ms), "clients", report_integer(b->clients->n),
		"quarantined", report_integer(quarantined), "pools", report_integer(pools),
		"segments", report_integer(slab_live(&b->memory->segments)), "segment_bytes",
		report_integer(segment_bytes), "buffers",
		report_integer(slab_live(&b->buffers->slab)), "buffer_bytes", report_integer(used),
		"leases", report_integer(slab_live(&b->buffers->leases)), "names",
		report_integer(b->names->n), "tokens", report_integer(b->names->tokens.count),
		"agents", report_integer(devices_processes(b)), "descriptors",
		report_integer(accounts_used(b->accounts, LIMIT_DESCRIPTORS)), "descriptors_limit",
		report_integer(b->n_descriptors - b->n_own_descriptors), "broker_memory",
		report_integer(accounts_used(b->accounts, LIMIT_MEMORY)), "broker_memory_limit",
		report_integer(accounts_total(b->accounts, LIMIT_MEMORY)), "broker_memory_wanted",
		report_integer(b->config->broker_memory), "journal_bytes",
		report_integer(journal_size(b->journal)), "requests",
		report_integer(b->counters.requests), "connections",
		report_integer(b->counters.clients), "dropped", report_integer(b->counters.dropped),
		"quarantines", report_integer(b->counters.quarantined), "poisonings",
		report_integer(b->counters.poisoned), "left_behind",
		report_integer(b->counters.left_behind), "stalls",
		report_integer(b->counters.stalls), "cut_off", report_integer(b->counters.cut_off),
		"messages_lost", report_integer(b->counters.messages_lost), "brokers_died",
		report_integer(history.brokers_died), "brokers_upgraded",
		report_integer(history.brokers_upgraded), "keepers_died",
		report_integer(history.keepers_died), "oldest_lease_ms", age_or_null(oldest)));
}

/* Whether @at says of a stream of @c's that it stands still, for a fence of @owner's. A fence that
 * @c may not have is none of these, or @c could ask here for any value of anybody's. */
static bool is_parked_for(const struct timeline_slot *at, const struct client *c,
			  const struct client *owner)
{
	uint64_t timeline = atomic_load_explicit(&at->parked_for, memory_order_acquire);
	uint64_t value = atomic_load_explicit(&at->parked_until, memory_order_relaxed);
	const struct timelines *t = owner->order->timelines;
	uint32_t slot = WIRE_TIMELINE_SLOT(timeline);

	return WIRE_TIMELINE_PAGE(timeline) == t->id && slot < TIMELINE_SLOTS &&
	       client_may_ask(c, owner) && timeline_query(t->page, slot, value) == TIMELINE_PENDING;
}

/* Counts the client's streams that stand still, by its own word, which also says for which fence
 * each waits. A wait is over if its fence is reached or the fence's owner is dead, and so are all
 * waits of a client that is dead itself. */
static json_int_t count_parked(const struct broker *b, const struct client *c)
{
	const struct timeline_slot *parked[TIMELINE_PARKED_MAX];
	const struct timelines *own = c->order->timelines;
	uint32_t n_parked = 0;
	json_int_t n = 0;

	if (!own || own->dead)
		return 0;
	for (uint32_t i = 0; i < TIMELINE_PARKED_MAX; i++)
		if (atomic_load_explicit(&own->page->slots[i].parked_for, memory_order_relaxed))
			parked[n_parked++] = &own->page->slots[i];
	for (uint32_t i = 0; n_parked > 0 && i < b->clients->n_slots; i++) {
		const struct client *owner = b->clients->by_slot[i];

		if (!owner || !owner->order->timelines || owner->order->timelines->dead)
			continue;
		for (uint32_t k = 0; k < n_parked; k++)
			n += is_parked_for(parked[k], c, owner);
	}
	return n;
}

void report_clients(struct page *p)
{
	struct broker *b = p->r->broker;

	for (uint64_t i = report_cursor(p->r); i < b->clients->n_slots; i++) {
		const struct client *c = b->clients->by_slot[i];

		if (!c || !client_answers_for(p->r->client, c->peer.uid))
			continue;
		if (!report_add_at(
			p, i,
			json_pack(
			    "{s:I, s:I, s:I, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
			    "client", report_integer(c->id), "pid", report_integer(c->peer.pid),
			    "uid", report_integer(c->peer.uid), "label", report_text(c->label),
			    "state", client_state_name(c->state), "leases",
			    report_integer(c->holds.leases), "bytes",
			    report_integer(c->holds.bytes), "names", report_integer(c->holds.names),
			    "tokens", report_integer(c->holds.tokens), "memberships",
			    report_integer(c->holds.memberships), "events",
			    report_integer(c->holds.events), "parked", count_parked(b, c),
			    "oldest_lease_ms", age_or_null(client_oldest_lease_ms(c)))))
			return;
	}
}

/* How many places in the memory of members are looked at for one page, which takes some 100
 * microseconds. */
#define LOOKS_MAX 512

void report_channels(struct page *p)
{
	uint64_t after = report_cursor(p->r), last = after;
	const struct channel *ch;
	int looks = LOOKS_MAX;
	json_t *row;

	for (ch = channels_next(p->r->broker, NULL); ch; ch = channels_next(p->r->broker, ch)) {
		if (channel_id(ch) <= after || !channel_may(ch, p->r->client, RIGHT_READ))
			continue;
		row = channel_report(ch, &looks);
		/* the first channel of a page may use up all looks */
		if (looks <= 0 && last != after) {
			json_decref(row);
			report_set_cursor(p, last);
			return;
		}
		if (!report_add_at(p, last, row))
			return;
		last = channel_id(ch);
	}
}

static const struct {
	const char *what;
	void (*report)(struct page *p);
} reports[] = {
#define REPORT_ENTRY(name) {#name, report_##name},
    REPORTS(REPORT_ENTRY)
#undef REPORT_ENTRY
};

/* Looks which devices there are now. False when the request is answered, or will be. */
static bool look_at_devices(struct request *r)
{
	struct devices *all = r->broker->devices;

	if (r->m->query.cursor.size > 0)
		return true;
	if (devices_known(r->broker, true))
		return all->error == 0 || request_fail(r, all->error, "%s", all->text);
	request_defer(r, &all->waits);
	return false;
}

/* Goes on in a later turn, as if the request had come with this cursor. */
static bool go_on(struct request *r, const struct wire_bytes *cursor)
{
	struct wire_message m = *r->m;
	struct request later = *r;

	m.query.cursor = *cursor;
	later.m = &m;
	return request_go_on_later(&later);
}

bool handle_query(struct request *r)
{
	const struct wire_bytes *what = &r->m->query.what;
	struct page p;

	report_begin(&p, r, REPORT_ROWS_ENOUGH);
	for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
		if (strlen(reports[i].what) != what->size ||
		    memcmp(reports[i].what, what->data, what->size) != 0)
			continue;
		if (reports[i].report == report_devices && !look_at_devices(r))
			return false;
		reports[i].report(&p);
		return p.passed_over.size > 0 && !p.failed ? go_on(r, &p.passed_over)
							   : report_end(&p);
	}
	return request_fail(r, SHARE_EINVAL, "there is no report '%.*s'", (int)what->size,
			    (const char *)what->data);
}
