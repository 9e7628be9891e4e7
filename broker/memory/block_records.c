/* SPDX-License-Identifier: MIT */

/* The records of blocks that are in use, or that work still runs on. */

#include <string.h>
#include <sys/uio.h>

#include "broker/broker.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/memory/pool.h"
#include "broker/memory/records.h"
#include "broker/memory/segment.h"
#include "broker/memory/writer.h"
#include "broker/order/fence.h"
#include "broker/order/records.h"

/* The most fences in the record of a block. A block with more is never used again as long as its
 * segment lasts. */
#define FENCES_MAX 4000

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
_Static_assert(sizeof(struct small_record) == BLOCK_RECORD_LEAST,
	       "a million blocks are a million of these");
_Static_assert(sizeof(struct block_record) >= 40, "what is small is so in comparison");

enum { WRITERS_NONE, WRITERS_PAYER, WRITERS_MIXED };
#define SMALL_SEGMENTS  (UINT32_C(1) << 20)
#define SMALL_SIZE_BITS 42

static bool make_small(const struct block_record *r, struct small_record *out)
{
	bool of_payer = r->payer != RECORD_NOBODY && r->tag == writer_tag(r->payer);

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
	    .tag = r->writers == WRITERS_PAYER   ? writer_tag(r->payer)
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

	if (n == BLOCK_FENCES_LOST || fence_set_is_lost(set))
		return BLOCK_FENCES_LOST;
	for (size_t i = 0; i < size; i++) {
		const struct fence *f = fence_set_at(set, i);

		if (fence_query(f) != TIMELINE_PENDING)
			continue;
		if (n == FENCES_MAX)
			return BLOCK_FENCES_LOST;
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
	if (r->n_fences != BLOCK_FENCES_LOST)
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
	struct block_record r = {.index = BLOCK_GATED, .payer = record_user(block->payer)};

	put(block, &r, NULL);
}

void block_forget(struct block *block)
{
	if (block->record)
		journal_drop(block_pool(block)->broker->journal, &block->record);
}
