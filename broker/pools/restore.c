/* SPDX-License-Identifier: MIT */

/*
 * What a broker that comes after another one makes of the records of memory: in which order, how
 * blocks are cut out of their segments again, and what it goes on with. What lies between blocks is
 * free, and is taken for written by several users.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/slab.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/gated.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/prefault.h"
#include "broker/memory/records.h"
#include "broker/order/fence.h"
#include "broker/order/records.h"
#include "broker/pools/inside.h"
#include "broker/pools/open_pools.h"
#include "broker/pools/pool_records.h"
#include "broker/pools/pools.h"

int memory_restore(struct broker *b)
{
	struct memory *m = b->memory;
	int r = objects_restore(b->journal, &pool_kind, b);

	if (r == 0)
		r = restored_ready(&m->restored_pools);
	if (r == 0)
		r = objects_restore(b->journal, &open_pool_kind, b);
	/* all slots up to the last one come first, so that each segment gets its own */
	if (r == 0)
		r = generations_make_slots(&m->generations, b->journal, &m->segments);
	if (r == 0)
		r = objects_restore(b->journal, &segment_kind, b);
	if (r == 0)
		r = objects_restore(b->journal, &possession_kind, b);
	generations_free_slots(&m->segments);
	return r;
}

static bool is_there(const struct segment *s)
{
	return s->memory.recipe.flags & MEMORY_IS_THERE;
}

/* Has the pages made of the prefault that were not all there when the broker before ended. It does
 * not matter of which segments they are, and pages that are there take no time. */
static void fill_again(struct broker *b, struct pool *p)
{
	uint64_t left = p->sizes.prefault, size;
	struct segment *s;

	LIST_FOREACH (s, &p->extent.segments, link) {
		size = s->state == SEGMENT_ACTIVE && is_there(s) ? s->memory.recipe.size : 0;
		left -= size < left ? size : left;
	}
	LIST_FOREACH (s, &p->extent.segments, link) {
		if (left == 0 || s->state != SEGMENT_ACTIVE || is_there(s))
			continue;
		prefault_start(b, s, left);
		size = s->memory.recipe.size;
		left -= size < left ? size : left;
	}
}

void pools_restored(struct broker *b)
{
	struct pool *p, *next;

	restored_deinit(&b->memory->restored_pools);
	for (p = LIST_FIRST(&b->memory->pools); p; p = next) {
		next = LIST_NEXT(p, link); /* only @p can end */
		if (p->gated.n > 0)
			memory_look_soon(b);
		fill_again(b, p);
		pool_return_segments(b, p);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Blocks                                                                                      */

/* All blocks that have a record, to be sorted by where they lie. */
struct blocks {
	struct found {
		uint32_t offset, segment, record;
	} * found;
	size_t n, room;
};

static int add_found(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct blocks *all = data;
	struct block_record r;

	if (all->n == all->room || !block_record_read(bytes, size, &r))
		return -EBADMSG;
	all->found[all->n++] = (struct found){r.offset, r.segment, record};
	return 0;
}

static uint64_t place_of(const struct found *f)
{
	return (uint64_t)f->segment << 32 | f->offset;
}

/* Puts blocks into the order of this byte of their places, and leaves those in order where it is
 * the same. */
static void sort_by_byte(const struct found *from, struct found *to, size_t n, unsigned byte)
{
	size_t next[257] = {0};

	for (size_t i = 0; i < n; i++)
		next[(place_of(&from[i]) >> 8 * byte & 0xff) + 1]++;
	for (int i = 1; i < 256; i++)
		next[i] += next[i - 1];
	for (size_t i = 0; i < n; i++)
		to[next[place_of(&from[i]) >> 8 * byte & 0xff]++] = from[i];
}

/* Sorts blocks by their places, the lowest byte first: there may be millions, and few bytes
 * differ. */
static int sort_blocks(struct blocks *all)
{
	uint64_t differ = 0;
	bool sorted = true;
	struct found *other;

	for (size_t i = 1; i < all->n; i++) {
		uint64_t before = place_of(&all->found[i - 1]), place = place_of(&all->found[i]);

		differ |= before ^ place;
		sorted &= before <= place;
	}
	if (sorted)
		return 0;
	other = malloc(all->n * sizeof(*other));
	if (!other)
		return -ENOMEM;
	for (unsigned byte = 0; byte < sizeof(differ); byte++) {
		struct found *from = all->found;

		if ((differ >> 8 * byte & 0xff) == 0)
			continue;
		sort_by_byte(from, other, all->n, byte);
		all->found = other;
		other = from;
	}
	free(other);
	return 0;
}

static int find_blocks(struct broker *b, struct blocks *all)
{
	int r;

	all->room = journal_count(b->journal, RECORD_BUFFER);
	all->found = malloc((all->room + 1) * sizeof(*all->found));
	if (!all->found)
		return -ENOMEM;
	r = journal_read(b->journal, RECORD_BUFFER, BLOCK_RECORD_LEAST, add_found, all);
	return r < 0 ? r : sort_blocks(all);
}

static struct fence_set *read_fences(struct broker *b, const struct block_record *r,
				     const unsigned char *bytes)
{
	struct fence_set *set = NULL;
	struct fence_record one;
	struct fence f;

	if (r->n_fences == BLOCK_FENCES_LOST)
		return fence_set_lost();
	for (uint32_t i = 0; i < r->n_fences; i++) {
		memcpy(&one, bytes + i * sizeof(one), sizeof(one));
		f = fence_of_record(b, &one);
		set = fence_set_add(set, &f);
	}
	return set;
}

static int restore_gated(struct broker *b, struct pool *p, struct block *block, uint32_t payer,
			 struct fence_set *gate)
{
	struct account *account = account_of_record(b, payer);
	struct charge charge = {0};
	int r =
	    account ? pool_charge_take(p, &charge, account, block_size(block), PRICE_GATED_OWN) : 0;

	account_unref(account);
	block->payer = charge.account;
	/* if all fences of the gate are reached by now, the next look at the block finds out */
	gated_append(&p->gated, block, gate);
	return r == 0 ? 0 : -EDQUOT;
}

/* Cuts a block out of @free, which is what is left of its region; *free is what lies behind it
 * then. */
static int cut_out(struct pool *p, const struct block_record *r, struct block **free,
		   struct block **out)
{
	struct block *block = *free, *rest;
	uint64_t gap;

	if (!block || r->offset < block->offset || r->units == 0 ||
	    (uint64_t)r->offset + r->units > (uint64_t)block->offset + block->size)
		return -EBADMSG;
	gap = (uint64_t)(r->offset - block->offset) * SUBALLOCATOR_UNIT;
	if (gap > 0) {
		if (suballocator_cut(&p->suballocator, block, gap, &rest) < 0)
			return -ENOMEM;
		block->tag = SUBALLOCATOR_TAG_MIXED;
		suballocator_free(&p->suballocator, block);
		block = rest;
	}
	if (suballocator_cut(&p->suballocator, block, (uint64_t)r->units * SUBALLOCATOR_UNIT,
			     free) < 0)
		return -ENOMEM;
	*out = block;
	return 0;
}

static int restore_block(struct broker *b, struct segment *s, uint32_t record, struct block **free,
			 restore_buffer *buffer)
{
	struct block_record r;
	struct fence_set *fences;
	struct block *block;
	struct block_use use;
	const unsigned char *bytes;
	size_t size;
	int e;

	bytes = journal_bytes(b->journal, record, &size);
	e = block_record_read(bytes, size, &r) ? cut_out(s->pool, &r, free, &block) : -EBADMSG;
	if (e < 0)
		return e;
	block->record = record;
	block->tag = r.tag;
	if (r.n_fences > 0 && r.n_fences != BLOCK_FENCES_LOST &&
	    r.n_fences > (size - sizeof(r)) / sizeof(struct fence_record))
		return -EBADMSG;
	fences = read_fences(b, &r, bytes + sizeof(r));
	if (r.index == BLOCK_GATED)
		return restore_gated(b, s->pool, block, r.payer, fences);
	pool_count_used(&s->pool->extent, block);
	use = (struct block_use){.index = r.index, .generation = r.generation, .size = r.size};
	return buffer(b, block, &use, fences, r.payer);
}

static int restore_segment_blocks(struct broker *b, const struct found *found, size_t n,
				  restore_buffer *buffer)
{
	struct segment *s = slab_at(&b->memory->segments, found[0].segment);
	struct block *free;
	int r = 0;

	if (!s || !s->in_use || s->state != SEGMENT_ACTIVE)
		return -EBADMSG;
	free = s->region.first;
	suballocator_take(&s->pool->suballocator, free);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = restore_block(b, s, found[i].record, &free, buffer);
	if (free) {
		free->tag = SUBALLOCATOR_TAG_MIXED;
		suballocator_free(&s->pool->suballocator, free);
	}
	return r;
}

int blocks_restore(struct broker *b, restore_buffer *buffer)
{
	struct blocks all = {.n = 0};
	int r = find_blocks(b, &all);
	size_t n;

	for (size_t i = 0; r == 0 && i < all.n; i += n) {
		for (n = 1; i + n < all.n && all.found[i + n].segment == all.found[i].segment;)
			n++;
		r = restore_segment_blocks(b, all.found + i, n, buffer);
	}
	free(all.found);
	return r;
}
