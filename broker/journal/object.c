/* SPDX-License-Identifier: MIT */

/* Makes records of objects, and objects of records, by what their kinds say. */

#include "broker/journal/object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/beat.h"
#include "broker/journal/inside.h"
#include "broker/log/log.h"

/* Writes or reads all members of the object. Returns their size. */
static size_t do_fields(const struct object_kind *kind, struct record *r, void *object)
{
	uint64_t zeros = 0;

	kind->fields(r, object);
	if (!kind->is_packed)
		record_bytes(r, &zeros, (8 - r->at % 8) % 8, 1);
	return r->at;
}

void object_put(struct journal *j, const struct object_kind *kind, void *object)
{
	unsigned char bytes[RECORD_FIXED_MAX];
	struct record r;

	r.bytes = bytes;
	r.at = 0;
	r.layout = state_layout();
	r.is_read = false;
	r.n_parts = 1;
	r.parts[0] = (struct iovec){bytes, do_fields(kind, &r, object)};
	journal_put_parts(j, kind->type, (uint32_t *)(void *)((char *)object + kind->record),
			  r.parts, r.n_parts);
}

/* ------------------------------------------------------------------------------------------- */

int restored_add(struct restored *all, uint64_t number, void *object)
{
	size_t room = all->room ? all->room * 2 : 64;
	struct numbered *grown;

	if (all->n == all->room) {
		grown = reallocarray(all->all, room, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		all->all = grown;
		all->room = room;
	}
	all->all[all->n++] = (struct numbered){number, object};
	return 0;
}

static int compare_numbers(const void *left, const void *right)
{
	const struct numbered *a = left, *b = right;

	return (a->number > b->number) - (a->number < b->number);
}

static void sort(struct restored *all)
{
	if (all->n > 0)
		qsort(all->all, all->n, sizeof(*all->all), compare_numbers);
}

int restored_ready(struct restored *all)
{
	sort(all);
	for (size_t i = 1; i < all->n; i++)
		if (all->all[i].number == all->all[i - 1].number)
			return -EBADMSG;
	return 0;
}

void *restored_find(const struct restored *all, uint64_t number)
{
	const struct numbered wanted = {number, NULL}, *found = NULL;

	if (all->n > 0)
		found = bsearch(&wanted, all->all, all->n, sizeof(*all->all), compare_numbers);
	return found ? found->object : NULL;
}

void restored_deinit(struct restored *all)
{
	free(all->all);
	*all = (struct restored){0};
}

/* ------------------------------------------------------------------------------------------- */

struct restoring {
	struct journal *journal;
	const struct object_kind *kind;
	struct broker *broker;
	size_t fixed;            /* bytes of the members, in records of the journal's layout */
	bool is_older;           /* that layout has not all members of today */
	struct restored objects; /* the objects that have an order, by that */
	void *scratch;
	size_t scratch_size;
};

/* Returns the size of a kind's members in this layout; 0: there is no memory. */
static size_t measure(const struct object_kind *kind, uint32_t layout)
{
	static unsigned char zeros[RECORD_FIXED_MAX];
	struct record r = {
	    .bytes = zeros, .rest = zeros, .layout = layout, .is_read = true, .error = -EAGAIN};
	void *object = calloc(1, kind->size + 1);
	size_t size = object ? do_fields(kind, &r, object) : 0;

	free(object);
	return size;
}

static int attach(const struct restoring *all, void *object)
{
	const struct object_kind *kind = all->kind;

	if (all->is_older)
		object_put(all->journal, kind, object);
	return kind->attach(all->broker, object);
}

/* Makes room, all zeros, into which an object is read. It is copied when its size is known: if it
 * were allocated with room to spare, what was cut off would lie between the objects for as long as
 * they last. False without memory. */
static bool make_room(struct restoring *all, size_t size)
{
	void *grown = size > all->scratch_size ? realloc(all->scratch, size) : all->scratch;

	if (!grown)
		return false;
	all->scratch = grown;
	if (size > all->scratch_size)
		all->scratch_size = size;
	memset(grown, 0, size);
	return true;
}

static int read_object(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct restoring *all = data;
	unsigned char *start = (unsigned char *)(uintptr_t)bytes;
	struct record r = {
	    .broker = all->broker,
	    .bytes = start,
	    .layout = all->journal->layout,
	    .is_read = true,
	    .rest = start + all->fixed,
	    .left = size - all->fixed,
	};
	void *object;

	if (!make_room(all, all->kind->size + r.left + 1))
		return -ENOMEM;
	all->kind->fields(&r, all->scratch);
	if (r.error < 0)
		return r.error;
	size = all->kind->size + r.at_end + 1;
	object = malloc(size);
	if (!object)
		return -ENOMEM;
	memcpy(object, all->scratch, size);
	memcpy((char *)object + all->kind->record, &record, sizeof(record));
	return r.order ? restored_add(&all->objects, r.order, object) : attach(all, object);
}

int objects_restore(struct journal *j, const struct object_kind *kind, struct broker *b)
{
	struct restoring all = {j, kind, b, .fixed = measure(kind, j->layout)};
	size_t today = measure(kind, state_layout());
	int r = all.fixed > 0 && today > 0 ? 0 : -ENOMEM;

	all.is_older = today > all.fixed;
	if (r == 0)
		r = journal_read(j, kind->type, all.fixed, read_object, &all);
	sort(&all.objects);
	for (size_t i = 0; r == 0 && i < all.objects.n; i++) {
		beat();
		r = attach(&all, all.objects.all[i].object);
	}
	restored_deinit(&all.objects);
	free(all.scratch);
	if (r < 0)
		log_error("the journal's record of a %s cannot be taken over: %s", kind->name,
			  strerror(-r));
	return r;
}
