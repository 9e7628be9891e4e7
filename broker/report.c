/* SPDX-License-Identifier: MIT */

/*
 * What sharectl shows. One page of JSON objects a request, bounded in bytes and in objects looked
 * at, so that a report over a million buffers holds nobody up. Cursors are the key of the last
 * object seen; what comes and goes between pages may be missed.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>
#include <share/share.h>

#include "broker/agent.h"
#include "broker/broker.h"
#include "broker/buffer.h"
#include "broker/channel.h"
#include "broker/child.h"
#include "broker/client.h"
#include "broker/ipc_event.h"
#include "broker/name.h"
#include "broker/pool.h"
#include "broker/request.h"
#include "broker/segment.h"

#define ROWS_MAX     60000 /* bytes */
#define SCANNED_MAX  16384 /* objects a page */
#define HOLDERS_MAX  16    /* listed for a buffer */
#define PREFIX_OF(r) (&(r)->m->query.prefix)

struct page {
	struct request *r;
	char rows[ROWS_MAX + 1];
	size_t size;
	char cursor[512];
	size_t cursor_size;
	bool failed; /* no memory for a row: better no page than one with a hole */
};

/* False when it does not fit: the page is full. Consumes @row; NULL: no memory. */
static bool add(struct page *p, json_t *row)
{
	size_t room = ROWS_MAX - p->size, n;

	if (!row) {
		p->failed = true;
		return true;
	}
	n = json_dumpb(row, p->rows + p->size, room, JSON_COMPACT);
	if (n == 0) { /* writing takes memory, too */
		p->failed = true;
	} else if (n < room) {
		p->size += n;
		p->rows[p->size++] = '\n';
	}
	json_decref(row);
	return n < room;
}

static void set_cursor(struct page *p, uint64_t next)
{
	p->cursor_size = (size_t)snprintf(p->cursor, sizeof(p->cursor), "%" PRIu64, next);
}

static uint64_t cursor_number(const struct request *r)
{
	const struct wire_bytes *c = &r->m->query.cursor;
	char text[24] = "";

	memcpy(text, c->data, c->size < sizeof(text) ? c->size : sizeof(text) - 1);
	return strtoull(text, NULL, 10);
}

/* JSON's integers here are signed; beyond are only limits that mean "none". */
static json_int_t integer(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : (json_int_t)value;
}

/* Identifiers are hexadecimal strings: they have 64 bits, many readers of JSON only 53. */
static json_t *identifier(uint64_t id)
{
	char hex[19];

	snprintf(hex, sizeof(hex), "0x%" PRIx64, id);
	return json_string(hex);
}

static json_t *text(const char *s)
{
	json_t *t = json_string(s);

	return t ? t : json_string("?");
}

static bool may_see_pool(const struct request *r, const struct pool *p)
{
	return pool_access(p, r->client) & ACCESS_READ;
}

static bool may_see_client(const struct request *r, const struct client *c)
{
	return r->client->admin || c->peer.uid == r->client->peer.uid;
}

/* ------------------------------------------------------------------------------------------- */

static void report_status(struct page *p)
{
	struct broker *b = p->r->broker;
	uint64_t segment_bytes = 0, used = 0, pools = 0, quarantined = 0;
	const struct pool *pool;

	LIST_FOREACH (pool, &b->pools, link) {
		pools++;
		segment_bytes += pool->reserved;
		used += pool->used;
	}
	for (uint32_t i = 0; i < b->n_client_slots; i++)
		quarantined += b->clients[i] && b->clients[i]->state == CLIENT_QUARANTINED;
	add(p,
	    json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
		      "s:I, s:I, s:I}",
		      "version", SHARE_VERSION, "pid", integer(getpid()), "uptime_ms",
		      (json_int_t)(broker_now_ms() - b->started_ms), "clients",
		      integer(b->n_clients), "quarantined", integer(quarantined), "pools",
		      integer(pools), "segments", integer(slab_live(&b->segments)), "segment_bytes",
		      integer(segment_bytes), "buffers", integer(slab_live(&b->buffers)),
		      "buffer_bytes", integer(used), "leases", integer(slab_live(&b->leases)),
		      "names", integer(b->n_names), "tokens", integer(b->tokens.count), "agents",
		      integer(devices_processes(b) + children_count(b)), "requests",
		      integer(b->counters.requests), "connections", integer(b->counters.clients),
		      "dropped", integer(b->counters.dropped)));
}

static void report_pools(struct page *p)
{
	uint64_t after = cursor_number(p->r), last = 0;

	/* by identifier; there are few */
	for (;;) {
		struct pool *pool, *next = NULL;

		LIST_FOREACH (pool, &p->r->broker->pools, link)
			if (pool->id > after && (!next || pool->id < next->id))
				next = pool;
		if (!next)
			return;
		after = next->id;
		if (!may_see_pool(p->r, next))
			continue;
		if (!add(p, json_pack(
				"{s:o, s:s, s:o, s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
				"s:I, s:I, s:I, s:b, s:b, s:s, s:I}",
				"pool", text(next->name), "kind", pool_kind_name(next), "reason",
				text(next->choice.reason), "device", pool_device_name(next),
				"retiring", integer(next->retiring), "owner", integer(next->owner),
				"limit", integer(next->limit), "reserved", integer(next->reserved),
				"used", integer(next->used), "largest_free",
				integer(pool_largest_free(next)), "segments",
				integer(next->n_segments), "buffers", integer(next->n_buffers),
				"segment_size", integer(next->segment_size), "alignment",
				integer(next->alignment), "release_threshold",
				integer(next->release_threshold), "persistent", next->persistent,
				"destroyed", next->destroyed, "reuse", pool_reuse_name(next->reuse),
				"gated", integer(next->gated.bytes)))) {
			set_cursor(p, last);
			return;
		}
		last = after;
	}
}

static void report_segments(struct page *p)
{
	struct slab *slab = &p->r->broker->segments;
	uint64_t i = cursor_number(p->r);
	struct segment *s;

	for (; i <= UINT32_MAX && (s = slab_at(slab, (uint32_t)i)); i++) {
		if (!s->in_use || !may_see_pool(p->r, s->pool))
			continue;
		if (!add(p,
			 json_pack("{s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "segment",
				   identifier(segment_id(s)), "pool", text(s->pool->name), "kind",
				   pool_kind_name(s->pool), "state", segment_state_name(s->state),
				   "size", integer(s->memory.recipe.size), "used",
				   integer(region_used_bytes(&s->region)), "buffers",
				   integer(s->region.live), "importers", integer(s->importers),
				   "unmapping", integer(s->asked)))) {
			set_cursor(p, i);
			return;
		}
	}
}

static void report_clients(struct page *p)
{
	struct broker *b = p->r->broker;

	for (uint64_t i = cursor_number(p->r); i < b->n_client_slots; i++) {
		const struct client *c = b->clients[i];

		if (!c || !may_see_client(p->r, c))
			continue;
		if (!add(p, json_pack("{s:I, s:I, s:I, s:o, s:s, s:I, s:I}", "client",
				      integer(c->id), "pid", integer(c->peer.pid), "uid",
				      integer(c->peer.uid), "label", text(c->label), "state",
				      client_state_name(c->state), "leases", integer(c->n_leases),
				      "bytes", integer(c->leased_bytes)))) {
			set_cursor(p, i);
			return;
		}
	}
}

static json_t *holders(const struct buffer *buffer)
{
	json_t *list = json_array();
	const struct lease *lease;

	LIST_FOREACH (lease, &buffer->leases, of_buffer) {
		if (json_array_size(list) == HOLDERS_MAX)
			break;
		json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:s}", "client",
						      integer(lease->client->id), "pid",
						      integer(lease->client->peer.pid), "count",
						      integer(lease->count), "mode",
						      lease->mode == SHARE_RDWR ? "rw" : "ro"));
	}
	return list;
}

static void report_buffers(struct page *p)
{
	struct slab *slab = &p->r->broker->buffers;
	uint64_t first = cursor_number(p->r), i;
	struct buffer *buffer;

	for (i = first; i <= UINT32_MAX && (buffer = slab_at(slab, (uint32_t)i)); i++) {
		if (i - first == SCANNED_MAX) {
			set_cursor(p, i);
			return;
		}
		if (!buffer->refs || !may_see_pool(p->r, buffer_pool(buffer)))
			continue;
		if (!add(p,
			 json_pack(
			     "{s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "buffer",
			     identifier(buffer_id(buffer)), "pool", text(buffer_pool(buffer)->name),
			     "segment", identifier(segment_id(buffer_segment(buffer))), "offset",
			     integer(block_offset(buffer->block)), "size", integer(buffer->size),
			     "capacity", integer(block_size(buffer->block)), "references",
			     integer(buffer->refs), "leases", integer(buffer->n_leases), "metadata",
			     (json_int_t)(buffer->metadata ? buffer->metadata->size : 0), "holders",
			     holders(buffer)))) {
			set_cursor(p, i);
			return;
		}
	}
}

static void report_names(struct page *p)
{
	const struct wire_bytes *cursor = &p->r->m->query.cursor, *prefix = PREFIX_OF(p->r);
	struct name *n, *last = NULL;
	int scanned = 0;

	/* a cursor is the last name seen; an empty one starts at the prefix */
	n = cursor->size ? name_next(p->r->broker, cursor->data, cursor->size, false)
			 : name_next(p->r->broker, prefix->data, prefix->size, true);
	for (; n; n = name_next(p->r->broker, n->text, n->size, false)) {
		bool full = ++scanned > SCANNED_MAX;

		if (n->size < prefix->size || memcmp(n->text, prefix->data, prefix->size) != 0)
			return;
		if (!full && name_is_visible(n, p->r->client))
			full = !add(p, json_pack("{s:o, s:I, s:o, s:I, s:o, s:I, s:s, s:b}", "name",
						 json_stringn(n->text, n->size), "version",
						 integer(n->version), "buffer",
						 identifier(buffer_id(n->buffer)), "size",
						 integer(n->buffer->size), "pool",
						 text(buffer_pool(n->buffer)->name), "uid",
						 integer(n->uid), "mode",
						 n->mode == SHARE_RDWR ? "rw" : "ro", "persistent",
						 n->persistent));
		if (full) {
			if (last) {
				memcpy(p->cursor, last->text, last->size);
				p->cursor_size = last->size;
			}
			return;
		}
		last = n;
	}
}

static const char *flag_names(const struct device *d, json_t *out)
{
	static const struct {
		uint32_t flag;
		const char *name;
	} flags[] = {
	    {WIRE_DEVICE_VMM, "vmm"},       {WIRE_DEVICE_MEMPOOL, "mempool"},
	    {WIRE_DEVICE_EVENTS, "events"}, {WIRE_DEVICE_STREAM_MEM_OPS, "stream_mem_ops"},
	    {WIRE_DEVICE_MIG, "mig"},       {WIRE_DEVICE_MIG_ENABLED, "mig_enabled"},
	    {WIRE_DEVICE_MPS, "mps"},
	};

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (d->flags & flags[i].flag)
			json_array_append_new(out, json_string(flags[i].name));
	return NULL;
}

static struct device *nth_device(struct broker *b, uint64_t n)
{
	struct device *d = LIST_FIRST(&b->devices.list);

	while (d && n-- > 0)
		d = LIST_NEXT(d, link);
	return d;
}

static void report_devices(struct page *p)
{
	uint64_t i = cursor_number(p->r);
	struct device *d;

	for (; (d = nth_device(p->r->broker, i)); i++) {
		json_t *can = json_array();

		flag_names(d, can);
		if (!add(p, json_pack(
				"{s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:I, "
				"s:I, s:I, s:I, s:b}",
				"ordinal", integer(d->ordinal), "device", text(d->uuid), "name",
				text(d->name), "pci", text(d->pci), "compute", integer(d->compute),
				"driver", integer(d->driver), "total", integer(d->total), "free",
				d->free == UINT64_MAX ? (json_int_t)-1 : integer(d->free),
				"granularity", integer(d->granularity), "can", can, "agent",
				integer((uint64_t)agent_pid(d->agent)), "agent_failures",
				integer(agent_failures(d->agent)), "events", integer(d->n_leased),
				"events_lost", integer(d->n_lost), "gone", d->gone))) {
			set_cursor(p, i);
			return;
		}
	}
}

static void report_events(struct page *p)
{
	uint64_t after = cursor_number(p->r), last = 0;
	const struct ipc_event *e;
	struct device *d;

	/* by identifier; there are few */
	for (;;) {
		const struct ipc_event *next = NULL;
		const struct event_lease *lease;
		json_int_t leases = 0;

		LIST_FOREACH (d, &p->r->broker->devices.list, link)
			LIST_FOREACH (e, &d->events, link)
				if (e->id > after && (!next || e->id < next->id))
					next = e;
		if (!next)
			return;
		after = next->id;
		if (!p->r->client->admin && next->uid != p->r->client->peer.uid)
			continue;
		LIST_FOREACH (lease, &next->leases, of_event)
			leases += lease->count;
		if (!add(p,
			 json_pack("{s:o, s:s?, s:s, s:I, s:I, s:b, s:b}", "event",
				   identifier(next->id), "name", next->name, "device",
				   next->device->uuid, "uid", integer(next->uid), "leases", leases,
				   "wedged", next->wedged, "lost", ipc_event_is_lost(next)))) {
			set_cursor(p, last);
			return;
		}
		last = after;
	}
}

static void report_channels(struct page *p)
{
	uint64_t after = cursor_number(p->r), last = after;
	const struct channel *ch;

	TAILQ_FOREACH (ch, &p->r->broker->channels, link) {
		if (ch->id <= after || !may_see_pool(p->r, ch->pool))
			continue;
		if (!add(p, channel_report(ch))) {
			set_cursor(p, last);
			return;
		}
		last = ch->id;
	}
}

static const struct {
	const char *what;
	void (*report)(struct page *p);
} reports[] = {
    {"status", report_status},   {"pools", report_pools},     {"segments", report_segments},
    {"clients", report_clients}, {"buffers", report_buffers}, {"names", report_names},
    {"devices", report_devices}, {"events", report_events},   {"channels", report_channels},
};

/* What there is now. False when answered, or when it will be. */
static bool look_at_devices(struct request *r)
{
	struct devices *all = &r->broker->devices;

	if (r->m->query.cursor.size > 0)
		return true;
	if (!devices_known(r->broker, true))
		request_park(r, &all->waits);
	else if (all->error)
		request_fail(r, all->error, "%s", all->text);
	else
		return true;
	return false;
}

void handle_query(struct request *r)
{
	const struct wire_bytes *what = &r->m->query.what;
	struct wire_message m = {.type = WIRE_REPORT};
	struct page p = {.r = r};

	for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
		if (strlen(reports[i].what) != what->size ||
		    memcmp(reports[i].what, what->data, what->size) != 0)
			continue;
		if (reports[i].report == report_devices && !look_at_devices(r))
			return;
		reports[i].report(&p);
		if (p.failed) {
			request_fail_memory(r);
			return;
		}
		m.report.cursor = (struct wire_bytes){p.cursor, (uint32_t)p.cursor_size};
		m.report.rows = (struct wire_bytes){p.rows, (uint32_t)p.size};
		request_reply(r, &m, NULL, 0);
		return;
	}
	request_fail(r, SHARE_EINVAL, "there is no report '%.*s'", (int)what->size,
		     (const char *)what->data);
}
