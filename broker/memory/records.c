/* SPDX-License-Identifier: MIT */

/*
 * The records of segments, and how a broker that comes after another one makes of them what that
 * one had. What follows from other things is not in the records: what accounts are charged, how
 * much of a pool is in use, which memory is free. Free memory is taken for memory that several
 * users have written to.
 */

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/slab.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/client/records.h"
#include "broker/device/agent.h"
#include "broker/device/device.h"
#include "broker/journal/object.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/records.h"
#include "broker/memory/segment.h"
#include "broker/memory/segment_cost.h"

void record_pool(struct record *r, struct pool **p)
{
	uint64_t id = *p ? (*p)->id : 0;

	record_u64(r, &id);
	if (!record_reads(r))
		return;
	*p = restored_find(&r->broker->memory->restored_pools, id);
	if (!*p)
		record_fail(r, -EBADMSG);
}

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
	if (s->handle &&
	    (!p->choice.device || s->incarnation > agent_incarnation(p->choice.device->agent)))
		return false;
	if (s->state == SEGMENT_RETIRING)
		return true;
	/* what a client had before was checked when the client brought it, and may be smaller
	 * now */
	return fstat(s->memory.fd, &st) == 0 && (p->choice.device || pool_is_adopted(p) ||
						 (uint64_t)st.st_size == s->memory.recipe.size);
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
		segment_return_descriptors(b, &s->cost);
		p->extent.retiring += kind_of_segment(s)->on_device ? size : 0;
	}
	return 0;
}

const struct object_kind segment_kind =
    OBJECT_KIND(RECORD_SEGMENT, "segment", struct segment, segment_fields, segment_attach);

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

		if (s && s->in_use && s->handle && s->pool->choice.device == d &&
		    s->incarnation == agent_incarnation(d->agent))
			handles[n++] = s->handle;
	}
	r = agent_tell_known(d->agent, WIRE_KNOWN_SEGMENTS, handles, n);
	free(handles);
	return r;
}
