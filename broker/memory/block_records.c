/* SPDX-License-Identifier: MIT */

/*
 * The records of blocks that are in use, or that work still runs on, and how the next broker cuts
 * them out of their segments again. What lies between them is free, and is taken for written by
 * several users.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/slab.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/memory/inside.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/pools.h"
#include "broker/memory/records.h"
#include "broker/memory/reuse.h"
#include "broker/memory/segment.h"
#include "broker/order/fence.h"
#include "broker/order/records.h"

/* The most fences in the record of a block. A block with more is never used again as long as its
 * segment lasts. */
#define FENCES_MAX  4000
#define FENCES_LOST UINT32_MAX

/* There may be millions of blocks. So where no work runs on a block, and its numbers are small
 * enough, this is all that its record says. It is known by its size, which no other record of a
 * block has. */
struct small_record {
	uint32_t index, generation;
	uint32_t offset, units, payer;
	uint32_t segment : 20;
	uint32_t writers : 2; /* which tag the block has */
	uint32_t size_high : 10;
	uint32_t size_low;
};
_Static_assert(sizeof(struct small_record) == 28, "a million blocks are a million of these");
_Static_assert(sizeof(struct block_record) >= 40, "what is small is so in comparison");

enum { WRITERS_NONE, WRITERS_PAYER, WRITERS_MIXED };
#define SMALL_SEGMENTS  (UINT32_C(1) << 20)
#define SMALL_SIZE_BITS 42

#define GATED UINT32_MAX

static bool make_small(const struct block_record *r, struct small_record *out)
{
	bool of_payer = r->payer != RECORD_NOBODY && r->tag == reuse_tag(r->payer);

	*out = (struct small_record){
	    .index = r->index,
	    .generation = r->generation,
	    .offset = r->offset,
	    .units = r->units,
	    .payer = r->payer,
	    .segment = r->segment & (SMALL_SEGMENTS - 1),
	    .writers = of_payer ? WRITERS_PAYER
		       : r->tag ? WRITERS_MIXED
				: WRITERS_NONE,
	    .size_high = r->size >> 32 & 0x3ff,
	    .size_low = (uint32_t)r->size,
	};
	return r->n_fences == 0 && r->segment < SMALL_SEGMENTS && r->size >> SMALL_SIZE_BITS == 0 &&
	       (of_payer || !r->tag || r->tag == SUBALLOCATOR_TAG_MIXED);
}

static void read_small(const struct small_record *r, struct block_record *out)
{
	*out = (struct block_record){
	    .index = r->index,
	    .generation = r->generation,
	    .segment = r->segment,
	    .offset = r->offset,
	    .units = r->units,
	    .payer = r->payer,
	    .tag = r->writers == WRITERS_PAYER   ? reuse_tag(r->payer)
		   : r->writers == WRITERS_MIXED ? SUBALLOCATOR_TAG_MIXED
						 : 0,
	    .size = (uint64_t)r->size_high << 32 | r->size_low,
	};
}

bool block_record_read(const void *bytes, size_t size, struct block_record *out)
{
	struct small_record small;

	if (size == sizeof(small)) {
		memcpy(&small, bytes, sizeof(small));
		read_small(&small, out);
		return small.writers <= WRITERS_MIXED;
	}
	if (size < sizeof(*out))
		return false;
	memcpy(out, bytes, sizeof(*out));
	return true;
}

static uint32_t add_fences(struct fence_record *out, uint32_t n, const struct fence_set *set)
{
	size_t size = fence_set_is_lost(set) ? 0 : fence_set_size(set);

	if (n == FENCES_LOST || fence_set_is_lost(set))
		return FENCES_LOST;
	for (size_t i = 0; i < size; i++) {
		const struct fence *f = fence_set_at(set, i);

		if (fence_query(f) != TIMELINE_PENDING)
			continue;
		if (n == FENCES_MAX)
			return FENCES_LOST;
		out[n++] = fence_to_record(f);
	}
	return n;
}

static void put(struct block *block, struct block_record *r, const struct fence_set *pending)
{
	static struct fence_record fences[FENCES_MAX];
	struct journal *j = block_pool(block)->broker->journal;
	struct iovec parts[] = {{r, sizeof(*r)}, {fences, 0}};
	struct small_record small;

	r->segment = segment_of(block)->index;
	r->offset = block->offset;
	r->units = block->size;
	r->tag = block->tag;
	if (block->gate || pending) {
		r->n_fences = add_fences(fences, 0, block->gate);
		r->n_fences = add_fences(fences, r->n_fences, pending);
	}
	if (r->n_fences != FENCES_LOST)
		parts[1].iov_len = r->n_fences * sizeof(*fences);
	if (make_small(r, &small))
		journal_put(j, RECORD_BUFFER, &block->record, &small, sizeof(small));
	else
		journal_put_parts(j, RECORD_BUFFER, &block->record, parts, 2);
}

void block_note(struct block *block, const struct block_use *use, const struct account *payer)
{
	struct block_record r = {.index = use->index,
				 .generation = use->generation,
				 .size = use->size,
				 .payer = record_user(payer)};

	put(block, &r, use->pending);
}

void block_note_gated(struct block *block)
{
	struct block_record r = {.index = GATED, .payer = record_user(block->payer)};

	put(block, &r, NULL);
}

void block_forget(struct block *block)
{
	if (block->record)
		journal_drop(block_pool(block)->broker->journal, &block->record);
}

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
	r = journal_read(b->journal, RECORD_BUFFER, sizeof(struct small_record), add_found, all);
	return r < 0 ? r : sort_blocks(all);
}

static struct fence_set *read_fences(struct broker *b, const struct block_record *r,
				     const unsigned char *bytes)
{
	struct fence_set *set = NULL;
	struct fence_record one;
	struct fence f;

	if (r->n_fences == FENCES_LOST)
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
	if (r.n_fences > 0 && r.n_fences != FENCES_LOST &&
	    r.n_fences > (size - sizeof(r)) / sizeof(struct fence_record))
		return -EBADMSG;
	fences = read_fences(b, &r, bytes + sizeof(r));
	if (r.index == GATED)
		return restore_gated(b, s->pool, block, r.payer, fences);
	pool_count_used(s->pool, block_size(block));
	s->pool->n_buffers++;
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
