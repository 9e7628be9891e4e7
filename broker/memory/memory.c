/* SPDX-License-Identifier: MIT */

/* What the broker has of memory as a whole, and which timeline pages had owners that have died. */

#include "broker/memory/memory.h"
#include "broker/broker.h"
#include "broker/journal/journal.h"
#include "broker/log/log.h"
#include "broker/memory/inside.h"
#include "broker/memory/prefault.h"
#include "broker/memory/segment.h"
#include "broker/suballocator/suballocator.h"
#include <errno.h>

#define N_DIED_PAGES (sizeof(((struct died_pages *)0)->pages) / sizeof(uint64_t))

static int find_died(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct broker *b = data;

	(void)bytes, (void)size;
	if (b->memory->died)
		return -EBADMSG;
	b->memory->died = journal_in_place(b->journal, record);
	return 0;
}

/* No checksum guards it. Each page in it has been one; which of them had owners that died is
 * trusted, as nothing else says so. */
int memory_check_died(const struct memory *m)
{
	const struct died_pages *d = m->died;

	/* who was killed between the two has written a page, and has not counted it */
	for (size_t i = 0; i < N_DIED_PAGES; i++)
		if (d->pages[i] > m->last_page || (i < d->n && d->pages[i] == 0) ||
		    (i > d->n && d->pages[i] != 0))
			return -EBADMSG;
	return d->forgotten > m->last_page ? -EBADMSG : 0;
}

int memory_init(struct broker *b)
{
	LIST_INIT(&b->memory->pools);
	slab_init_keep(&b->memory->segments, sizeof(struct segment), SEGMENT_KEEP);
	slab_init(&b->memory->blocks, sizeof(struct block));
	b->memory->generations.which = GENERATIONS_OF_SEGMENTS;
	if (!journal_is_old(b->journal)) {
		b->memory->died = journal_place(b->journal, RECORD_DIED_PAGES,
						&b->memory->died_record, sizeof(*b->memory->died));
		return b->memory->died ? 0 : -ENOMEM;
	}
	if (journal_read(b->journal, RECORD_DIED_PAGES, sizeof(*b->memory->died), find_died, b) <
		0 ||
	    !b->memory->died) {
		log_error("the journal does not say once which pages' owners have died");
		return -EBADMSG;
	}
	return 0;
}

void memory_done(struct broker *b)
{
	if (slab_live(&b->memory->segments))
		log_bug("segments outlive the broker");
	slab_done(&b->memory->blocks);
	slab_done(&b->memory->segments);
	generations_done(&b->memory->generations);
	prefault_free(b->memory->prefault);
}

void memory_page_died(struct memory *m, uint64_t page)
{
	struct died_pages *d = m->died;
	uint64_t *slot = &d->pages[d->n % N_DIED_PAGES];

	if (*slot > d->forgotten)
		d->forgotten = *slot;
	*slot = page;
	d->n++;
}

enum page_owner memory_page_owner(const struct memory *m, uint64_t page)
{
	const struct died_pages *d = m->died;
	size_t n = d->n < N_DIED_PAGES ? (size_t)d->n : N_DIED_PAGES;

	for (size_t i = 0; i < n; i++)
		if (d->pages[i] == page)
			return OWNER_DIED;
	return page == 0 || page > m->last_page || page <= d->forgotten ? OWNER_UNKNOWN
									: OWNER_FINISHED;
}
