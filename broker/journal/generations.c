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
#define PARTS_MAX (UINT32_MAX / GENERATIONS_PART) /* as slots have indices of 32 bits */

static int make_room(struct generations *g, uint32_t number)
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

	if (make_room(g, number) < 0) {
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
	int error;
};

static void find_part(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct finding *f = data;
	struct part *part = journal_in_place(f->journal, record);

	(void)bytes;
	if (f->error < 0 || (size >= sizeof(*part) && part->which != f->g->which))
		return;
	/* no checksum guards what is written in place */
	if (size < sizeof(*part) || part->number > PARTS_MAX ||
	    (part->number < f->g->n_parts && f->g->parts[part->number])) {
		f->error = -EBADMSG;
		return;
	}
	f->error = make_room(f->g, part->number);
	if (f->error == 0)
		f->g->parts[part->number] = part->generations;
}

int generations_make_slots(struct generations *g, struct journal *j, struct slab *slab)
{
	struct finding f = {g, j, 0};
	uint64_t end = 0, n;
	uint32_t index;

	journal_read(j, RECORD_GENERATIONS, find_part, &f);
	n = (uint64_t)g->n_parts * GENERATIONS_PART;
	for (uint64_t i = 0; f.error == 0 && i < n; i++)
		if (g->parts[i / GENERATIONS_PART] &&
		    g->parts[i / GENERATIONS_PART][i % GENERATIONS_PART])
			end = i + 1;
	for (uint64_t i = 0; f.error == 0 && i < end; i++) {
		void *object = slab_alloc_indexed(slab, &index);

		if (!object)
			return -ENOMEM;
		if (g->parts[index / GENERATIONS_PART])
			memcpy(object,
			       &g->parts[index / GENERATIONS_PART][index % GENERATIONS_PART], 4);
	}
	return f.error;
}

void generations_done(struct generations *g)
{
	free(g->parts);
	g->parts = NULL;
	g->n_parts = 0;
}
