/* SPDX-License-Identifier: MIT */

/* All that the room has, from the broker's start to its end. */

#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/inside.h"
#include "broker/buffer/scrub.h"
#include "broker/log/log.h"
#include "broker/memory/memory.h"

void buffers_init(struct broker *b)
{
	slab_init_prefix(&b->buffers->slab, sizeof(struct buffer), BUFFER_PREFIX);
	leases_init(b->buffers);
	reclaims_init(&b->buffers->reclaims);
	LIST_INIT(&b->buffers->scrubs);
	b->buffers->generations.which = GENERATIONS_OF_BUFFERS;
	b->memory->on_look = scrubs_look_again;
}

void buffers_deinit(struct broker *b)
{
	if (slab_live(&b->buffers->leases) || slab_live(&b->buffers->slab))
		log_bug("buffers outlive the broker");
	table_deinit(&b->buffers->lease_table);
	table_deinit(&b->buffers->reclaims);
	slab_deinit(&b->buffers->leases);
	slab_deinit(&b->buffers->slab);
	generations_deinit(&b->buffers->generations);
}
