/* SPDX-License-Identifier: MIT */

/* What the broker has of memory as a whole, and where segments lie in every process. */

#include "broker/memory/memory.h"

#include "broker/broker.h"
#include "broker/log/log.h"
#include "broker/memory/prefault.h"
#include "broker/memory/segment.h"

void memory_init(struct broker *b)
{
	LIST_INIT(&b->memory->pools);
	slab_init_prefix(&b->memory->segments, sizeof(struct segment), SEGMENT_PREFIX);
	slab_init(&b->memory->blocks, sizeof(struct block));
	b->memory->generations.which = GENERATIONS_OF_SEGMENTS;
}

void memory_deinit(struct broker *b)
{
	if (slab_live(&b->memory->segments))
		log_bug("segments outlive the broker");
	slab_deinit(&b->memory->blocks);
	slab_deinit(&b->memory->segments);
	generations_deinit(&b->memory->generations);
	prefault_free(b->memory->prefault);
	restored_deinit(&b->memory->restored_pools);
}

/*
 * Addresses that mean the same everywhere are taken from a range where neither the kernel nor the
 * driver nor a sanitizer puts anything by itself: 32 to 48 TiB.
 */
#define ADDRESSES_FIRST (UINT64_C(32) << 40)
#define ADDRESSES_END   (UINT64_C(48) << 40)

/* How much of the range a segment takes: more than it needs, as addresses are plenty. */
static uint64_t place(uint64_t size)
{
	return (size + MEMORY_PLACE - 1) / MEMORY_PLACE * MEMORY_PLACE;
}

/* Returns the end of a segment that is in the way, or 0. */
static uint64_t in_the_way(struct broker *b, uint64_t start, uint64_t size)
{
	const struct segment *s;

	for (uint32_t i = 0; i < slab_end(&b->memory->segments); i++) {
		const struct memory_recipe *r;

		s = slab_at(&b->memory->segments, i);
		if (!s || !s->in_use)
			continue;
		r = &s->memory.recipe;
		if (r->address && r->address < start + size && start < r->address + place(r->size))
			return r->address + place(r->size);
	}
	return 0;
}

uint64_t segment_find_address(struct broker *b, uint64_t size)
{
	uint64_t at = b->memory->next_address ? b->memory->next_address : ADDRESSES_FIRST, end;
	bool wrapped = false;

	if (size > ADDRESSES_END - ADDRESSES_FIRST)
		return 0;
	size = place(size);
	for (;;) {
		if (size > ADDRESSES_END - at) {
			if (wrapped)
				return 0;
			wrapped = true;
			at = ADDRESSES_FIRST;
		}
		end = in_the_way(b, at, size);
		if (!end)
			break;
		at = end;
	}
	b->memory->next_address = at + size;
	return at;
}
