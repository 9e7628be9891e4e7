/* SPDX-License-Identifier: MIT */

#include "broker/journal/generations.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/slab.h"
#include "broker/journal/journal.h"

struct part {
	uint32_t which, number;
	uint32_t generations[GENERATIONS_PART];
};

static int make_room_for(struct generations *g, uint32_t number)
{
	uint32_t **grown;

	if (number < g->n_parts)
		return 0;
	grown = realloc(g->parts, ((size_t)number + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	memset(grown + g->n_parts, 0, (number + 1 - g->n_parts) * sizeof(*grown));
	g->parts = grown;
	g->n_parts = number + 1;
	return 0;
}

void generation_note(struct generations *g, struct journal *j, uint32_t index, uint32_t generation)
{
	uint32_t number = index / GENERATIONS_PART, record = 0;
	struct part *part;

	if (make_room_for(g, number) < 0) {
		journal_end(j, ENOMEM);
		return;
	}
	if (!g->parts[number]) {
		part = journal_place(j, RECORD_GENERATIONS, &record, sizeof(*part));
		if (!part)
			return;
		part->which = g->which;
		part->number = number;
		g->parts[number] = part->generations;
	}
	g->parts[number][index % GENERATIONS_PART] = generation;
}

struct finding {
	struct generations *g;
	struct journal *journal;
	uint32_t n; /* parts */
};

/* No checksum guards what is written in place. So it is looked at whether the part's slab and
 * number make sense. A generation itself is trusted; of slots in use the records say it as well. */
static int find_part(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct finding *f = data;
	struct part *part = journal_in_place(f->journal, record);
	int r;

	(void)bytes, (void)size;
	if (part->which < GENERATIONS_OF_SEGMENTS || part->which > GENERATIONS_OF_TOKENS)
		return -EBADMSG;
	if (part->which != f->g->which)
		return 0;
	/* slots are given out without gaps, so a part's number is less than the number of parts */
	if (part->number >= journal_count(f->journal, RECORD_GENERATIONS) ||
	    (part->number < f->g->n_parts && f->g->parts[part->number]))
		return -EBADMSG;
	r = make_room_for(f->g, part->number);
	if (r == 0)
		f->g->parts[part->number] = part->generations;
	f->n++;
	return r;
}

int generations_make_slots(struct generations *g, struct journal *j, struct slab *slab)
{
	struct finding f = {g, j, 0};
	uint64_t end = 0, n;
	uint32_t index;
	int r = journal_read(j, RECORD_GENERATIONS, sizeof(struct part), find_part, &f);

	if (r == 0 && f.n != g->n_parts)
		r = -EBADMSG;
	n = (uint64_t)g->n_parts * GENERATIONS_PART;
	for (uint64_t i = 0; r == 0 && i < n; i++)
		if (g->parts[i / GENERATIONS_PART][i % GENERATIONS_PART])
			end = i + 1;
	for (uint64_t i = 0; r == 0 && i < end; i++) {
		void *object = slab_alloc(slab);

		if (!object)
			return -ENOMEM;
		index = slab_index(object);
		memcpy(object, &g->parts[index / GENERATIONS_PART][index % GENERATIONS_PART], 4);
	}
	return r;
}

void generations_free_slots(struct slab *slab)
{
	for (uint32_t i = 0; i < slab_end(slab); i++) {
		uint32_t *prefix = slab_at(slab, i);

		if (prefix && prefix[1] == 0)
			slab_free(slab, prefix);
	}
}

void generations_deinit(struct generations *g)
{
	free(g->parts);
	g->parts = NULL;
	g->n_parts = 0;
}
