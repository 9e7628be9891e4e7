/* SPDX-License-Identifier: MIT */

/*
 * Pools: a suballocator, the segments it carves, the limit they must keep, and who may use them.
 * A pool takes segments on demand and gives empty ones back beyond its threshold. Knows nothing of
 * buffers and leases; blocks come and go.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "broker/client.h"
#include "broker/fence.h"
#include "broker/log.h"
#include "broker/pool.h"

static const struct suballocator_ops gate_ops = {
    .share = fence_set_share,
    .merge = fence_set_merge,
    .prune = fence_set_prune,
    .drop = fence_set_drop,
};

int pool_new(struct broker *b, struct pool_config *config, uid_t owner, struct account *account,
	     bool persistent, struct pool **out)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	if (account && !charge_take(&p->charge, account, LIMIT_POOLS, 1)) {
		free(p);
		return POOL_QUOTA;
	}
	p->id = ++b->last_pool;
	p->kind = memory_kind_by_name(config->kind, strlen(config->kind));
	p->limit = config->limit;
	p->segment_size = config->segment_size;
	p->alignment = config->alignment;
	p->release_threshold = config->release_threshold;
	p->owner = owner;
	p->persistent = persistent;
	p->name = config->name;
	config->name = NULL;
	p->access = config->access;
	config->access = (struct access_list){0};
	suballocator_init(&p->suballocator, &gate_ops, &b->blocks);
	LIST_INIT(&p->segments);
	LIST_INSERT_HEAD(&b->pools, p, link);
	log_info("pool '%s': kind %s, limit %llu bytes", p->name, p->kind->name,
		 (unsigned long long)p->limit);
	*out = p;
	return 0;
}

struct pool *pool_find(struct broker *b, const void *name, size_t size)
{
	struct pool *p;

	LIST_FOREACH (p, &b->pools, link)
		if (!p->destroyed && strlen(p->name) == size && memcmp(p->name, name, size) == 0)
			return p;
	return NULL;
}

unsigned pool_access(const struct pool *p, const struct client *client)
{
	const struct peer *peer = client_peer(client);

	if (peer->uid == p->owner || client_is_admin(client))
		return ACCESS_READ | ACCESS_WRITE | ACCESS_MANAGE;
	return access_check(&p->access, peer->uid, peer->groups, peer->n_groups);
}

static uint64_t round_up(uint64_t size, uint64_t granularity)
{
	return (size + granularity - 1) / granularity * granularity;
}

static uint64_t empty_bytes(const struct pool *p)
{
	const struct segment *s;
	uint64_t bytes = 0;

	LIST_FOREACH (s, &p->segments, link)
		if (s->state == SEGMENT_ACTIVE && region_is_empty(&s->region))
			bytes += s->memory.size;
	return bytes;
}

/* Empty, and nobody's stream is still at work in it. */
static bool is_returnable(struct broker *b, struct segment *s)
{
	if (s->state != SEGMENT_ACTIVE || !region_is_empty(&s->region))
		return false;
	if (!suballocator_region_is_gated(&s->pool->suballocator, &s->region))
		return true;
	/* a gate that was lost for want of memory cannot be reached; without any client, nobody is
	 * behind it either */
	if (b->n_clients == 0 && fence_set_is_lost(s->region.first->gate))
		return true;
	broker_look_again(b);
	return false;
}

static void retire(struct broker *b, struct pool *p, struct segment *s)
{
	suballocator_hold_region(&p->suballocator, &s->region);
	p->reserved -= s->memory.size;
	segment_retire(b, s);
}

/* Retires empty segments until at most @keep bytes of them are left, or the rest is still gated. */
static void release_empty(struct broker *b, struct pool *p, uint64_t keep)
{
	uint64_t bytes = empty_bytes(p);
	struct segment *s = LIST_FIRST(&p->segments);

	while (s && bytes > keep) {
		struct segment *next = LIST_NEXT(s, link);

		if (is_returnable(b, s)) {
			bytes -= s->memory.size;
			retire(b, p, s);
		}
		s = next;
	}
}

/* One more segment in which @size bytes fit. */
static int grow(struct broker *b, struct pool *p, uint64_t size)
{
	uint64_t least = round_up(size, p->kind->granularity), want = p->segment_size, left;
	struct segment *s;
	int r;

	if (p->limit - p->reserved < least)
		release_empty(b, p, 0);
	left = p->limit - p->reserved;
	left -= left % p->kind->granularity;
	if (left < least)
		return POOL_FULL;
	/* descriptors are everybody's: clients must still be able to connect */
	if (b->n_active_segments >= b->max_segments)
		return POOL_NO_DESCRIPTORS;
	if (want < least)
		want = least;
	if (want > left)
		want = left;
	r = segment_new(b, p, want, &s);
	if (r < 0)
		return r;
	r = suballocator_add_region(&p->suballocator, &s->region, want);
	if (r < 0) {
		segment_free(b, s);
		return r;
	}
	LIST_INSERT_HEAD(&p->segments, s, link);
	p->n_segments++;
	p->reserved += want;
	return 0;
}

int pool_alloc(struct broker *b, struct pool *p, uint64_t size, uint64_t alignment,
	       struct block **out)
{
	int r;

	/* regions start aligned to MEMORY_ALIGNMENT, so a fresh one needs no room to align in */
	if (size > p->limit || size > POOL_BUFFER_MAX)
		return POOL_TOO_LARGE;
	r = suballocator_alloc(&p->suballocator, size, alignment, out);
	if (r == SUBALLOCATOR_FULL) {
		r = grow(b, p, size);
		if (r != 0)
			return r;
		r = suballocator_alloc(&p->suballocator, size, alignment, out);
		if (r == SUBALLOCATOR_FULL)
			r = POOL_FULL;
	}
	if (r != 0)
		return r;
	p->used += block_size(*out);
	p->n_buffers++;
	return 0;
}

void pool_free_block(struct broker *b, struct pool *p, struct block *block, struct fence_set *gate)
{
	struct region *region = block->region;

	p->used -= block_size(block);
	p->n_buffers--;
	suballocator_free(&p->suballocator, block, gate);
	if (region_is_empty(region))
		pool_look_again(b, p);
}

uint64_t pool_largest_free(const struct pool *p)
{
	uint64_t largest = suballocator_largest_free(&p->suballocator);
	uint64_t left = p->limit - p->reserved;

	left -= left % p->kind->granularity;
	return largest > left ? largest : left;
}

void pool_remove_segment(struct pool *p, struct segment *s)
{
	suballocator_unhold_region(&p->suballocator, &s->region);
	suballocator_remove_region(&p->suballocator, &s->region);
	LIST_REMOVE(s, link);
	p->n_segments--;
}

void pool_destroy(struct broker *b, struct pool *p)
{
	p->destroyed = true;
	p->persistent = false;
	pool_end_if_unused(b, p);
}

void pool_end_if_unused(struct broker *b, struct pool *p)
{
	if (p->persistent || p->n_buffers > 0 || (p->opens > 0 && !p->destroyed))
		return;
	p->destroyed = true;
	release_empty(b, p, 0);
	if (p->n_segments > 0 || p->opens > 0)
		return;
	log_info("pool '%s' has ended", p->name);
	LIST_REMOVE(p, link);
	suballocator_done(&p->suballocator);
	access_list_clear(&p->access);
	charge_return(&p->charge);
	free(p->name);
	free(p);
}

void pool_look_again(struct broker *b, struct pool *p)
{
	if (empty_bytes(p) > p->release_threshold)
		release_empty(b, p, p->release_threshold);
	pool_end_if_unused(b, p);
}
