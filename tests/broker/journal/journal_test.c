/* SPDX-License-Identifier: MIT */

/* The journal's promises, one by one: what was committed is there when it is opened again, and
 * nothing else. "Opened again" is another mapping of the same memory, as the next broker has it. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "base/beat.h"
#include "base/system/descriptor.h"
#include "broker/journal/inside.h"
#include "broker/log/log.h"
#include "tests/broker/journal/journal_model.h"

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

TestSuite(journal, .init = start, .fini = stop, .timeout = 120);

/* The broker is killed, and the next one opens it. */
static void reopen(void)
{
	journal_free(j);
	j = model_open(fd);
	cr_assert_not_null(j);
}

static void put_string(uint32_t *record, const char *s)
{
	journal_put(j, RECORD_NAME, record, s, strlen(s));
}

static const char *string_of(uint32_t record)
{
	size_t size;

	return journal_bytes(j, record, &size);
}

Test(journal, is_new_until_something_was_committed_and_old_afterwards)
{
	uint32_t record = 0;

	cr_assert_not(journal_is_old(j));
	cr_assert(journal_is_committed(j));
	put_string(&record, "one");
	cr_assert_not(journal_is_committed(j));
	reopen();
	cr_assert_not(journal_is_old(j));
	cr_assert_eq(journal_count(j, RECORD_NAME), 0);
	record = 0;
	put_string(&record, "one");
	journal_commit(j);
	cr_assert(journal_is_committed(j));
	reopen();
	cr_assert(journal_is_old(j));
	cr_assert_eq(journal_count(j, RECORD_NAME), 1);
	cr_assert_str_eq(string_of(record), "one");
}

Test(journal, what_was_not_committed_never_happened)
{
	uint32_t kept = 0, dropped = 0, fresh = 0, old;

	put_string(&kept, "as it was");
	put_string(&dropped, "stays");
	journal_commit(j);
	old = dropped;
	put_string(&kept, "changed");
	put_string(&fresh, "new");
	journal_drop(j, &dropped);
	cr_assert_eq(dropped, 0);
	reopen();
	cr_assert_str_eq(string_of(kept), "as it was");
	cr_assert_str_eq(string_of(old), "stays");
	cr_assert_eq(journal_count(j, RECORD_NAME), 2);
}

Test(journal, of_what_is_put_several_times_in_a_commit_the_last_counts)
{
	uint32_t a = 0, b = 0, c = 0;

	put_string(&a, "1");
	put_string(&a, "2");
	put_string(&b, "x");
	put_string(&a, "3");
	put_string(&c, "gone");
	journal_drop(j, &c);
	journal_commit(j);
	reopen();
	cr_assert_str_eq(string_of(a), "3");
	cr_assert_str_eq(string_of(b), "x");
	cr_assert_eq(journal_count(j, RECORD_NAME), 2);
}

Test(journal, an_entry_that_is_dropped_is_nobodys_before_the_commit)
{
	uint32_t first = 0, second = 0, was;

	put_string(&first, "first");
	journal_commit(j);
	was = first;
	journal_drop(j, &first);
	put_string(&second, "other");
	cr_assert_neq(second, was);
	journal_commit(j);
	put_string(&first, "again");
	cr_assert_eq(first, was);
	journal_commit(j);
	reopen();
	cr_assert_str_eq(string_of(first), "again");
	cr_assert_str_eq(string_of(second), "other");
}

Test(journal, has_records_of_each_size)
{
	static unsigned char bytes[RECORD_SIZE_MAX];
	static uint32_t records[2 * CLASSES + 1];
	size_t sizes[2 * CLASSES + 1], n = 0, size;

	for (uint32_t c = 1; size_of_class(c) - 4 <= RECORD_SIZE_MAX; c++) {
		cr_assert_eq(class_of(size_of_class(c)), c);
		cr_assert_eq(class_of(size_of_class(c) + 1), c + 1);
		sizes[n++] = size_of_class(c) - 4; /* all that it has room for */
		sizes[n++] = c > 1 ? size_of_class(c - 1) - 3 : 0;
	}
	sizes[n++] = RECORD_SIZE_MAX;
	for (size_t i = 0; i < n; i++) {
		model_fill(bytes, sizes[i], i);
		journal_put(j, RECORD_METADATA, &records[i], bytes, sizes[i]);
	}
	journal_commit(j);
	reopen();
	cr_assert_eq(journal_count(j, RECORD_METADATA), n);
	for (size_t i = 0; i < n; i++) {
		const unsigned char *there = journal_bytes(j, records[i], &size);

		model_fill(bytes, sizes[i], i);
		cr_assert_geq(size, sizes[i]);
		cr_assert_eq(memcmp(there, bytes, sizes[i]), 0);
		for (size_t k = sizes[i]; k < size; k++)
			cr_assert_eq(there[k], 0);
	}
}

Test(journal, a_record_that_grows_or_shrinks_is_still_one)
{
	static const char large[3000] = "large";
	uint32_t record = 0;
	struct iovec parts[] = {
	    {(void *)(uintptr_t) "in ", 3}, {NULL, 0}, {(void *)(uintptr_t) "parts", 5}};

	put_string(&record, "small");
	journal_commit(j);
	journal_put(j, RECORD_NAME, &record, large, sizeof(large));
	journal_commit(j);
	reopen();
	cr_assert_eq(journal_count(j, RECORD_NAME), 1);
	cr_assert_str_eq(string_of(record), "large");
	journal_put_parts(j, RECORD_NAME, &record, parts, 3);
	journal_commit(j);
	reopen();
	cr_assert_eq(journal_count(j, RECORD_NAME), 1);
	cr_assert_str_eq(string_of(record), "in parts");
}

Test(journal, what_is_written_in_place_counts_at_once_and_the_record_from_the_commit_on)
{
	uint32_t record = 0, lost = 0, was;
	uint64_t *value = journal_place(j, RECORD_TIMELINES, &record, 4096), *other;

	cr_assert_eq((uintptr_t)value % 8, 0);
	cr_assert_eq(value[511], 0);
	value[0] = 1;
	journal_commit(j);
	value[0] = 2;
	other = journal_place(j, RECORD_TIMELINES, &lost, 4096);
	other[0] = 3;
	reopen();
	cr_assert_eq(journal_count(j, RECORD_TIMELINES), 1);
	value = journal_in_place(j, record);
	cr_assert_eq(value[0], 2);
	was = record;
	journal_drop(j, &record);
	value[0] = 4;
	reopen();
	value = journal_in_place(j, was);
	cr_assert_eq(value[0], 4);
	journal_drop(j, &was);
	journal_commit(j);
	/* who has it next finds zeros */
	value = journal_place(j, RECORD_TIMELINES, &record, 4096);
	cr_assert_eq(value[0], 0);
	cr_assert_eq(journal_count(j, RECORD_TIMELINES), 1);
}

/* What a random sequence leaves, with kills between: always what was last committed. */
Test(journal, is_at_the_last_commit_whatever_has_happened)
{
	static struct model now, committed;

	now = committed = (struct model){.random = 4711, .sizes = {7, 44, 700, 5000}};
	for (unsigned i = 0; i < 5000; i++) {
		uint64_t what = model_random(&now) % 64;

		if (what == 0) {
			uint64_t random = now.random;

			reopen();
			cr_assert(model_is(&committed, j));
			now = committed;
			now.random = random;
		} else if (what < 12) {
			journal_commit(j);
			committed = now;
		} else {
			model_step(&now, j);
		}
	}
	/* what was free was given out again: of each type and size there is one chunk at most */
	cr_assert_leq(journal_size(j), 4 * 4 * 2 * CHUNK_SIZE);
}

Test(journal, a_commit_may_be_large_and_survives_the_one_after_it)
{
	static unsigned char bytes[RECORD_SIZE_MAX];
	static uint32_t records[1000];
	uint32_t one = 0;
	struct stat st;
	size_t size;

	model_fill(bytes, sizeof(bytes), 1);
	for (size_t i = 0; i < 1000; i++)
		journal_put(j, RECORD_BUFFER, &records[i], bytes, sizeof(bytes));
	journal_commit(j);
	reopen();
	cr_assert_eq(journal_count(j, RECORD_BUFFER), 1000);
	for (size_t i = 0; i < 1000; i++)
		cr_assert_eq(memcmp(journal_bytes(j, records[i], &size), bytes, sizeof(bytes)), 0);
	for (size_t i = 0; i < 1000; i++)
		journal_drop(j, &records[i]);
	journal_commit(j);
	put_string(&one, "small");
	journal_commit(j);
	reopen();
	cr_assert_eq(journal_count(j, RECORD_BUFFER), 0);
	cr_assert_str_eq(string_of(one), "small");
	/* the groups are small again, and the chunks stay */
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_leq((uint64_t)st.st_blocks * 512,
		      journal_size(j) + HEAD_SIZE + 2 * GROUP_LEAST + GROW_BY);
}

/* ------------------------------------------------------------------------------------------- */
/* What is given up goes back                                                                  */

#define LOTS 10000

#define LONG 256

static uint32_t lots[LOTS];

/* What there can be beside records and the chunks that are kept. */
#define OVERHEAD (HEAD_SIZE + 2 * GROUP_LEAST + GROW_BY + EMPTY_SPARE * CHUNK_SIZE)

static uint64_t memory_of(int file)
{
	struct stat st;

	cr_assert_eq(fstat(file, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void put_lots(void)
{
	char text[LONG];

	for (int i = 0; i < LOTS; i++) {
		snprintf(text, sizeof(text), "%0200d", i);
		put_string(&lots[i], text);
		if (i % 100 == 99)
			journal_commit(j);
	}
}

static void expect_lots(void)
{
	char text[LONG];

	cr_assert_eq(journal_count(j, RECORD_NAME), LOTS);
	for (int i = 0; i < LOTS; i++) {
		snprintf(text, sizeof(text), "%0200d", i);
		cr_assert_str_eq(string_of(lots[i]), text);
	}
}

/* All but each @kept-th. */
static void drop_lots(int kept)
{
	for (int i = 0; i < LOTS; i++) {
		if (i % kept)
			journal_drop(j, &lots[i]);
		if (i % 100 == 99)
			journal_commit(j);
	}
}

static void commit_something(void)
{
	uint32_t record = 0;

	journal_put(j, RECORD_TOKEN, &record, "x", 1);
	journal_drop(j, &record);
	journal_commit(j);
}

Test(journal, gives_back_the_memory_of_records_that_are_gone)
{
	uint64_t with_all;

	put_lots();
	with_all = memory_of(fd);
	cr_assert_geq(with_all, LOTS * 200);
	drop_lots(LOTS);
	commit_something();
	/* a page of each chunk stays */
	cr_assert_leq(memory_of(fd), OVERHEAD + with_all / 15);
	cr_assert_leq(journal_size(j), OVERHEAD + with_all / 15);
	cr_assert_eq(journal_count(j, RECORD_NAME), 1);
	journal_drop(j, &lots[0]);
	put_lots();
	expect_lots();
	cr_assert_leq(memory_of(fd), with_all + GROW_BY);
	reopen();
	expect_lots();
}

Test(journal, keeps_what_lies_between_what_is_given_back)
{
	int kept = LOTS / 10, n = 0;

	put_lots();
	drop_lots(kept);
	commit_something();
	reopen();
	cr_assert_eq(journal_count(j, RECORD_NAME), LOTS / kept);
	for (int i = 0; i < LOTS; i += kept) {
		char text[LONG];

		snprintf(text, sizeof(text), "%0200d", i);
		cr_assert_str_eq(string_of(lots[i]), text);
		n++;
	}
	cr_assert_eq(n, LOTS / kept);
}

/* It would be taken again, without asking whether there is any: who opens a journal writes what was
 * last committed once more. */
Test(journal, that_is_opened_takes_no_memory_again)
{
	uint64_t before;

	put_lots();
	j->spare_empty = 0; /* so that those go that have become empty last */
	for (int i = 0; i < LOTS; i++) {
		journal_drop(j, &lots[i]);
		if (i % 200 != 199)
			continue;
		journal_commit(j);
		before = memory_of(fd);
		reopen();
		j->spare_empty = 0;
		cr_assert_leq(memory_of(fd), before);
		cr_assert_eq(journal_count(j, RECORD_NAME), (uint32_t)(LOTS - i - 1));
	}
	cr_assert_leq(memory_of(fd), OVERHEAD + LOTS * 20);
}

/* A broker that rehearses finds holes, and what it puts into them nobody else sees or pays for. */
Test(journal, whose_copy_fills_holes_stays_as_it_is)
{
	struct journal *copy, *mine = j;
	uint64_t before;
	char why[256];

	put_lots();
	drop_lots(LOTS);
	commit_something();
	before = memory_of(fd);
	cr_assert_eq(journal_copy(fd, &copy, why, sizeof(why)), 0);
	j = copy;
	journal_drop(j, &lots[0]);
	put_lots();
	expect_lots();
	journal_free(copy);
	j = mine;
	cr_assert_eq(memory_of(fd), before);
	reopen();
	cr_assert_eq(journal_count(j, RECORD_NAME), 1);
}

static unsigned calls; /* of fallocate() */

/* The last record of a kind goes with one commit, and there is one again with a later one. */
Test(journal, keeps_the_memory_of_what_comes_and_goes_all_the_time)
{
	uint32_t lots_of_kinds[EMPTY_SPARE + 4] = {0}, record = 0, other = 0;
	static const char text[4096];
	unsigned before;

	for (uint32_t i = 0; i < EMPTY_SPARE + 4; i++)
		journal_put(j, RECORD_NAME, &lots_of_kinds[i], text,
			    (size_t)size_of_class(10 + i) - 8);
	journal_commit(j);
	for (uint32_t i = 0; i < EMPTY_SPARE + 4; i++)
		journal_drop(j, &lots_of_kinds[i]);
	journal_commit(j);
	before = calls;
	for (int i = 0; i < 100; i++) {
		journal_put(j, RECORD_TOKEN, &record, "token", 5);
		journal_commit(j);
		journal_drop(j, &record);
		journal_commit(j);
		journal_put(j, RECORD_CLIENT, &other, "client", 6);
		journal_commit(j);
	}
	/* at most once each of those that were empty before, and these two new chunks */
	cr_assert_leq(calls - before, EMPTY_SPARE + 4 + 2);
}

/* ------------------------------------------------------------------------------------------- */
/* The end of a journal                                                                        */

static uint64_t memory_left = UINT64_MAX;
static bool is_interrupted; /* each call, the first time */

int __real_fallocate(int file, int mode, off_t offset, off_t size);
int __wrap_fallocate(int file, int mode, off_t offset, off_t size);
int __wrap_fallocate(int file, int mode, off_t offset, off_t size)
{
	static bool was_interrupted;

	calls++;
	if (!(mode & FALLOC_FL_PUNCH_HOLE)) {
		was_interrupted = is_interrupted && !was_interrupted;
		if (was_interrupted) {
			errno = EINTR;
			return -1;
		}
		if ((uint64_t)size > memory_left) {
			errno = ENOMEM;
			return -1;
		}
		memory_left -= (uint64_t)size;
	}
	return __real_fallocate(file, mode, offset, size);
}

static void expect_ended(void)
{
	struct journal *next;
	char why[256];

	cr_assert(journal_is_committed(j));
	journal_commit(j);
	cr_assert_eq(journal_new(fd, &next, why, sizeof(why)), -EBADMSG);
	cr_assert_str_eq(why, "the journal ended before the broker did");
}

Test(journal, ends_where_there_is_no_memory_for_another_record)
{
	static unsigned char bytes[RECORD_SIZE_MAX];
	uint32_t records[64] = {0}, place;
	unsigned n = 0;

	memory_left = 2 * GROW_BY;
	while (n < 64) {
		journal_put(j, RECORD_BUFFER, &records[n], bytes, sizeof(bytes));
		if (!records[n])
			break;
		journal_commit(j);
		n++;
	}
	cr_assert(n > 8 && n < 64);
	/* the broker goes on, and nothing more is written */
	journal_put(j, RECORD_BUFFER, &records[n], bytes, 8);
	cr_assert_eq(records[n], 0);
	cr_assert_null(journal_place(j, RECORD_TIMELINES, &place, 8));
	journal_drop(j, &records[0]);
	cr_assert_eq(records[0], 0);
	expect_ended();
}

Test(journal, ends_where_there_is_no_memory_for_what_was_given_back)
{
	put_lots();
	drop_lots(LOTS);
	commit_something();
	memory_left = GROW_BY / 4;
	put_lots();
	expect_ended();
}

/* As a signal does, and whoever stops or freezes the broker. */
Test(journal, does_not_end_where_its_growth_is_interrupted)
{
	static unsigned char bytes[RECORD_SIZE_MAX];
	static uint32_t records[100];

	is_interrupted = true;
	stop();
	start();
	for (size_t i = 0; i < 100; i++) /* chunks and a group */
		journal_put(j, RECORD_BUFFER, &records[i], bytes, sizeof(bytes));
	journal_commit(j);
	reopen();
	cr_assert_eq(journal_count(j, RECORD_BUFFER), 100);
}

/* The same record over and over takes room in the group, and none in the chunks. */
Test(journal, ends_where_too_much_happens_at_once)
{
	static unsigned char bytes[RECORD_SIZE_MAX];
	uint32_t one = 0, two = 0;

	memory_left = 20 * GROW_BY;
	for (unsigned i = 0; i < 1000; i++) {
		journal_put(j, RECORD_BUFFER, &one, bytes, sizeof(bytes));
		journal_put(j, RECORD_BUFFER, &two, bytes, sizeof(bytes));
	}
	expect_ended();
}

Test(journal, ends_when_it_is_told_to)
{
	uint32_t one = 0;

	put_string(&one, "one");
	journal_commit(j);
	journal_end(j, ENOMEM);
	expect_ended();
}

Test(journal, cannot_be_made_where_there_is_no_memory_and_says_so)
{
	int other = memfd_create("journal", MFD_CLOEXEC);
	struct journal *none = NULL;
	char why[256];

	memory_left = HEAD_SIZE;
	cr_assert_eq(journal_new(other, &none, why, sizeof(why)), -ENOMEM);
	cr_assert_str_eq(why, strerror(ENOMEM));
	cr_assert_null(none);
	fd_close(other);
}

/* ------------------------------------------------------------------------------------------- */
/* The inbox                                                                                   */

static void receive(uint64_t client, const char *packet)
{
	struct inbox *inbox = journal_inbox(j);

	journal_expect(j, client);
	memcpy(inbox->packet, packet, strlen(packet));
	inbox->header.msg_len = (unsigned)strlen(packet);
}

/* Nobody is known before something was committed, so there is always something. */
static void commit_a_client(void)
{
	uint32_t record = 0;

	journal_put(j, RECORD_CLIENT, &record, "client", 6);
	journal_commit(j);
}

Test(journal, a_packet_is_there_until_a_commit)
{
	commit_a_client();
	receive(7, "request");
	cr_assert_not(journal_is_committed(j));
	reopen();
	/* nothing that is committed meanwhile says that it was handled */
	commit_a_client();
	reopen();
	cr_assert_eq(journal_inbox(j)->client, 7);
	cr_assert_eq(journal_inbox(j)->attempts, 0);
	journal_inbox(j)->attempts++;
	cr_assert_eq(journal_take_unhandled(j), 7);
	cr_assert_eq(memcmp(journal_inbox(j)->packet, "request", 7), 0);
	/* it was not handled to its end */
	reopen();
	cr_assert_eq(journal_inbox(j)->attempts, 1);
	cr_assert_eq(journal_take_unhandled(j), 7);
	journal_commit(j);
	reopen();
	cr_assert_eq(journal_take_unhandled(j), 0);
}

Test(journal, a_packet_that_has_not_come_is_none)
{
	commit_a_client();
	receive(7, "request");
	journal_commit(j);
	journal_expect(j, 8);
	cr_assert(journal_is_committed(j));
	reopen();
	cr_assert_eq(journal_take_unhandled(j), 0);
	journal_expect(j, 8);
	journal_expect(j, 9);
	commit_a_client();
	receive(9, "another");
	reopen();
	cr_assert_eq(journal_inbox(j)->client, 9);
	cr_assert_eq(journal_take_unhandled(j), 7);
}

Test(journal, a_packet_before_anything_was_committed_is_nobodys)
{
	receive(1, "hello");
	reopen();
	cr_assert_not(journal_is_old(j));
	cr_assert_eq(journal_take_unhandled(j), 0);
}

/* ------------------------------------------------------------------------------------------- */

Test(journal, whose_making_was_cut_short_is_made_again)
{
	uint32_t record = 0;

	/* its magic is what is written last */
	journal_inbox(j)->number = 5;
	memset(j->memory, 0, 8);
	reopen();
	cr_assert_not(journal_is_old(j));
	cr_assert_eq(journal_inbox(j)->number, 0);
	put_string(&record, "one");
	journal_commit(j);
	reopen();
	cr_assert_str_eq(string_of(record), "one");
}

/* A broker that rehearses has more to say than there was room for, and nobody else sees it. */
Test(journal, that_is_a_copy_grows_in_memory_of_its_own)
{
	static unsigned char bytes[RECORD_SIZE_MAX];
	static uint32_t records[4 * GROW_BY / RECORD_SIZE_MAX];
	const size_t n = sizeof(records) / sizeof(records[0]);
	struct journal *copy;
	char why[256];
	size_t size;

	cr_assert_eq(journal_copy(fd, &copy, why, sizeof(why)), 0);
	memset(bytes, 0x5a, sizeof(bytes));
	for (size_t i = 0; i < n; i++)
		journal_put(copy, RECORD_NAME, &records[i], bytes, sizeof(bytes));
	journal_commit(copy);
	cr_assert_eq(journal_count(copy, RECORD_NAME), n);
	for (size_t i = 0; i < n; i++)
		cr_assert_eq(memcmp(journal_bytes(copy, records[i], &size), bytes, sizeof(bytes)),
			     0);
	journal_free(copy);
	reopen();
	cr_assert_not(journal_is_old(j));
	cr_assert_eq(journal_count(j, RECORD_NAME), 0);
}

/* ------------------------------------------------------------------------------------------- */

#define MANY       50000
#define BEAT_EVERY 10000 /* records, or fewer */

static int read_nothing(void *data, uint32_t record, const void *bytes, size_t size)
{
	(void)data, (void)record, (void)bytes, (void)size;
	return 0;
}

/* Its keeper does not take a broker for one that hangs, however much there is to read. */
Test(journal, to_open_and_read_a_large_one_shows_that_it_goes_on)
{
	static uint32_t records[MANY];
	atomic_uint beats = 0;

	for (int i = 0; i < MANY; i++) {
		put_string(&records[i], "thing");
		if (i % 1000 == 0)
			journal_commit(j);
	}
	journal_commit(j);
	beat_at(&beats);
	reopen();
	cr_assert_geq(beats, MANY / BEAT_EVERY);
	beats = 0;
	cr_assert_eq(journal_read(j, RECORD_NAME, 1, read_nothing, NULL), 0);
	cr_assert_geq(beats, MANY / BEAT_EVERY);
	beat_at(NULL);
}
