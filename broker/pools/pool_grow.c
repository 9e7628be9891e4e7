/* SPDX-License-Identifier: MIT */

/*
 * The segments of a pool, which are made when there is no room. Host memory is there at once. A
 * device's memory is made by its agent, so whoever needs it waits, in order of arrival. The bytes
 * count against the pool's limit from the moment they are asked for until no process maps them.
 */

#include <stdio.h>
#include <string.h>

#include <share/share.h>

#include "base/beat.h"
#include "base/clock.h"
#include "base/size.h"
#include "broker/broker.h"
#include "broker/device/agent.h"
#include "broker/device/device.h"
#include "broker/log/log.h"
#include "broker/memory/gated.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/prefault.h"
#include "broker/memory/records.h"
#include "broker/memory/segment_cost.h"
#include "broker/pools/inside.h"
#include "broker/pools/pools.h"
#include "memory/host_pages.h"

/* How long a device that had no memory left is not asked again for a request that could do
 * without. */
#define FULL_MS 250

int pool_add_segment(struct broker *b, struct pool *p, const struct memory_segment *memory,
		     struct segment_cost *cost, struct segment **out)
{
	struct segment *s;
	int r;

	r = segment_new(b, p, memory, cost, &s);
	if (r < 0)
		return r;
	r = suballocator_add_region(&p->suballocator, &s->region, segment_region_size(s));
	if (r < 0) {
		s->memory.fd = s->memory.fd_readonly = -1; /* these stay the caller's */
		s->memory.opaque = NULL;
		*cost = s->cost;
		s->cost = (struct segment_cost){.n_nobodys = 0};
		segment_free(b, s);
		return r;
	}
	LIST_INSERT_HEAD(&p->extent.segments, s, link);
	p->extent.n_segments++;
	segment_note(b, s);
	*out = s;
	b->memory->on_segment_added(b, s);
	return 0;
}

static int grow_host(struct broker *b, struct pool *p, uint64_t size, struct segment_cost *cost,
		     struct failure *failure)
{
	uint64_t address = p->flags & SHARE_POOL_SAME_ADDRESS ? segment_find_address(b, size) : 0;
	struct memory_segment memory;
	struct failure why;
	struct segment *s;
	int r;

	if (memory_host_create(&p->pages, size, address, &memory, &why) != 0)
		return failure_set(failure, why.error,
				   "cannot create a segment for pool '%s': %.700s", p->name,
				   why.text);
	r = pool_add_segment(b, p, &memory, cost, &s);
	if (r < 0) {
		memory_host_exporter.destroy(&memory, NULL);
		return failure_no_memory(failure, "the broker");
	}
	if (p->extent.reserved < p->sizes.prefault)
		prefault_start(b, s, p->sizes.prefault - p->extent.reserved);
	p->extent.reserved += size;
	return 0;
}

/* ------------------------------------------------------------------------------------------- */

static agent_answer on_segment;

/* Asks the agent for a segment. It is for no request in particular until one waits for it. */
static int ask_for_segment(struct broker *b, struct pool *p, uint64_t size, uint64_t least,
			   struct segment_cost *cost, struct failure *failure)
{
	struct wire_message m = {.type = WIRE_AGENT_SEGMENT_CREATE};

	m.agent_segment_create.kind = p->choice.kind->id;
	m.agent_segment_create.size = size;
	if (p->flags & SHARE_POOL_SAME_ADDRESS) {
		m.agent_segment_create.address = segment_find_address(b, size);
		if (!m.agent_segment_create.address)
			return failure_set(failure, SHARE_ENOMEM,
					   "no addresses are left for pool '%s'", p->name);
	}
	if (agent_ask(p->choice.device->agent, &m, -1, on_segment, p) < 0)
		return failure_no_memory(failure, "the broker");
	p->growth.is_under_way = true;
	p->growth.size = size;
	p->growth.least = least;
	p->growth.wanted_by = (struct deferred_id){0};
	p->growth.address = m.agent_segment_create.address;
	p->growth.cost = *cost;
	*cost = (struct segment_cost){.n_nobodys = 0};
	p->extent.reserved += size;
	return POOL_LATER;
}

/* Whether the memory is on the device that it was wanted on. An instance of a device may go by the
 * name of the whole device. */
static bool is_on_device(const struct memory_recipe *recipe, const struct device *d)
{
	unsigned char uuid[sizeof(recipe->device)];

	return recipe->flags & MEMORY_ON_MIG || d->flags & WIRE_DEVICE_MIG ||
	       (memory_uuid_parse(d->uuid, uuid) &&
		memcmp(uuid, recipe->device, sizeof(uuid)) == 0);
}

/* Reads and checks what an agent has made. False when it is nonsense. */
static bool read_segment(const struct wire_agent_segment *m, struct fd_list *fds,
			 const struct pool *p, struct memory_segment *out)
{
	*out = (struct memory_segment){.fd = -1, .fd_readonly = -1};
	if (m->recipe.size != sizeof(out->recipe))
		return false;
	memcpy(&out->recipe, m->recipe.data, sizeof(out->recipe));
	if (out->recipe.size != p->growth.size || out->recipe.address != p->growth.address ||
	    !is_on_device(&out->recipe, p->choice.device))
		return false;
	out->fd = fd_list_take(fds, 0);
	return true;
}

static int take_segment(struct pool *p, const struct wire_agent_segment *m, struct fd_list *fds,
			struct failure *failure)
{
	struct broker *b = p->broker;
	struct memory_segment memory;
	struct segment *s;

	if (!read_segment(m, fds, p, &memory)) {
		/* what the agent has of it goes with the agent */
		agent_distrust(p->choice.device->agent,
			       "made something else than it was asked for");
		return failure_set(failure, SHARE_EDEVICE,
				   "the agent of %s made something else than it was asked for",
				   p->choice.device->uuid);
	}
	if (pool_add_segment(b, p, &memory, &p->growth.cost, &s) < 0) {
		/* what the agent has of it goes with the agent, as nobody is left to name it */
		fd_close(memory.fd);
		return failure_no_memory(failure, "the broker");
	}
	s->handle = m->handle;
	segment_note(b, s);
	return 0;
}

static void on_segment(void *data, const struct wire_message *m, struct fd_list *fds, int error,
		       const char *text)
{
	struct pool *p = data;
	struct broker *b = p->broker;
	uint64_t size = p->growth.size, least = p->growth.least;
	const struct deferred_id asker = p->growth.wanted_by;
	struct segment_cost cost;
	struct failure failure;
	int r;

	p->growth.is_under_way = false;
	if (!m)
		r = failure_set(&failure, error, "pool '%s': %s", p->name, text);
	else if (m->type == WIRE_AGENT_SEGMENT)
		r = take_segment(p, &m->agent_segment, fds, &failure);
	else
		r = failure_set(&failure, SHARE_EDEVICE,
				"pool '%s': the agent did not make a segment", p->name);
	if (r != 0)
		p->extent.reserved -= size;
	cost = p->growth.cost;
	p->growth.cost = (struct segment_cost){.n_nobodys = 0};
	/* a full device may still have room for what is needed now */
	if (r == SHARE_ENOMEM && size > least &&
	    ask_for_segment(b, p, least, least, &cost, &failure) == POOL_LATER) {
		p->growth.wanted_by = asker;
		return;
	}
	segment_cost_return(b, &cost);
	if (r == SHARE_ENOMEM && p->gated.n > 0) { /* gated blocks may do as well, in a moment */
		p->growth.full_until_ms = clock_ms() + FULL_MS;
		r = 0;
	}
	/* When there is no memory, others may need less. But whoever needs anything of a broken
	 * device would wait for nothing. */
	if (r == SHARE_ENOMEM)
		deferred_fail_one(&p->waiting.requests, &asker, r, failure.text);
	else if (r != 0)
		deferred_fail(&p->waiting.requests, r, failure.text);
	deferred_wake(b, &p->waiting.requests);
	pool_look_again(b, p, 64);
}

/* ------------------------------------------------------------------------------------------- */

/* How many bytes the next segment may have. */
static uint64_t room_for_segment(const struct pool *p)
{
	uint64_t room = pool_room(p);

	return room - room % p->sizes.granularity;
}

uint64_t pool_largest_free(const struct pool *p)
{
	uint64_t largest = 0, left;

	if (!p->choice.kind)
		return p->sizes.limit;
	if (!pool_is_adopted(p)) /* what lies beside a buffer there nobody may have */
		largest = suballocator_largest_free(&p->suballocator);
	if (p->reuse == SHARE_REUSE_GATE && gated_largest(&p->gated) > largest)
		largest = gated_largest(&p->gated);
	left = room_for_segment(p);
	if (p->choice.kind->segment_max && left > p->choice.kind->segment_max)
		left = p->choice.kind->segment_max;
	return largest > left ? largest : left;
}

int pool_fail_full(const struct pool *p, uint64_t size, struct failure *failure)
{
	char wanted[SIZE_EXACT_MAX], largest[SIZE_EXACT_MAX];
	char limit[SIZE_TEXT_MAX], used[SIZE_TEXT_MAX], retiring[SIZE_TEXT_MAX];
	char also[SIZE_TEXT_MAX + 64] = "";

	if (p->extent.retiring)
		snprintf(also, sizeof(also),
			 "; %s wait for processes to unmap them (sharectl segments)",
			 size_round(p->extent.retiring, retiring));
	return failure_set(
	    failure, SHARE_ENOMEM,
	    "pool '%s' has no room for %s: limit %s, in use %s, largest free block %s%s", p->name,
	    size_exact(size, wanted), size_round(p->sizes.limit, limit),
	    size_round(p->extent.used, used), size_exact(pool_largest_free(p), largest), also);
}

/* Makes one segment of the prefault. No empty segments are given back for it, as pool_grow() does,
 * because they are what was made before. */
static int make_one_ahead(struct broker *b, struct pool *p, struct failure *failure)
{
	uint64_t room = room_for_segment(p), size = p->sizes.segment_size;
	struct segment_cost cost;
	int r = segment_cost_take(p, NULL, NULL, &cost, failure);

	if (r != 0)
		return r;
	r = grow_host(b, p, size < room ? size : room, &cost, failure);
	segment_cost_return(b, &cost);
	return r;
}

void pool_make_ahead(struct broker *b, struct pool *p)
{
	struct failure why;
	int r = 0;

	if (!p->choice.kind || p->choice.kind->id != MEMORY_HOST)
		return;
	while (r == 0 && p->extent.reserved < p->sizes.prefault && room_for_segment(p) > 0) {
		beat();
		r = make_one_ahead(b, p, &why);
	}
	if (r != 0)
		log_warning_of(p->owner, "pool '%s': not all of its \"prefault\" is made: %s",
			       p->name, why.text);
}

static int pay_segment(struct broker *b, struct pool *p, struct segment_cost *cost,
		       struct failure *failure)
{
	if (segment_cost_take(p, NULL, NULL, cost, NULL) == 0)
		return 0;
	pool_shrink(b, p, 0); /* gives up segments that are too small for one that is not */
	return segment_cost_take(p, NULL, NULL, cost, failure);
}

/* Makes a segment of @room bytes at most. */
static int make_segment(struct broker *b, struct pool *p, uint64_t least, uint64_t room,
			struct failure *failure)
{
	uint64_t most = p->choice.kind->segment_max, want = p->sizes.segment_size;
	struct segment_cost cost;
	int r = pay_segment(b, p, &cost, failure);

	if (r != 0)
		return r;
	if (want < least)
		want = least;
	if (want > room)
		want = room;
	if (most && want > most)
		want = most;
	r = p->choice.device ? ask_for_segment(b, p, want, least, &cost, failure)
			     : grow_host(b, p, want, &cost, failure);
	segment_cost_return(b, &cost);
	return r;
}

int pool_grow(struct broker *b, struct pool *p, uint64_t size, struct failure *failure)
{
	uint64_t least = pool_chosen_segment_size(p, size), room;
	int r;

	if (p->growth.is_under_way)
		return POOL_LATER;
	if (room_for_segment(p) < least)
		pool_shrink(b, p, 0);
	room = room_for_segment(p);
	if (room < least) {
		pool_fail_full(p, size, failure);
		/* The request can wait if there is enough with what others have yet to unmap, or an
		 * agent to end with. */
		return room + p->extent.retiring + p->extent.dying >= least ? POOL_BUSY : POOL_FULL;
	}
	if (clock_ms() < p->growth.full_until_ms && p->gated.n > 0)
		r = failure_set(failure, SHARE_ENOMEM, "device %s has no memory left for pool '%s'",
				p->choice.device->uuid, p->name);
	else
		r = make_segment(b, p, least, room, failure);
	return r == SHARE_ENOMEM || r == SHARE_EQUOTA ? POOL_FULL : r;
}
