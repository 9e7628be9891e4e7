/* SPDX-License-Identifier: MIT */

/*
 * The records of memory, and how a broker that comes after another one makes of them what that one
 * had. What follows from others is not in them: what accounts are charged, how much of a pool is in
 * use, which memory is free. Free memory is taken for written by several users.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/slab.h"
#include "broker/broker.h"
#include "broker/client/account.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/records.h"
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

/* What all readers share. */
struct reading {
	struct broker *broker;
	int error;
};

static int done(const struct reading *r, const char *what)
{
	if (r->error < 0)
		log_error("the journal's %s cannot be made again: %s", what, strerror(-r->error));
	return r->error;
}

/* ------------------------------------------------------------------------------------------- */
/* Timelines: see fence.c, where they are written                                              */

struct fence_record fence_to_record(const struct fence *f)
{
	if (!f->timelines)
		return (struct fence_record){0};
	return (struct fence_record){f->timelines->id, f->value, f->slot, 0};
}

static int compare_pages(const void *a, const void *b)
{
	const struct timelines *x = *(struct timelines *const *)a,
			       *y = *(struct timelines *const *)b;

	return (x->id > y->id) - (x->id < y->id);
}

static void read_timelines(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct reading *r = data;
	struct memory *m = r->broker->memory;
	struct timelines **grown;

	(void)bytes, (void)size;
	if (r->error < 0)
		return;
	grown = realloc(m->restored, (m->n_restored + 1) * sizeof(struct timelines *));
	if (!grown) {
		r->error = -ENOMEM;
		return;
	}
	m->restored = grown;
	r->error = timelines_again(r->broker->journal, record, r->broker->accounts,
				   &m->restored[m->n_restored]);
	m->n_restored += r->error == 0;
}

int timelines_restore(struct broker *b)
{
	struct reading r = {b, 0};
	struct memory *m = b->memory;

	journal_read(b->journal, RECORD_TIMELINES, read_timelines, &r);
	if (m->n_restored > 0)
		qsort(m->restored, m->n_restored, sizeof(struct timelines *), compare_pages);
	return done(&r, "timelines");
}

struct timelines *timelines_find(struct broker *b, uint64_t page)
{
	struct timelines key = {.id = page}, *wanted = &key, **found;

	if (b->memory->n_restored == 0)
		return NULL;
	found = bsearch(&wanted, b->memory->restored, b->memory->n_restored,
			sizeof(struct timelines *), compare_pages);
	return found ? *found : NULL;
}

void timelines_restored(struct broker *b)
{
	for (size_t i = 0; i < b->memory->n_restored; i++)
		timelines_unref(b->memory->restored[i]);
	free(b->memory->restored);
	b->memory->restored = NULL;
	b->memory->n_restored = 0;
}

int client_memory_restore(struct client *c)
{
	const struct memory *m = c->broker->memory;

	for (size_t i = 0; i < m->n_restored; i++) {
		struct timelines *t = m->restored[i];

		if (t->kept->client != c->id)
			continue;
		t->client = c->slot;
		t->pidfd = t->dead ? -1 : c->peer.pidfd;
		c->memory->timelines = timelines_ref(t);
		return t->dead || t->page ? 0 : -EBADMSG;
	}
	return -EBADMSG;
}

/* Of a page that is no more all was reached, or its memory would not have been given up. */
struct fence fence_of_record(struct broker *b, const struct fence_record *r)
{
	struct timelines *t = r->page ? timelines_find(b, r->page) : NULL;

	if (!t || r->slot == 0 || r->slot >= TIMELINE_SLOTS)
		return (struct fence){0};
	return (struct fence){timelines_ref(t), r->value, r->slot};
}

/* ------------------------------------------------------------------------------------------- */
/* Pools                                                                                       */

struct pool_record {
	uint64_t id;
	uint32_t flags, reuse, owner, payer, kind, configured, persistent, destroyed;
	uint64_t granularity, limit, segment_size, alignment, release_threshold;
	uint64_t failed[ALLOC_FAILURES];
	char name[256], wished_kind[16], wished_device[64], device[64], reason[512];
	uint32_t n_access;
};

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
		e = access_grant(&config.access, access[i].who, access[i].mode);
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
	return 0;
}

static void read_pool(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct reading *r = data;
	struct pool_record copy;

	memcpy(&copy, bytes, sizeof(copy));
	if (r->error == 0 && sizeof(copy) + copy.n_access * sizeof(struct access_entry) > size)
		r->error = -EBADMSG;
	if (r->error == 0)
		r->error =
		    restore_pool(r->broker, record, &copy,
				 (const struct access_entry *)(const void *)((const char *)bytes +
									     sizeof(copy)));
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

static void read_open_pool(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct reading *r = data;
	struct open_pool_record copy;
	struct client *c;
	struct pool *p;
	struct open_pool *open;

	(void)size;
	memcpy(&copy, bytes, sizeof(copy));
	c = client_of_record(r->broker, copy.client);
	p = pool_of_record(r->broker, copy.pool);
	if (r->error < 0 || !c || !p || client_open_pool(c, p) < 0) {
		r->error = r->error < 0 ? r->error : !c || !p ? -EBADMSG : -ENOMEM;
		return;
	}
	open = client_find_pool(c, p->id);
	journal_drop(r->broker->journal, &open->record);
	open->record = record;
	open->count = copy.count;
	open->keeps = copy.keeps;
	open->asks = copy.asks;
	if (copy.asks && pool_user_comes(p, c->account) < 0)
		r->error = -ENOMEM;
}

/* ------------------------------------------------------------------------------------------- */
/* Segments                                                                                    */

struct segment_record {
	uint64_t pool;
	uint32_t index, generation, state;
	uint32_t fd, fd_readonly; /* as the keeper has them */
	uint32_t unused;
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
	    .recipe = s->memory.recipe,
	};

	journal_put(b->journal, RECORD_SEGMENT, &s->record, &r, sizeof(r));
}

static int restore_segment(struct broker *b, uint32_t record, const struct segment_record *r)
{
	struct segment *s = slab_at(&b->memory->segments, r->index);
	struct pool *p = pool_of_record(b, r->pool);
	struct failure failure;
	int e;

	if (!s || !p)
		return -EBADMSG;
	s->generation = r->generation;
	s->in_use = 1;
	s->index = r->index;
	s->record = record;
	s->pool = p;
	s->state = r->state;
	s->memory.recipe = r->recipe;
	s->memory.fd = kept_take(r->fd, NULL);
	s->memory.fd_readonly = kept_take(r->fd_readonly, NULL);
	if (segment_cost_take(p, &s->cost, &failure) != 0)
		return -EDQUOT;
	e = suballocator_add_region(&p->suballocator, &s->region, r->recipe.size);
	if (e < 0)
		return e;
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

static void read_segment(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct reading *r = data;
	struct segment_record copy;

	(void)size;
	memcpy(&copy, bytes, sizeof(copy));
	if (r->error == 0)
		r->error = restore_segment(r->broker, record, &copy);
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

static void read_possession(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct reading *r = data;
	struct possession_record copy;
	struct client *c;
	struct segment *s;
	uint8_t *has;

	(void)size;
	memcpy(&copy, bytes, sizeof(copy));
	c = client_of_record(r->broker, copy.client);
	s = slab_at(&r->broker->memory->segments, copy.segment);
	has = c && s && s->in_use ? client_possession(c, copy.segment) : NULL;
	if (!has) {
		r->error = -EBADMSG;
		return;
	}
	*has = (uint8_t)copy.what;
	c->memory->segments[copy.segment].record = record;
	s->importers += (copy.what & (SEGMENT_READABLE | SEGMENT_WRITABLE)) != 0;
	s->asked += (copy.what & SEGMENT_ASKED) != 0;
	c->memory->n_asked += (copy.what & SEGMENT_ASKED) != 0;
}

/* Slots up to the last one, so that each segment gets its own. */
static int make_slots(struct broker *b)
{
	return generations_make_slots(&b->memory->generations, b->journal, &b->memory->segments);
}

int pools_restore(struct broker *b)
{
	struct reading r = {b, 0};

	journal_read(b->journal, RECORD_POOL, read_pool, &r);
	if (r.error == 0)
		journal_read(b->journal, RECORD_OPEN_POOL, read_open_pool, &r);
	if (r.error == 0)
		r.error = make_slots(b);
	if (r.error == 0)
		journal_read(b->journal, RECORD_SEGMENT, read_segment, &r);
	if (r.error == 0)
		journal_read(b->journal, RECORD_POSSESSION, read_possession, &r);
	for (uint32_t i = 0; i < slab_end(&b->memory->segments); i++) {
		struct segment *s = slab_at(&b->memory->segments, i);

		if (s && !s->in_use)
			slab_free_index(&b->memory->segments, i);
	}
	return done(&r, "pools");
}
