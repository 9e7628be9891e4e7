/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/journal/journal.h"

/* What the records of a journal should be, kept in a simpler way beside it. */

#define MODEL_OBJECTS 40

struct model_object {
	enum record_type type;
	uint32_t record; /* 0: it has none */
	size_t size;
	uint64_t seed; /* its bytes follow from this */
	bool in_place;
};

struct model {
	struct model_object objects[MODEL_OBJECTS];
	uint64_t random;
	size_t sizes[4]; /* of records, at most */
};

uint64_t model_random(struct model *m);
/* Bytes that follow from a seed. */
void model_fill(unsigned char *bytes, size_t size, uint64_t seed);

/* One thing happens to an object, in the model and in the journal. */
void model_step(struct model *m, struct journal *j);
/* Whether these are the journal's records, all of them and no others. */
bool model_is(const struct model *m, struct journal *j);

/* A new journal in a new memfd. The descriptor, which the caller closes. */
int model_journal(struct journal **out);
/* Opens it once more; NULL: it cannot be trusted, and there is a reason. */
struct journal *model_open(int fd);
/* The same bytes, with the same holes. */
void model_copy(int from, int to);
