/* SPDX-License-Identifier: MIT */

/*
 * The records of pools and segments, and how a broker that comes after another one makes of them
 * what that one had. What follows from other things is not in the records: what accounts are
 * charged, how much of a pool is in use, which memory is free. Free memory is taken for memory that
 * several users have written to.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <share/share.h>

#include "base/slab.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/client/records.h"
#include "broker/device/agent.h"
#include "broker/device/device.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/memory/adopted.h"
#include "broker/memory/inside.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pools.h"
#include "broker/memory/records.h"
#include "broker/memory/segment.h"
#include "broker/order/fence.h"

/* ------------------------------------------------------------------------------------------- */
/* Pools                                                                                       */

void record_pool(struct record *r, struct pool **p)
{
	uint64_t id = *p ? (*p)->id : 0;

	record_u64(r, &id);
	if (!record_reads(r))
		return;
	*p = restored_find(&r->broker->memory->restored.pools, id);
	if (!*p)
		record_fail(r, -EBADMSG);
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
	record_device(r, &p->device);
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

	if (kind ? kind->on_device != (p->device != NULL) || !is_power_of_two(p->sizes.granularity)
		 : p->device != NULL)
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
	p->choice.device = p->device;
	if (restored_add(&b->memory->restored.pools, p->id, p) < 0 ||
	    !payer_charge(&p->charge, LIMIT_POOLS, 1))
		return -ENOMEM;
	return pool_init(b, p);
}

static const struct object_kind pool_kind = {
    .type = RECORD_POOL,
    .name = "pool",
    .size = sizeof(struct pool),
    .record = offsetof(struct pool, record),
    .fields = pool_fields,
    .attach = pool_attach,
};

void pool_note(struct pool *p)
{
	object_put(p->broker->journal, &pool_kind, p);
}

/* ------------------------------------------------------------------------------------------- */
/* Segments                                                                                    */

/* A member that says who pays for what was adopted. For all other memory the payer is the
 * pool's. */
static void record_adopter(struct record *r, struct segment *s)
{
	struct charge nobody = {.account = NULL};

	record_payer(r, record_reads(r) || (s->pool && pool_is_adopted(s->pool)) ? &s->cost.segment
										 : &nobody);
}

static void segment_fields(struct record *r, void *object)
{
	struct segment *s = object;
	uint32_t state = s->state;

	record_pool(r, &s->pool);
	record_u32(r, &s->index);
	record_u32(r, &s->generation);
	record_u32(r, &state);
	s->state = state;
	record_fd(r, &s->memory.fd);
	record_fd(r, &s->memory.fd_readonly);
	record_u32(r, &s->incarnation);
	record_u64(r, &s->handle);
	record_bytes(r, &s->memory.recipe, sizeof(s->memory.recipe), sizeof(uint64_t));
	if (record_has(r, 1))
		record_adopter(r, s);
}

/* Checks what a record says of a segment. One that is active has memory, as large as it says. */
static bool is_segment(const struct segment *s, const struct segment *slot)
{
	const struct pool *p = s->pool;
	struct stat st;

	if (!slot || slot->in_use || !p->choice.kind || s->generation == 0 ||
	    s->generation > slot->generation || (uint32_t)s->state > SEGMENT_RETIRING ||
	    s->memory.recipe.size == 0)
		return false;
	if (s->handle && (!p->device || s->incarnation > agent_incarnation(p->device->agent)))
		return false;
	if (s->state == SEGMENT_RETIRING)
		return true;
	/* what a client had before was checked when the client brought it, and may be smaller
	 * now */
	return fstat(s->memory.fd, &st) == 0 &&
	       (p->device || pool_is_adopted(p) || (uint64_t)st.st_size == s->memory.recipe.size);
}

/* Charges what the segment costs to whoever was charged when it was made. 0 or negative errno. */
static int take_cost(struct broker *b, struct segment *s)
{
	struct account *payer = s->cost.segment.account;
	bool adopted = pool_is_adopted(s->pool);
	struct failure failure;
	int r = 0;

	if (adopted && !payer)
		return -EBADMSG;
	s->closing[0] = s->closing[1] = NULL;
	if (segment_cost_take(s->pool, adopted ? payer : NULL, adopted ? &s->memory : NULL,
			      &s->cost, &failure) != 0)
		r = -EDQUOT;
	else if (adopted && s->state == SEGMENT_ACTIVE)
		r = segment_closing_new(b, account_uid(payer), s->closing);
	account_unref(payer);
	return r;
}

static int segment_attach(struct broker *b, void *object)
{
	struct segment *read = object, *s = slab_at(&b->memory->segments, read->index);
	struct pool *p = read->pool;
	uint64_t size = read->memory.recipe.size;
	int e;

	if (!is_segment(read, s))
		return -EBADMSG;
	*s = *read;
	free(read);
	s->in_use = 1;
	s->filling = NULL;
	s->prefaulted = 0;
	s->has_holes = false;
	segment_count_of_agent(s, 1);
	e = take_cost(b, s);
	if (e < 0)
		return e;
	e = suballocator_add_region(&p->suballocator, &s->region, segment_region_size(s));
	if (e < 0)
		return e == -EINVAL ? -EBADMSG : e;
	/* this is so of an empty segment as well */
	s->region.first->tag = SUBALLOCATOR_TAG_MIXED;
	LIST_INSERT_HEAD(&p->extent.segments, s, link);
	p->extent.n_segments++;
	if (s->state == SEGMENT_ACTIVE || kind_of_segment(s)->on_device)
		p->extent.reserved += size;
	if (s->state == SEGMENT_RETIRING) {
		suballocator_hold_region(&p->suballocator, &s->region);
		segment_return_descriptors(b, s);
		p->extent.retiring += kind_of_segment(s)->on_device ? size : 0;
	}
	return 0;
}

static const struct object_kind segment_kind = {
    .type = RECORD_SEGMENT,
    .name = "segment",
    .size = sizeof(struct segment),
    .record = offsetof(struct segment, record),
    .fields = segment_fields,
    .attach = segment_attach,
};

void segment_note(struct broker *b, struct segment *s)
{
	object_put(b->journal, &segment_kind, s);
}

int segments_tell_known(struct broker *b, const struct device *d)
{
	uint32_t end = slab_end(&b->memory->segments), n = 0;
	uint64_t *handles = malloc((end + 1) * sizeof(*handles));
	int r;

	if (!handles)
		return -ENOMEM;
	for (uint32_t i = 0; i < end; i++) {
		const struct segment *s = slab_at(&b->memory->segments, i);

		if (s && s->in_use && s->handle && s->pool->device == d &&
		    s->incarnation == agent_incarnation(d->agent))
			handles[n++] = s->handle;
	}
	r = agent_tell_known(d->agent, WIRE_KNOWN_SEGMENTS, handles, n);
	free(handles);
	return r;
}

int pools_restore(struct broker *b)
{
	int r = objects_restore(b->journal, &pool_kind, b);

	return r < 0 ? r : restored_ready(&b->memory->restored.pools);
}

/* Makes all slots up to the last one first, so that each segment gets its own. */
int segments_restore(struct broker *b)
{
	int r = generations_make_slots(&b->memory->generations, b->journal, &b->memory->segments);

	return r < 0 ? r : objects_restore(b->journal, &segment_kind, b);
}
