/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "tests/broker/journal/journal_model.h"

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

uint64_t model_random(struct model *m)
{
	return next_random(&m->random);
}

void model_fill(unsigned char *bytes, size_t size, uint64_t seed)
{
	uint64_t state = seed | 1;

	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char)(next_random(&state) >> 11);
}

/* A little less than one of the sizes: all that are as large are in few chunks. */
static size_t choose_size(struct model *m)
{
	uint64_t choice = model_random(m);

	return m->sizes[choice % 4] - choice / 4 % 7;
}

/* Which objects are in place is part of what they are, as nobody puts such a record. */
static void put(struct model *m, struct model_object *o, struct journal *j)
{
	static unsigned char bytes[RECORD_SIZE_MAX];
	static const enum record_type types[] = {RECORD_CLIENT, RECORD_LEASE, RECORD_NAME,
						 RECORD_DEVICE - 1};
	uint64_t choice = model_random(m);
	void *place;

	o->seed = model_random(m);
	if (!o->record) {
		o->type = types[choice % 4];
		o->in_place = choice % 4 == 3;
		o->size = choose_size(m);
	} else if (choice % 8 == 0 && !o->in_place) {
		o->size = choose_size(m);
	}
	model_fill(bytes, o->size, o->seed);
	if (!o->in_place) {
		journal_put(j, o->type, &o->record, bytes, o->size);
		return;
	}
	place = journal_place(j, o->type, &o->record, o->size);
	cr_assert_not_null(place);
	memcpy(place, bytes, o->size);
}

void model_step(struct model *m, struct journal *j)
{
	struct model_object *o = &m->objects[model_random(m) % MODEL_OBJECTS];

	if (o->record && (o->in_place || model_random(m) % 3 == 0))
		journal_drop(j, &o->record);
	else
		put(m, o, j);
}

struct comparison {
	const struct model *model;
	enum record_type type;
	unsigned found;
	bool same;
};

static const struct model_object *find(const struct comparison *c, uint32_t record)
{
	for (unsigned i = 0; i < MODEL_OBJECTS; i++)
		if (c->model->objects[i].record == record && c->model->objects[i].type == c->type)
			return &c->model->objects[i];
	return NULL;
}

static int compare(void *data, uint32_t record, const void *bytes, size_t size)
{
	static unsigned char expected[RECORD_SIZE_MAX];
	struct comparison *c = data;
	const struct model_object *o = find(c, record);

	c->found++;
	if (!o || size < o->size) {
		c->same = false;
		return 0;
	}
	model_fill(expected, o->size, o->seed);
	c->same &= memcmp(bytes, expected, o->size) == 0;
	for (size_t i = o->size; i < size && !o->in_place; i++)
		c->same &= ((const unsigned char *)bytes)[i] == 0;
	return 0;
}

bool model_is(const struct model *m, struct journal *j)
{
	struct comparison c = {.model = m, .same = true};
	unsigned n = 0;

	for (unsigned i = 0; i < MODEL_OBJECTS; i++)
		n += m->objects[i].record != 0;
	for (c.type = 1; c.type < RECORD_TYPES; c.type++)
		journal_read(j, c.type, 0, compare, &c);
	return c.same && c.found == n;
}

/* ------------------------------------------------------------------------------------------- */

int model_journal(struct journal **out)
{
	int fd = memfd_create("journal", MFD_CLOEXEC);
	char why[256];

	cr_assert_geq(fd, 0);
	cr_assert_eq(journal_new(fd, out, why, sizeof(why)), 0, "%s", why);
	return fd;
}

struct journal *model_open(int fd)
{
	struct journal *j = NULL;
	char why[256];
	int r;

	memset(why, 'x', sizeof(why));
	r = journal_new(fd, &j, why, sizeof(why));
	if (r == 0)
		return j;
	cr_assert_eq(r, -EBADMSG);
	cr_assert(strnlen(why, sizeof(why)) > 0 && strnlen(why, sizeof(why)) < sizeof(why));
	return NULL;
}

void model_copy(int from, int to)
{
	static unsigned char bytes[1 << 16];
	off_t at = 0, end;
	struct stat st;

	cr_assert(fstat(from, &st) == 0 && ftruncate(to, 0) == 0 && ftruncate(to, st.st_size) == 0);
	while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
		end = lseek(from, at, SEEK_HOLE);
		while (at < end) {
			size_t n =
			    (size_t)(end - at) < sizeof(bytes) ? (size_t)(end - at) : sizeof(bytes);

			cr_assert(pread(from, bytes, n, at) == (ssize_t)n &&
				  pwrite(to, bytes, n, at) == (ssize_t)n);
			at += (off_t)n;
		}
	}
}
