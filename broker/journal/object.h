/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "broker/journal/record.h"
#include "broker/journal/record_types.h"

struct journal;

/* A kind of object of which each has a record: what is in that, and what follows from it. */
struct object_kind {
	enum record_type type;
	const char *name; /* "token" */
	size_t size;      /* of the struct */
	size_t record;    /* where in the struct its uint32_t record is */
	bool is_packed;   /* what follows the members begins at once, not at a multiple of 8 */
	/* Names the members: see record.h. It follows no pointers that are among them, as these may
	 * be NULL while a record is read that makes no sense. Objects are attached in the order of
	 * the numbers that it leaves in r->order, as a later one may need an earlier one; those
	 * without one come first, in any order. */
	void (*fields)(struct record *r, void *object);
	/* Makes an object of the broker out of what was read into @object, which was allocated
	 * with malloc() and has zeros in all other members. Finds out whether that can be, makes
	 * what follows from it (charges, lists, timers), and owns @object from then on. 0 or
	 * negative errno: then the broker cannot go on. */
	int (*attach)(struct broker *b, void *object);
};
/* What nearly all kinds say: the members above, of the struct that is an object. */
#define OBJECT_KIND(of_records, called, object, its_fields, its_attach)                        \
	{                                                                                      \
		.type = of_records, .name = called, .size = sizeof(object),                    \
		.record = offsetof(object, record), .fields = its_fields, .attach = its_attach \
	}

/* Has the journal say what the object is now, from the next commit on. */
void object_put(struct journal *j, const struct object_kind *kind, void *object);
/* Restores all that the journal has of a kind. Objects whose records are of an older layout and
 * lack members are put again as they were read, before they are attached. 0 or negative errno, with
 * a line in the log. */
int objects_restore(struct journal *j, const struct object_kind *kind, struct broker *b);

/* Objects that are restored, to be found by the numbers that records of others have for them. */
struct restored {
	struct numbered {
		uint64_t number;
		void *object;
	} * all;
	size_t n, room;
};
int restored_add(struct restored *all, uint64_t number, void *object); /* 0 or -ENOMEM */
/* Called when all are added: from now on they are found. 0, or -EBADMSG: two have the same
 * number. */
int restored_ready(struct restored *all);
void *restored_find(const struct restored *all, uint64_t number); /* NULL: there is none */
void restored_deinit(struct restored *all);
