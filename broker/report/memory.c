/* SPDX-License-Identifier: MIT */

/* Reports of what is shared: pools, their segments, the buffers in those, names, and tokens. */

#include <string.h>

#include <share/share.h>

#include "base/clock.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/client/client.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/prefault.h"
#include "broker/memory/segment.h"
#include "broker/names/name.h"
#include "broker/names/names.h"
#include "broker/names/token.h"
#include "broker/pools/pools.h"
#include "broker/reply/request.h"
#include "broker/report/report.h"

#define HOLDERS_MAX    16 /* the most that are listed for a buffer */
#define POOL_USERS_MAX 64 /* the most that are listed for a pool */

/* Counts allocations that failed, by the reason. */
static json_t *failures(const struct pool *p)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "full", report_integer(p->failed[ALLOC_FULL]),
			 "share", report_integer(p->failed[ALLOC_SHARE]), "limit",
			 report_integer(p->failed[ALLOC_LIMIT]), "busy",
			 report_integer(p->failed[ALLOC_BUSY]), "system",
			 report_integer(p->failed[ALLOC_SYSTEM]));
}

/* Lists what each user has of a pool. Only users that the client answers for are listed. */
static json_t *users_of(const struct request *r, const struct pool *p)
{
	json_t *list = json_array();
	const struct pool_user *u;

	LIST_FOREACH (u, &p->use.users, link) {
		if (json_array_size(list) == POOL_USERS_MAX)
			break;
		if (client_answers_for(r->client, account_uid(u->account)))
			json_array_append_new(list, json_pack("{s:I, s:I}", "uid",
							      (json_int_t)account_uid(u->account),
							      "bytes", report_integer(u->bytes)));
	}
	return list;
}

/* Returns how many bytes of the pool were made ahead so far. */
static uint64_t prefaulted(const struct pool *p)
{
	const struct segment *s;
	uint64_t bytes = 0;

	LIST_FOREACH (s, &p->extent.segments, link)
		bytes += prefault_done(p->broker, s);
	return bytes;
}

void report_pools(struct page *p)
{
	uint64_t after = report_cursor(p->r), last = 0;
	char numa[POOL_NUMA_MAX];

	/* they come in the order of their identifiers; there are few */
	for (;;) {
		struct pool *pool, *next = NULL;

		LIST_FOREACH (pool, &p->r->broker->memory->pools, link)
			if (pool->id > after && (!next || pool->id < next->id))
				next = pool;
		if (!next)
			return;
		after = next->id;
		if (!report_shows_pool(p->r, next))
			continue;
		if (!report_add_at(
			p, last,
			json_pack(
			    "{s:o, s:s, s:o, s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
			    "s:I, s:I, s:I, s:b, s:b, s:s, s:I, s:o, s:o, s:I, s:I, s:s, s:s}",
			    "pool", report_text(next->name), "kind", pool_kind_name(next), "reason",
			    report_text(next->choice.reason), "device", pool_device_name(next),
			    "retiring", report_integer(next->extent.retiring), "owner",
			    report_integer(next->owner), "limit", report_integer(next->sizes.limit),
			    "reserved", report_integer(next->extent.reserved), "used",
			    report_integer(next->extent.used), "most_used",
			    report_integer(next->extent.most_used), "largest_free",
			    report_integer(pool_largest_free(next)), "segments",
			    report_integer(next->extent.n_segments), "buffers",
			    report_integer(next->extent.n_buffers), "segment_size",
			    report_integer(next->sizes.segment_size), "alignment",
			    report_integer(next->sizes.alignment), "release_threshold",
			    report_integer(next->sizes.release_threshold), "persistent",
			    next->persistent, "destroyed", next->destroyed, "reuse",
			    pool_reuse_name(next->reuse), "gated",
			    report_integer(next->gated.bytes), "failed", failures(next), "users",
			    users_of(p->r, next), "prefault", report_integer(next->sizes.prefault),
			    "prefaulted", report_integer(prefaulted(next)), "huge_pages",
			    pool_huge_pages_name(next->pages.huge_pages), "numa",
			    pool_numa_name(next->pages.numa, numa))))
			return;
		last = after;
	}
}

void report_segments(struct page *p)
{
	struct slab *slab = &p->r->broker->memory->segments;
	uint64_t i = report_cursor(p->r);
	struct segment *s;

	for (; i < slab_end(slab); i++) {
		s = slab_at(slab, (uint32_t)i);
		if (!s || !s->in_use || !report_shows_pool(p->r, s->pool))
			continue;
		if (!report_add_at(p, i,
				   json_pack("{s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I}",
					     "segment", report_identifier(segment_id(s)), "pool",
					     report_text(s->pool->name), "kind",
					     pool_kind_name(s->pool), "state",
					     segment_state_name(s->state), "size",
					     report_integer(s->memory.recipe.size), "used",
					     report_integer(region_used_bytes(&s->region)),
					     "buffers", report_integer(s->region.live), "importers",
					     report_integer(s->importers), "unmapping",
					     report_integer(s->unmapping))))
			return;
	}
}

static json_t *holders(const struct buffer *buffer)
{
	json_t *list = json_array();
	const struct lease *lease;

	LIST_FOREACH (lease, &buffer->leases, of_buffer) {
		if (json_array_size(list) == HOLDERS_MAX)
			break;
		json_array_append_new(list,
				      json_pack("{s:I, s:I, s:I, s:s, s:I}", "client",
						report_integer(lease_client(lease)->id), "pid",
						report_integer(lease_client(lease)->peer.pid),
						"count", report_integer(lease->count), "mode",
						lease->mode == SHARE_RDWR ? "rw" : "ro", "age_ms",
						report_integer(lease_age_ms(lease))));
	}
	return list;
}

void report_buffers(struct page *p)
{
	struct slab *slab = &p->r->broker->buffers->slab;
	uint64_t first = report_cursor(p->r), i;
	struct buffer *buffer;

	for (i = first; i < slab_end(slab); i++) {
		if (i - first == REPORT_SCANNED_MAX) {
			report_set_cursor(p, i);
			return;
		}
		buffer = slab_at(slab, (uint32_t)i);
		if (!buffer || !buffer->refs || !report_shows_pool(p->r, buffer_pool(buffer)))
			continue;
		if (!report_add_at(
			p, i,
			json_pack("{s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "buffer",
				  report_identifier(buffer_id(buffer)), "pool",
				  report_text(buffer_pool(buffer)->name), "segment",
				  report_identifier(segment_id(buffer_segment(buffer))), "offset",
				  report_integer(block_offset(buffer->block)), "size",
				  report_integer(buffer->size), "capacity",
				  report_integer(block_size(buffer->block)), "references",
				  report_integer(buffer->refs), "leases",
				  report_integer(buffer->n_leases), "metadata",
				  (json_int_t)(buffer->metadata ? buffer->metadata->size : 0),
				  "holders", holders(buffer))))
			return;
	}
}

static json_t *describe_lease(const struct lease *l)
{
	const struct client *c = lease_client(l);

	return json_pack(
	    "{s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:I, s:s, s:I}", "client", report_integer(c->id),
	    "pid", report_integer(c->peer.pid), "uid", report_integer(c->peer.uid), "label",
	    report_text(c->label), "buffer", report_identifier(buffer_id(l->buffer)), "pool",
	    report_text(buffer_pool(l->buffer)->name), "size", report_integer(l->buffer->size),
	    "count", report_integer(l->count), "mode", l->mode == SHARE_RDWR ? "rw" : "ro",
	    "age_ms", report_integer(lease_age_ms(l)));
}

/* Adds the leases of @buffer but for the first @skip. Returns how many leases of it the pages have
 * by now, those included, or UINT32_MAX when they have all. */
static uint32_t add_leases(struct page *p, const struct buffer *buffer, uint32_t skip)
{
	const struct lease *lease;
	uint32_t n = 0;

	LIST_FOREACH (lease, &buffer->leases, of_buffer) {
		if (n >= skip && !report_add(p, describe_lease(lease)))
			return n;
		n++;
	}
	return UINT32_MAX;
}

/* A cursor is the place of a buffer, and how many of its leases were on the pages before. */
void report_leases(struct page *p)
{
	struct slab *slab = &p->r->broker->buffers->slab;
	uint64_t cursor = report_cursor(p->r), first = cursor >> 32, i;
	uint32_t skip = (uint32_t)cursor, had;
	const struct buffer *buffer;

	for (i = first; i < slab_end(slab); i++, skip = 0) {
		if (i - first == REPORT_SCANNED_MAX) {
			report_set_cursor(p, i << 32);
			return;
		}
		buffer = slab_at(slab, (uint32_t)i);
		if (!buffer || !buffer->refs || !report_shows_pool(p->r, buffer_pool(buffer)))
			continue;
		had = add_leases(p, buffer, skip);
		if (had != UINT32_MAX) {
			report_set_cursor(p, i << 32 | had);
			return;
		}
	}
}

static json_t *describe_name(const struct name *n)
{
	return json_pack("{s:o, s:I, s:o, s:I, s:o, s:I, s:s, s:b}", "name",
			 json_stringn(n->text, n->size), "version", report_integer(n->version),
			 "buffer", report_identifier(buffer_id(n->buffer)), "size",
			 report_integer(n->buffer->size), "pool",
			 report_text(buffer_pool(n->buffer)->name), "uid", report_integer(n->uid),
			 "mode", n->mode == SHARE_RDWR ? "rw" : "ro", "persistent", n->persistent);
}

/* A cursor is the last name that was shown; an empty one starts at the prefix. If names were passed
 * over that are not for this client, the client is told none of them: the broker goes on from there
 * by itself. */
void report_names(struct page *p)
{
	const struct wire_bytes *cursor = &p->r->m->query.cursor, *prefix = &p->r->m->query.prefix;
	const struct name *n, *last = NULL, *shown = NULL;
	int scanned = 0;

	n = cursor->size ? name_next(p->r->broker, cursor->data, cursor->size, false)
			 : name_next(p->r->broker, prefix->data, prefix->size, true);
	for (; n; n = name_next(p->r->broker, n->text, n->size, false)) {
		if (n->size < prefix->size || memcmp(n->text, prefix->data, prefix->size) != 0)
			return;
		if (++scanned > REPORT_SCANNED_MAX)
			break;
		if (name_may(n, p->r->client, RIGHT_READ)) {
			if (!report_add(p, describe_name(n)))
				break;
			shown = n;
		}
		last = n;
	}
	if (n && shown) {
		memcpy(p->cursor, shown->text, shown->size);
		p->cursor_size = shown->size;
	} else if (n && last) {
		p->passed_over = (struct wire_bytes){last->text, (uint32_t)last->size};
	}
}

/* Describes a token without its bytes, which would be enough to import. */
static json_t *describe_token(const struct token *t)
{
	uint64_t now = clock_ms(), left = t->ends_ms > now ? t->ends_ms - now : 0;

	return json_pack(
	    "{s:o, s:o, s:I, s:o, s:s, s:o, s:o, s:o, s:I, s:I, s:o}", "token",
	    report_identifier(token_id(t)), "buffer", report_identifier(buffer_id(t->buffer)),
	    "size", report_integer(t->buffer->size), "pool",
	    report_text(buffer_pool(t->buffer)->name), "mode", t->mode == SHARE_RDWR ? "rw" : "ro",
	    "uses",
	    t->uses != SHARE_USES_UNLIMITED ? json_integer(report_integer(t->uses)) : json_null(),
	    "left_ms", t->ends_ms ? json_integer(report_integer(left)) : json_null(), "client",
	    t->maker ? json_integer(report_integer(t->maker->id)) : json_null(), "pid",
	    report_integer(t->was.pid), "uid", report_integer(t->was.uid), "label",
	    report_text(t->maker       ? t->maker->label
			: t->was.label ? t->was.label
				       : ""));
}

void report_tokens(struct page *p)
{
	struct slab *slab = &p->r->broker->names->token_slab;
	uint64_t first = report_cursor(p->r), i;
	const struct token *t;

	for (i = first; i < slab_end(slab); i++) {
		if (i - first == REPORT_SCANNED_MAX) {
			report_set_cursor(p, i);
			return;
		}
		t = slab_at(slab, (uint32_t)i);
		if (t && t->live && token_is_for(t, p->r->client) &&
		    !report_add_at(p, i, describe_token(t)))
			return;
	}
}
