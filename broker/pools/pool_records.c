/* SPDX-License-Identifier: MIT */

/* The records of pools, and what a pool is part of as long as it is there. */

#include <errno.h>
#include <string.h>

#include <event2/event.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/client/records.h"
#include "broker/device/device.h"
#include "broker/journal/object.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool_object.h"
#include "broker/pools/inside.h"
#include "broker/pools/pool_records.h"

int pool_init(struct broker *b, struct pool *p)
{
	p->waiting.timer = event_new(b->base, -1, 0, pool_on_timer, p);
	if (!p->waiting.timer)
		return -ENOMEM;
	TAILQ_INIT(&p->waiting.requests);
	p->broker = b;
	suballocator_init(&p->suballocator, &b->memory->blocks);
	LIST_INIT(&p->extent.segments);
	LIST_INIT(&p->use.stakes);
	LIST_INIT(&p->use.users);
	TAILQ_INIT(&p->use.left);
	LIST_INSERT_HEAD(&b->memory->pools, p, link);
	return 0;
}

static void record_kind(struct record *r, const struct memory_kind **kind)
{
	uint32_t id = *kind ? (*kind)->id : 0;

	record_u32(r, &id);
	if (!record_reads(r) || id == 0)
		return;
	*kind = memory_kind_by_id(id);
	if (!*kind)
		record_fail(r, -EBADMSG);
}

static void record_wished_kind(struct record *r, const char **name)
{
	const struct memory_kind *kind;
	char text[16] = "";

	if (*name)
		snprintf(text, sizeof(text), "%s", *name);
	record_text(r, text, sizeof(text));
	if (!record_reads(r))
		return;
	kind = memory_kind_by_name(text, strlen(text));
	*name = kind ? kind->name : "auto";
}

static void record_access(struct record *r, struct access_list *access)
{
	const size_t size = sizeof(struct access_entry);
	const struct iovec rest = record_rest(r, access->entries, access->n_entries * size, size);
	struct access_entry entry;

	for (size_t i = 0; record_reads(r) && i < rest.iov_len / size; i++) {
		memcpy(&entry, (const char *)rest.iov_base + i * size, size);
		if ((unsigned)entry.who.type > PRINCIPAL_GROUP || entry.mode & ~ACCESS_ALL)
			record_fail(r, -EBADMSG);
		else if (access_grant(access, entry.who, entry.mode) < 0)
			record_fail(r, -ENOMEM);
	}
}

#define MARK_UNIT 4096

static void record_mark(struct record *r, struct pool_extent *extent)
{
	uint64_t in_units = extent->most_noted / MARK_UNIT;
	uint32_t n = in_units < UINT32_MAX ? (uint32_t)in_units : UINT32_MAX;

	record_u32(r, &n);
	if (record_reads(r))
		extent->most_used = extent->most_noted = (uint64_t)n * MARK_UNIT;
}

static void pool_fields(struct record *r, void *object)
{
	struct pool *p = object;

	record_u64(r, &p->id);
	record_u32(r, &p->flags);
	record_u32(r, &p->reuse);
	record_u32(r, &p->owner);
	record_payer(r, &p->charge);
	record_kind(r, &p->choice.kind);
	record_flag(r, &p->configured);
	record_flag(r, &p->persistent);
	record_flag(r, &p->destroyed);
	record_u64(r, &p->sizes.granularity);
	record_u64(r, &p->sizes.limit);
	record_u64(r, &p->sizes.segment_size);
	record_u64(r, &p->sizes.alignment);
	record_u64(r, &p->sizes.release_threshold);
	record_bytes(r, p->failed, sizeof(p->failed), sizeof(p->failed[0]));
	record_string(r, &p->name, 256);
	record_wished_kind(r, &p->wish.kind);
	record_string(r, &p->wish.device, 64);
	record_device(r, &p->choice.device);
	record_text(r, p->choice.reason, sizeof(p->choice.reason));
	record_access(r, &p->access);
	record_mark(r, &p->extent); /* older brokers wrote zeros here */
	if (record_has(r, 1)) {
		record_u64(r, &p->sizes.prefault);
		record_u32(r, &p->pages.huge_pages);
		record_u32(r, &p->pages.numa);
	}
}

static bool is_power_of_two(uint64_t n)
{
	return n > 0 && (n & (n - 1)) == 0;
}

/* Checks what a record says of a pool, so that nothing is divided by 0 or lies outside of what
 * there is: see pool_config_validate(). */
static bool is_pool(struct broker *b, const struct pool *p)
{
	const struct memory_kind *kind = p->choice.kind;

	if (kind ? kind->on_device != (p->choice.device != NULL) ||
		       !is_power_of_two(p->sizes.granularity)
		 : p->choice.device != NULL)
		return false;
	return p->id > 0 && p->id <= b->memory->last_pool && p->name &&
	       (p->destroyed || !pool_find(b, p->name, strlen(p->name))) &&
	       p->reuse <= SHARE_REUSE_SCRUB && p->pages.huge_pages <= SHARE_HUGE_PAGES_REQUIRE &&
	       p->sizes.segment_size > 0 && is_power_of_two(p->sizes.alignment) &&
	       p->sizes.alignment >= SUBALLOCATOR_UNIT;
}

static int pool_attach(struct broker *b, void *object)
{
	struct pool *p = object;

	if (!is_pool(b, p))
		return -EBADMSG;
	if (restored_add(&b->memory->restored_pools, p->id, p) < 0 ||
	    !payer_charge(&p->charge, LIMIT_POOLS, 1))
		return -ENOMEM;
	return pool_init(b, p);
}

const struct object_kind pool_kind =
    OBJECT_KIND(RECORD_POOL, "pool", struct pool, pool_fields, pool_attach);

void pool_note(struct pool *p)
{
	object_put(p->broker->journal, &pool_kind, p);
}
