/* SPDX-License-Identifier: MIT */

/* What the broker has of memory as a whole. */

#include "broker/memory/memory.h"
#include "broker/broker.h"
#include "broker/log/log.h"
#include "broker/memory/prefault.h"
#include "broker/memory/segment.h"
#include "broker/suballocator/suballocator.h"

void memory_init(struct broker *b)
{
	LIST_INIT(&b->memory->pools);
	slab_init_keep(&b->memory->segments, sizeof(struct segment), SEGMENT_KEEP);
	slab_init(&b->memory->blocks, sizeof(struct block));
	b->memory->generations.which = GENERATIONS_OF_SEGMENTS;
}

void memory_done(struct broker *b)
{
	if (slab_live(&b->memory->segments))
		log_bug("segments outlive the broker");
	slab_done(&b->memory->blocks);
	slab_done(&b->memory->segments);
	generations_done(&b->memory->generations);
	prefault_free(b->memory->prefault);
	restored_done(&b->memory->restored.pools);
}
