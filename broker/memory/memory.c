/* SPDX-License-Identifier: MIT */

/* What the broker has of memory as a whole, and which timeline pages had owners that have died. */

#include "broker/memory/memory.h"
#include "broker/broker.h"
#include "broker/log/log.h"
#include "broker/memory/segment.h"
#include "broker/suballocator/suballocator.h"

#define N_DIED_PAGES (sizeof(((struct memory *)0)->died_pages) / sizeof(uint64_t))

void memory_init(struct broker *b)
{
	LIST_INIT(&b->memory->pools);
	slab_init_keep(&b->memory->segments, sizeof(struct segment), SEGMENT_KEEP);
	slab_init(&b->memory->blocks, sizeof(struct block));
}

void memory_done(struct broker *b)
{
	if (slab_live(&b->memory->segments))
		log_bug("segments outlive the broker");
	slab_done(&b->memory->blocks);
	slab_done(&b->memory->segments);
}

void memory_page_died(struct memory *m, uint64_t page)
{
	uint64_t *slot = &m->died_pages[m->n_died_pages++ % N_DIED_PAGES];

	if (*slot > m->forgotten_page)
		m->forgotten_page = *slot;
	*slot = page;
}

enum page_owner memory_page_owner(const struct memory *m, uint64_t page)
{
	size_t n = m->n_died_pages < N_DIED_PAGES ? (size_t)m->n_died_pages : N_DIED_PAGES;

	for (size_t i = 0; i < n; i++)
		if (m->died_pages[i] == page)
			return OWNER_DIED;
	return page == 0 || page > m->last_page || page <= m->forgotten_page ? OWNER_UNKNOWN
									     : OWNER_FINISHED;
}
