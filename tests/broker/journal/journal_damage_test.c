/* SPDX-License-Identifier: MIT */

/*
 * A journal whose memory was damaged, or cut off: it is refused with a reason, or it says what was
 * committed. Not guarded by checksums, on purpose, are what is written in place, the bytes of the
 * packet in the inbox and the numbers beside it that are the broker's own; damage there changes
 * nothing else.
 */

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "base/system/descriptor.h"
#include "broker/journal/inside.h"
#include "broker/log/log.h"
#include "tests/broker/journal/journal_model.h"

static struct model committed;
static struct journal *j;
static int original, copy;

static void start(void)
{
	log_set_level(LOG_LEVEL_ERROR);
	original = model_journal(&j);
	copy = memfd_create("copy", MFD_CLOEXEC);
	cr_assert_geq(copy, 0);
	committed = (struct model){.random = 99, .sizes = {30, 44, 250, 700}};
	for (unsigned i = 0; i < 400; i++) {
		model_step(&committed, j);
		if (i % 7 == 6)
			journal_commit(j);
	}
	journal_commit(j);
}

static void stop(void)
{
	journal_free(j);
	fd_close(original);
	fd_close(copy);
}

TestSuite(journal_damage, .init = start, .fini = stop, .timeout = 300);

/* Whether it was trusted. In-place records are compared by nobody: they are left out of the model's
 * comparison where @in_place was damaged. */
static bool opens_right(bool in_place)
{
	struct journal *damaged = model_open(copy);

	if (!damaged)
		return false;
	if (!in_place)
		cr_assert(model_is(&committed, damaged));
	model_step(&(struct model){.random = 5, .sizes = {30, 44, 250, 700}}, damaged);
	journal_commit(damaged);
	journal_free(damaged);
	damaged = model_open(copy);
	cr_assert_not_null(damaged);
	journal_free(damaged);
	return true;
}

static void flip(off_t at, unsigned bit)
{
	unsigned char byte;

	cr_assert_eq(pread(copy, &byte, 1, at), 1);
	byte ^= (unsigned char)(1u << bit);
	cr_assert_eq(pwrite(copy, &byte, 1, at), 1);
}

/* Whether it is trusted with this bit as it was not. One that is refused is the same afterwards, as
 * what was committed last has been written to its entries before. */
static bool flip_and_open(uint64_t at, unsigned bit, bool in_place)
{
	unsigned char byte;

	flip((off_t)at, bit);
	if (opens_right(in_place)) {
		model_copy(original, copy);
		return true;
	}
	cr_assert(pread(original, &byte, 1, (off_t)at) == 1 &&
		  pwrite(copy, &byte, 1, (off_t)at) == 1);
	return false;
}

/* All bits of these bytes; how many of the journals were refused. */
static unsigned flip_all(uint64_t from, size_t size)
{
	unsigned refused = 0;

	model_copy(original, copy);
	for (size_t i = 0; i < size * 8; i++)
		refused += !flip_and_open(from + i / 8, i % 8, false);
	return refused;
}

static uint64_t offset_of(const void *p)
{
	return (uint64_t)((const unsigned char *)p - j->memory);
}

Test(journal_damage, each_bit_of_the_head_is_guarded)
{
	cr_assert_eq(flip_all(0, offsetof(struct head, inbox)), offsetof(struct head, inbox) * 8);
}

Test(journal_damage, each_bit_of_what_was_committed_last_is_guarded)
{
	const struct group *g = group_of(j, j->head->committed);
	size_t size = offsetof(struct group, unused);

	cr_assert_gt(g->size, 0);
	cr_assert_eq(flip_all(offset_of(g), size), size * 8);
	size = g->size < 64 ? g->size : 64;
	cr_assert_eq(flip_all(offset_of(g->operations), size), size * 8);
	/* and the last bytes of it */
	cr_assert_eq(flip_all(offset_of(g->operations) + g->size - 8, 8), 64);
}

Test(journal_damage, each_bit_of_a_chunks_head_is_guarded)
{
	struct chunk *chunk = NULL;
	unsigned n = 0;

	while ((chunk = chunk_next(j, chunk)) && n++ < 4)
		cr_assert_eq(flip_all(offset_of(chunk), sizeof(*chunk)), sizeof(*chunk) * 8);
	cr_assert_gt(n, 2);
}

static bool is_in_last_group(uint32_t record)
{
	const struct group *g = group_of(j, j->head->committed);
	const unsigned char *next = g->operations;

	for (uint32_t i = 0; i < g->n; i++) {
		const struct operation *op = (const struct operation *)(const void *)next;

		if (op->place == record)
			return true;
		next += operation_room(op->size);
	}
	return false;
}

/* What the last commit has written is written again, and so right. */
Test(journal_damage, each_bit_of_a_record_is_guarded)
{
	unsigned n = 0;

	for (unsigned i = 0; i < MODEL_OBJECTS && n < 3; i++) {
		const struct model_object *o = &committed.objects[i];
		size_t size;

		if (!o->record || o->in_place || is_in_last_group(o->record))
			continue;
		n++;
		journal_bytes(j, o->record, &size);
		size = size + 4 < 100 ? size + 4 : 100;
		cr_assert_eq(flip_all((uint64_t)o->record * PLACE_UNIT, size), size * 8);
	}
	cr_assert_eq(n, 3);
}

/* That there is a record which is written in place is guarded; what is in it is not. */
Test(journal_damage, a_record_that_is_written_in_place_does_not_come_or_go)
{
	unsigned n = 0;

	for (unsigned i = 0; i < MODEL_OBJECTS; i++) {
		const struct model_object *o = &committed.objects[i];

		if (!o->record || !o->in_place || is_in_last_group(o->record))
			continue;
		n++;
		cr_assert_eq(flip_all((uint64_t)o->record * PLACE_UNIT, 4), 32);
	}
	cr_assert_gt(n, 0);
}

Test(journal_damage, of_a_packet_that_was_received_it_is_guarded_whose_it_is)
{
	const size_t size = offsetof(struct inbox, attempts);
	const uint64_t inbox = offsetof(struct head, inbox);

	journal_expect(j, 12);
	journal_inbox(j)->header.msg_len = 5;
	cr_assert_eq(flip_all(inbox, size), size * 8);
	/* and one that was handled is not handled again */
	journal_commit(j);
	cr_assert_eq(flip_all(inbox, size), size * 8);
}

Test(journal_damage, a_journal_that_was_cut_off_is_refused)
{
	struct stat st;
	uint64_t end = j->used;
	uint64_t sizes[] = {1,
			    7,
			    8,
			    16,
			    4096,
			    HEAD_SIZE,
			    HEAD_SIZE + 100,
			    FIRST_CHUNK - 1,
			    FIRST_CHUNK,
			    FIRST_CHUNK + 1,
			    FIRST_CHUNK + CHUNK_SIZE,
			    end - CHUNK_SIZE,
			    end - 1};

	cr_assert_eq(fstat(original, &st), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		model_copy(original, copy);
		cr_assert_eq(ftruncate(copy, (off_t)sizes[i]), 0);
		cr_assert_not(opens_right(false), "with %llu bytes", (unsigned long long)sizes[i]);
	}
	/* what is behind the last chunk is nobody's yet */
	model_copy(original, copy);
	cr_assert_eq(ftruncate(copy, (off_t)end), 0);
	cr_assert(opens_right(false));
	model_copy(original, copy);
	cr_assert_eq(ftruncate(copy, (off_t)(JOURNAL_MAX + 1)), 0);
	cr_assert_not(opens_right(false));
}

/* Of all places where there is anything, wherever it is. */
Test(journal_damage, is_refused_or_right_wherever_a_bit_flips)
{
	struct model random = {.random = 20261123};
	const struct group *g = group_of(j, j->head->committed);
	uint64_t from[] = {0, offset_of(group_of(j, 0)), offset_of(group_of(j, 1)), FIRST_CHUNK};
	uint64_t size[] = {offsetof(struct head, inbox.packet), g->size + 100, g->size + 100,
			   j->used - FIRST_CHUNK};
	unsigned trusted = 0;

	model_copy(original, copy);
	for (unsigned i = 0; i < 800; i++) {
		unsigned where = model_random(&random) % 4;
		uint64_t at = from[where] + model_random(&random) % size[where];

		/* whose bytes it was is not found out here: nothing else may be wrong */
		trusted += flip_and_open(at, model_random(&random) % 8, where == 3);
	}
	cr_assert(trusted > 0 && trusted < 800);
}
