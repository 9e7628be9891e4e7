/* SPDX-License-Identifier: MIT */

/* Objects are what they were when they are read from their records, those of an older layout too,
 * and records that make no sense are refused. */

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "base/beat.h"
#include "base/system/descriptor.h"
#include "broker/journal/inside.h"
#include "broker/journal/object.h"
#include "broker/log/log.h"
#include "tests/broker/journal/journal_model.h"

static uint32_t layout; /* of this program */

uint32_t __real_state_layout(void);
uint32_t __wrap_state_layout(void);
uint32_t __wrap_state_layout(void)
{
	return layout;
}

static struct journal *j;
static int fd;

static void start(void)
{
	log_set_level(LOG_LEVEL_ERROR);
	fd = model_journal(&j);
}

static void stop(void)
{
	journal_free(j);
	fd_close(fd);
}

TestSuite(record, .init = start, .fini = stop, .timeout = 60);

/* The broker is killed, and the next one is of a program with this layout. */
static void reopen(uint32_t next)
{
	uint32_t before = journal_layout(j);

	journal_commit(j);
	journal_free(j);
	layout = next;
	j = model_open(fd);
	cr_assert_not_null(j);
	cr_assert_eq(journal_set_layout(j, before), 0);
}

/* ------------------------------------------------------------------------------------------- */

struct thing {
	uint64_t number;
	bool flag;
	char label[13];
	char *string;
	uint32_t in_layout_1;
	uint64_t in_layout_2;
	uint16_t array[8];
	size_t n;
	uint32_t record;
	size_t size;
	char text[];
};

static void fields(struct record *r, void *object)
{
	struct thing *t = object;
	struct iovec part;

	record_bytes(r, t->label, 3, 1); /* and a gap */
	record_u64(r, &t->number);
	record_flag(r, &t->flag);
	record_text(r, t->label, sizeof(t->label));
	record_string(r, &t->string, 10);
	part = record_rest(r, t->array, t->n * sizeof(*t->array), sizeof(*t->array));
	if (record_reads(r) && part.iov_len <= sizeof(t->array)) {
		memcpy(t->array, part.iov_base, part.iov_len);
		t->n = part.iov_len / sizeof(*t->array);
	}
	record_rest_of(r, t->text, &t->size);
	if (record_has(r, 1))
		record_u32(r, &t->in_layout_1);
	if (record_has(r, 2))
		record_u64(r, &t->in_layout_2);
}

static void fields_backwards(struct record *r, void *object)
{
	fields(r, object);
	r->order = UINT64_MAX - ((const struct thing *)object)->number;
}

static void forget(struct thing *t)
{
	free(t->string);
	free(t);
}

#define THINGS 100

static struct thing *found[THINGS];
static size_t n_found;

static int attach(struct broker *b, void *object)
{
	(void)b;
	cr_assert_lt(n_found, THINGS);
	found[n_found++] = object;
	return 0;
}

/* Nothing of it is left. */
static int attach_and_drop(struct broker *b, void *object)
{
	struct thing *t = object;

	(void)b;
	journal_drop(j, &t->record);
	forget(t);
	return 0;
}

static int attach_nothing(struct broker *b, void *object)
{
	(void)b;
	free(object);
	return -EBADMSG;
}

static struct object_kind kind = {
    .type = RECORD_NAME,
    .name = "thing",
    .size = sizeof(struct thing),
    .record = offsetof(struct thing, record),
    .fields = fields,
    .attach = attach,
};

static struct thing *make(uint64_t number, const char *text)
{
	struct thing *t = calloc(1, sizeof(*t) + strlen(text) + 1);

	*t = (struct thing){.number = number,
			    .flag = number % 2,
			    .label = "label",
			    .in_layout_1 = 101,
			    .in_layout_2 = 202,
			    .array = {1, 2, 3},
			    .n = number % 4,
			    .size = strlen(text)};
	t->string = number % 3 ? strdup("string") : NULL;
	strcpy(t->text, text);
	return t;
}

static void put(uint64_t number, const char *text)
{
	struct thing *t = make(number, text);

	object_put(j, &kind, t);
	cr_assert(t->record != 0 || journal_is_committed(j));
	forget(t);
}

static void restore(void)
{
	n_found = 0;
	cr_assert_eq(objects_restore(j, &kind, NULL), 0);
}

/* Of a record that says all that was known in this layout. */
static void expect(const struct thing *t, uint64_t number, const char *text, uint32_t known)
{
	struct thing *wanted = make(number, text);

	cr_assert_eq(t->number, number);
	cr_assert_eq(t->flag, wanted->flag);
	cr_assert_str_eq(t->label, "label");
	cr_assert_eq(t->string == NULL, wanted->string == NULL);
	cr_assert(!t->string || strcmp(t->string, wanted->string) == 0);
	cr_assert_eq(t->n, wanted->n);
	cr_assert_eq(memcmp(t->array, wanted->array, t->n * sizeof(*t->array)), 0);
	cr_assert_eq(t->size, wanted->size);
	cr_assert_str_eq(t->text, text);
	cr_assert_eq(t->in_layout_1, known >= 1 ? 101 : 0);
	cr_assert_eq(t->in_layout_2, known >= 2 ? 202 : 0);
	forget(wanted);
}

static void forget_found(void)
{
	for (size_t i = 0; i < n_found; i++)
		forget(found[i]);
}

static const char *const texts[] = {"", "a", "seven b", "a text that is a little longer than that"};

Test(record, says_what_its_object_is)
{
	for (uint64_t i = 0; i < THINGS; i++)
		put(i, texts[i % 4]);
	reopen(0);
	restore();
	cr_assert_eq(n_found, THINGS);
	for (uint64_t i = 0; i < THINGS; i++)
		expect(found[i], found[i]->number, texts[found[i]->number % 4], 0);
	forget_found();
}

static void __attribute__((noinline)) leave_on_stack(int value)
{
	unsigned char bytes[2 * RECORD_FIXED_MAX];

	memset(bytes, value, sizeof(bytes));
	__asm__ volatile("" : : "r"(bytes) : "memory");
}

Test(record, is_the_same_whatever_was_in_memory_before)
{
	const void *bytes[2];
	uint32_t records[2];
	size_t size;

	for (int i = 0; i < 2; i++) {
		struct thing *t = make(7, "text");

		leave_on_stack(0x11 * (i + 1));
		object_put(j, &kind, t);
		records[i] = t->record;
		forget(t);
	}
	journal_commit(j);
	for (int i = 0; i < 2; i++)
		bytes[i] = journal_bytes(j, records[i], &size);
	cr_assert_eq(memcmp(bytes[0], bytes[1], size), 0);
}

static atomic_uint beats, beats_before;

static int attach_between_beats(struct broker *b, void *object)
{
	(void)b;
	cr_assert_neq(beats, beats_before);
	beats_before = beats;
	forget(object);
	return 0;
}

/* There may be millions of them, and whoever does not move is killed. */
Test(record, those_that_have_an_order_are_taken_over_with_a_beat_for_each)
{
	for (uint64_t i = 0; i < THINGS; i++)
		put(i, "");
	reopen(0);
	kind.fields = fields_backwards;
	kind.attach = attach_between_beats;
	beat_at(&beats);
	beats_before = beats;
	restore();
	beat_at(NULL);
}

Test(record, of_kinds_that_are_in_order_is_read_in_order)
{
	kind.fields = fields_backwards;
	for (uint64_t i = 0; i < THINGS; i++)
		put(i * 37 % THINGS, "");
	reopen(0);
	restore();
	cr_assert_eq(n_found, THINGS);
	for (uint64_t i = 0; i < THINGS; i++)
		cr_assert_eq(found[i]->number, THINGS - 1 - i);
	forget_found();
}

/* The members have 52 bytes. */
Test(record, of_a_kind_that_is_packed_has_what_follows_at_once)
{
	for (int packed = 0; packed < 2; packed++) {
		struct thing *t = make(4, "text");
		size_t size;

		kind.is_packed = packed;
		object_put(j, &kind, t);
		journal_commit(j);
		cr_assert_str_eq(
		    (const char *)journal_bytes(j, t->record, &size) + (packed ? 52 : 56), "text");
		reopen(0);
		restore();
		cr_assert_eq(n_found, 1);
		expect(found[0], 4, "text", 0);
		journal_drop(j, &found[0]->record);
		forget_found();
		forget(t);
	}
}

/* ------------------------------------------------------------------------------------------- */

Test(record, of_an_older_layout_is_read_and_put_again_with_all_members)
{
	for (uint64_t i = 0; i < THINGS; i++)
		put(i, texts[i % 4]);
	for (uint32_t next = 1; next <= 2; next++) {
		reopen(next);
		restore();
		cr_assert_eq(n_found, THINGS);
		for (uint64_t i = 0; i < THINGS; i++)
			expect(found[i], found[i]->number, texts[found[i]->number % 4], 0);
		forget_found();
		cr_assert(journal_raise_layout(j));
		cr_assert_not(journal_raise_layout(j));
	}
	reopen(2);
	cr_assert_eq(journal_count(j, RECORD_NAME), THINGS);
}

Test(record, of_an_older_layout_may_be_dropped_when_its_object_is_attached)
{
	kind.attach = attach_and_drop;
	put(1, "");
	reopen(2);
	restore();
	journal_commit(j);
	cr_assert_eq(journal_count(j, RECORD_NAME), 0);
}

Test(record, of_an_older_layout_is_put_again_and_is_its_objects)
{
	put(1, "");
	reopen(2);
	restore();
	cr_assert(journal_raise_layout(j));
	cr_assert_neq(found[0]->record, 0);
	found[0]->in_layout_1 = 101;
	found[0]->in_layout_2 = 202;
	object_put(j, &kind, found[0]);
	forget_found();
	reopen(2);
	cr_assert_eq(journal_count(j, RECORD_NAME), 1);
	restore();
	expect(found[0], 1, "", 2);
	forget_found();
}

static void expect_refused(const char *reason)
{
	struct journal *next;
	char why[256];

	cr_assert_eq(journal_new(fd, &next, why, sizeof(why)), -EBADMSG);
	cr_assert_str_eq(why, reason);
}

/* Nor by one that is older than layouts are, which reads this version alone. */
Test(record, of_a_newer_layout_is_not_read_by_an_older_program)
{
	put(1, "");
	reopen(1);
	cr_assert_eq(j->head->version, JOURNAL_VERSION);
	restore();
	forget_found();
	journal_raise_layout(j);
	cr_assert_eq(j->head->version, JOURNAL_VERSION + 1);
	layout = 0;
	expect_refused(
	    "the journal is of version 2, which another program has written, and this "
	    "one reads 1 at most");
	cr_assert_eq(journal_set_layout(j, 1), -EBADMSG);
}

/* The broker was killed after the version and before the commit. */
Test(record, of_an_older_layout_is_read_though_a_newer_one_was_about_to_come)
{
	put(1, "a");
	reopen(2);
	restore();
	forget_found();
	journal_raise_layout(j);
	journal_free(j);
	j = model_open(fd);
	cr_assert_not_null(j);
	cr_assert_eq(journal_set_layout(j, 0), 0);
	restore();
	expect(found[0], 1, "a", 0);
	forget_found();
}

/* ------------------------------------------------------------------------------------------- */
/* What makes no sense                                                                         */

static void expect_wrong(void)
{
	n_found = 0;
	cr_assert_eq(objects_restore(j, &kind, NULL), -EBADMSG);
	cr_assert_eq(n_found, 0);
}

static void put_bytes(void (*change)(unsigned char *bytes))
{
	struct thing *t = make(6, "text"); /* with nothing allocated: nobody takes it apart */
	uint32_t record = 0;
	unsigned char copy[256];
	const void *bytes;
	size_t size;

	object_put(j, &kind, t);
	journal_commit(j);
	bytes = journal_bytes(j, t->record, &size);
	cr_assert_leq(size, sizeof(copy));
	memcpy(copy, bytes, size);
	journal_drop(j, &t->record);
	change(copy);
	journal_put(j, RECORD_NAME, &record, copy, size);
	forget(t);
	reopen(0);
}

static void more_of_the_rest(unsigned char *bytes)
{
	memset(bytes + 48, 0xff, 4);
}

static void no_end_of_the_text(unsigned char *bytes)
{
	memset(bytes + 20, 'x', 13);
}

static void no_end_of_the_string(unsigned char *bytes)
{
	memset(bytes + 33, 'x', 10);
}

Test(record, with_more_behind_it_than_there_is_is_refused)
{
	put_bytes(more_of_the_rest);
	expect_wrong();
}

Test(record, with_a_text_that_does_not_end_is_refused)
{
	put_bytes(no_end_of_the_text);
	expect_wrong();
}

Test(record, with_a_string_that_does_not_end_is_refused)
{
	put_bytes(no_end_of_the_string);
	expect_wrong();
}

Test(record, that_is_too_short_is_refused)
{
	uint32_t record = 0;

	journal_put(j, RECORD_NAME, &record, "short", 5);
	reopen(0);
	expect_wrong();
}

Test(record, of_an_object_that_cannot_be_is_refused)
{
	kind.attach = attach_nothing;
	put(6, "");
	reopen(0);
	expect_wrong();
}
