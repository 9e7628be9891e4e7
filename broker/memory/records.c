/* SPDX-License-Identifier: MIT */

/*
 * The records of memory, and how a broker that comes after another one makes of them what that one
 * had. What follows from others is not in them: what accounts are charged, how much of a pool is in
 * use, which memory is free. Free memory is taken for written by several users.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <share/share.h>

#include "base/slab.h"
#include "broker/broker.h"
#include "broker/client/account.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/records.h"
#include "broker/device/agent.h"
#include "broker/device/device.h"
#include "broker/journal/journal.h"
#include "broker/keeper/kept.h"
#include "broker/log/log.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/fence.h"
#include "broker/memory/inside.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/pools.h"
#include "broker/memory/records.h"
#include "broker/memory/segment.h"

uint32_t record_user(const struct account *a)
{
	return a ? (uint32_t)account_uid(a) : RECORD_NOBODY;
}

struct account *account_of_record(struct broker *b, uint32_t uid)
{
	return uid == RECORD_NOBODY ? NULL : account_get(b->accounts, uid);
}

struct client *client_of_record(struct broker *b, uint64_t id)
{
	return clients_find(b->clients, id);
}

static int done(int error, const char *what)
{
	if (error < 0)
		log_error("the journal's %s cannot be made again: %s", what, strerror(-error));
	return error;
}

static bool is_text(const char *text, size_t size)
{
	return strnlen(text, size) < size;
}

/* ------------------------------------------------------------------------------------------- */
/* Pools                                                                                       */

struct pool_record {
	uint64_t id;
	uint32_t flags, reuse, owner, payer, kind, configured, persistent, destroyed;
	uint64_t granularity, limit, segment_size, alignment, release_threshold;
	uint64_t failed[ALLOC_FAILURES];
	char name[256], wished_kind[16], wished_device[64], device[64], reason[512];
	uint32_t n_access, most_used; /* in MARK_UNITs: it came later */
};

#define MARK_UNIT 4096

static uint32_t in_units(uint64_t bytes)
{
	uint64_t n = bytes / MARK_UNIT;

	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

void pool_note(struct pool *p)
{
	struct pool_record r = {
	    .id = p->id,
	    .flags = p->flags,
	    .reuse = p->reuse,
	    .owner = p->owner,
	    .payer = record_user(p->charge.account),
	    .kind = p->choice.kind ? p->choice.kind->id : 0,
	    .configured = p->configured,
	    .persistent = p->persistent,
	    .destroyed = p->destroyed,
	    .granularity = p->sizes.granularity,
	    .limit = p->sizes.limit,
	    .segment_size = p->sizes.segment_size,
	    .alignment = p->sizes.alignment,
	    .release_threshold = p->sizes.release_threshold,
	    .n_access = (uint32_t)p->access.n_entries,
	    .most_used = in_units(p->extent.most_noted),
	};
	const struct iovec parts[] = {
	    {&r, sizeof(r)}, {p->access.entries, p->access.n_entries * sizeof(*p->access.entries)}};

	memcpy(r.failed, p->failed, sizeof(r.failed));
	snprintf(r.name, sizeof(r.name), "%s", p->name);
	snprintf(r.wished_kind, sizeof(r.wished_kind), "%s", p->wish.kind);
	snprintf(r.wished_device, sizeof(r.wished_device), "%s",
		 p->wish.device ? p->wish.device : "");
	snprintf(r.device, sizeof(r.device), "%s", p->device ? p->device->uuid : "");
	snprintf(r.reason, sizeof(r.reason), "%s", p->choice.reason);
	journal_put_parts(p->broker->journal, RECORD_POOL, &p->record, parts, 2);
}

static bool is_power_of_two(uint64_t n)
{
	return n > 0 && (n & (n - 1)) == 0;
}

/* What others are divided by and reach into: see pool_config_validate(). */
static bool is_pool(struct broker *b, const struct pool_record *r)
{
	const struct memory_kind *kind = r->kind ? memory_kind_by_id(r->kind) : NULL;

	if (!is_text(r->name, sizeof(r->name)) || !is_text(r->device, sizeof(r->device)) ||
	    !is_text(r->wished_kind, sizeof(r->wished_kind)) ||
	    !is_text(r->wished_device, sizeof(r->wished_device)) ||
	    !is_text(r->reason, sizeof(r->reason)))
		return false;
	if (r->kind
		? !kind || kind->on_device != (*r->device != 0) || !is_power_of_two(r->granularity)
		: *r->device != 0)
		return false;
	return r->id > 0 && r->id <= b->ids.pool && !pool_of_record(b, r->id) && *r->name &&
	       (r->destroyed || !pool_find(b, r->name, strlen(r->name))) &&
	       r->reuse <= SHARE_REUSE_SCRUB && r->segment_size > 0 &&
	       is_power_of_two(r->alignment) && r->alignment >= SUBALLOCATOR_UNIT;
}

static bool is_access(const struct access_entry *entry)
{
	return (unsigned)entry->who.type <= PRINCIPAL_GROUP && (entry->mode & ~ACCESS_ALL) == 0;
}

static int restore_pool(struct broker *b, uint32_t record, const struct pool_record *r,
			const struct access_entry *access)
{
	const struct memory_kind *wished =
	    memory_kind_by_name(r->wished_kind, strlen(r->wished_kind));
	struct account *payer = account_of_record(b, r->payer);
	struct pool_config config = {
	    .name = strdup(r->name),
	    .kind = wished ? wished->name : "auto",
	    .device = *r->wished_device ? strdup(r->wished_device) : NULL,
	};
	struct failure failure;
	struct pool *p;
	int e = config.name ? 0 : -ENOMEM;

	for (uint32_t i = 0; e == 0 && i < r->n_access; i++)
		e = is_access(&access[i])
			? access_grant(&config.access, access[i].who, access[i].mode)
			: -EBADMSG;
	if (e == 0 && pool_new(b, &config, NULL, r->owner, payer, r->persistent, &p, &failure) != 0)
		e = -ENOMEM;
	account_unref(payer);
	pool_config_clear(&config);
	if (e < 0)
		return e;
	p->record = record;
	p->id = r->id;
	p->flags = r->flags;
	p->reuse = r->reuse;
	p->configured = r->configured;
	p->destroyed = r->destroyed;
	p->device = *r->device ? device_find_any(b, r->device) : NULL;
	p->choice.device = p->device;
	if (*r->device && !p->device)
		return -EBADMSG;
	p->choice.kind = r->kind ? memory_kind_by_id(r->kind) : NULL;
	snprintf(p->choice.reason, sizeof(p->choice.reason), "%s", r->reason);
	p->sizes = (struct pool_sizes){r->granularity, r->limit, r->segment_size, r->alignment,
				       r->release_threshold};
	memcpy(p->failed, r->failed, sizeof(p->failed));
	p->extent.most_used = p->extent.most_noted = (uint64_t)r->most_used * MARK_UNIT;
	return 0;
}

static int read_pool(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct pool_record copy;

	memcpy(&copy, bytes, sizeof(copy));
	if (sizeof(copy) + copy.n_access * sizeof(struct access_entry) > size ||
	    !is_pool(data, &copy))
		return -EBADMSG;
	return restore_pool(
	    data, record, &copy,
	    (const struct access_entry *)(const void *)((const char *)bytes + sizeof(copy)));
}

struct pool *pool_of_record(struct broker *b, uint64_t id)
{
	struct pool *p;

	LIST_FOREACH (p, &b->memory->pools, link)
		if (p->id == id)
			return p;
	return NULL;
}

struct open_pool_record {
	uint64_t client, pool, count;
	uint32_t asks, keeps;
};

void open_pool_note(struct client *c, struct open_pool *open)
{
	const struct open_pool_record r = {c->id, open->pool->id, open->count, open->asks,
					   open->keeps};

	journal_put(c->broker->journal, RECORD_OPEN_POOL, &open->record, &r, sizeof(r));
}

static int read_open_pool(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct broker *b = data;
	struct open_pool_record copy;
	struct client *c;
	struct pool *p;
	struct open_pool *open;

	(void)size;
	memcpy(&copy, bytes, sizeof(copy));
	c = client_of_record(b, copy.client);
	p = pool_of_record(b, copy.pool);
	if (!c || !p || copy.count == 0 || client_find_pool(c, p->id))
		return -EBADMSG;
	if (client_open_pool(c, p) < 0)
		return -ENOMEM;
	open = client_find_pool(c, p->id);
	journal_drop(b->journal, &open->record);
	open->record = record;
	open->count = copy.count;
	open->keeps = copy.keeps;
	open->asks = copy.asks;
	return copy.asks && pool_user_comes(p, c->account) < 0 ? -ENOMEM : 0;
}

/* ------------------------------------------------------------------------------------------- */
/* Segments                                                                                    */

struct segment_record {
	uint64_t pool;
	uint32_t index, generation, state;
	uint32_t fd, fd_readonly; /* as the keeper has them */
	uint32_t incarnation;
	uint64_t handle;
	struct memory_recipe recipe;
};

void segment_note(struct broker *b, struct segment *s)
{
	const struct segment_record r = {
	    .pool = s->pool->id,
	    .index = s->index,
	    .generation = s->generation,
	    .state = s->state,
	    .fd = kept_id(s->memory.fd),
	    .fd_readonly = kept_id(s->memory.fd_readonly),
	    .incarnation = s->incarnation,
	    .handle = s->handle,
	    .recipe = s->memory.recipe,
	};

	journal_put(b->journal, RECORD_SEGMENT, &s->record, &r, sizeof(r));
}

/* One that is active has memory, as large as it says. */
static bool is_segment(const struct segment *s, const struct pool *p,
		       const struct segment_record *r)
{
	struct stat st;

	if (!s || !p || !p->choice.kind || s->in_use || r->generation == 0 ||
	    r->generation > s->generation || r->state > SEGMENT_RETIRING || r->recipe.size == 0)
		return false;
	if (r->handle && (!p->device || r->incarnation > agent_incarnation(p->device->agent)))
		return false;
	if (r->state == SEGMENT_RETIRING)
		return true;
	return fstat(kept_look(r->fd), &st) == 0 &&
	       (p->device || (uint64_t)st.st_size == r->recipe.size);
}

static int restore_segment(struct broker *b, uint32_t record, const struct segment_record *r)
{
	struct segment *s = slab_at(&b->memory->segments, r->index);
	struct pool *p = pool_of_record(b, r->pool);
	struct failure failure;
	int e;

	if (!is_segment(s, p, r))
		return -EBADMSG;
	s->generation = r->generation;
	s->in_use = 1;
	s->index = r->index;
	s->record = record;
	s->pool = p;
	s->state = r->state;
	s->incarnation = r->incarnation;
	s->handle = r->handle;
	s->memory.recipe = r->recipe;
	s->memory.fd = kept_take(r->fd);
	s->memory.fd_readonly = kept_take(r->fd_readonly);
	if ((r->fd && s->memory.fd < 0) || (r->fd_readonly && s->memory.fd_readonly < 0))
		return -EBADMSG;
	if (segment_cost_take(p, &s->cost, &failure) != 0)
		return -EDQUOT;
	e = suballocator_add_region(&p->suballocator, &s->region, r->recipe.size);
	if (e < 0)
		return e == -EINVAL ? -EBADMSG : e;
	/* of a segment that is empty as well */
	s->region.first->tag = SUBALLOCATOR_TAG_MIXED;
	LIST_INSERT_HEAD(&p->extent.segments, s, link);
	p->extent.n_segments++;
	if (s->state == SEGMENT_ACTIVE || p->device)
		p->extent.reserved += r->recipe.size;
	if (s->state == SEGMENT_RETIRING) {
		suballocator_hold_region(&p->suballocator, &s->region);
		segment_return_descriptors(b, s);
		p->extent.retiring += p->device ? r->recipe.size : 0;
	}
	return 0;
}

static int read_segment(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct segment_record copy;

	(void)size;
	memcpy(&copy, bytes, sizeof(copy));
	return restore_segment(data, record, &copy);
}

struct possession_record {
	uint64_t client;
	uint32_t segment, what;
};

void possession_note(struct client *c, uint32_t index)
{
	const struct possession_record r = {c->id, index, c->memory->segments[index].what};
	uint32_t *record = &c->memory->segments[index].record;

	if (r.what)
		journal_put(c->broker->journal, RECORD_POSSESSION, record, &r, sizeof(r));
	else
		journal_drop(c->broker->journal, record);
}

static int read_possession(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct broker *b = data;
	struct possession_record copy;
	struct client *c;
	struct segment *s;
	uint8_t *has;

	(void)size;
	memcpy(&copy, bytes, sizeof(copy));
	c = client_of_record(b, copy.client);
	s = slab_at(&b->memory->segments, copy.segment);
	if (!c || !s || !s->in_use || copy.what == 0 ||
	    copy.what > (SEGMENT_READABLE | SEGMENT_WRITABLE | SEGMENT_ASKED))
		return -EBADMSG;
	has = client_possession(c, copy.segment);
	if (!has || *has)
		return has ? -EBADMSG : -ENOMEM;
	*has = (uint8_t)copy.what;
	c->memory->segments[copy.segment].record = record;
	s->importers += (copy.what & (SEGMENT_READABLE | SEGMENT_WRITABLE)) != 0;
	s->asked += (copy.what & SEGMENT_ASKED) != 0;
	c->memory->n_asked += (copy.what & SEGMENT_ASKED) != 0;
	return 0;
}

static int tell_known(struct broker *b, struct device *d)
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

int segments_tell_known(struct broker *b)
{
	struct device *d;
	int r = 0;

	LIST_FOREACH (d, &b->devices->list, link)
		r = r == 0 ? tell_known(b, d) : r;
	return r;
}

/* Slots up to the last one, so that each segment gets its own. */
static int make_slots(struct broker *b)
{
	return generations_make_slots(&b->memory->generations, b->journal, &b->memory->segments);
}

int pools_restore(struct broker *b)
{
	struct journal *j = b->journal;
	int r = journal_read(j, RECORD_POOL, sizeof(struct pool_record), read_pool, b);

	b->memory->last_pool = b->ids.pool;
	if (r == 0)
		r = journal_read(j, RECORD_OPEN_POOL, sizeof(struct open_pool_record),
				 read_open_pool, b);
	if (r == 0)
		r = make_slots(b);
	if (r == 0)
		r = journal_read(j, RECORD_SEGMENT, sizeof(struct segment_record), read_segment, b);
	if (r == 0)
		r = journal_read(j, RECORD_POSSESSION, sizeof(struct possession_record),
				 read_possession, b);
	for (uint32_t i = 0; i < slab_end(&b->memory->segments); i++) {
		struct segment *s = slab_at(&b->memory->segments, i);

		if (s && !s->in_use)
			slab_free_index(&b->memory->segments, i);
	}
	return done(r, "pools");
}
