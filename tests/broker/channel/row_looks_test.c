/* SPDX-License-Identifier: MIT */

/*
 * How often the broker looks whether a consumer has written something where it acknowledges. Of
 * what it has fetched of a producer that is gone there may be thousands of entries, and they are
 * gone through after each further one.
 */

#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <share/channel.h>

#include "broker/membership/inside.h"
#include "broker/orphan/orphan.h"

#define MESSAGES 8192
#define PAGE     4096
#define ROW      1 /* which one it is */

/* As many as a row of so many acknowledgements has pages, and a few more. */
#define FEW 40

static int n_looks;

off_t __real_lseek(int fd, off_t offset, int whence);
off_t __wrap_lseek(int fd, off_t offset, int whence);
off_t __wrap_lseek(int fd, off_t offset, int whence)
{
	n_looks++;
	return __real_lseek(fd, offset, whence);
}

static struct channel channel = {
    .shape = {.mode = CHANNEL_QUEUE,
	      .in_flight = MESSAGES,
	      .depth = 64,
	      .consumers = 1,
	      .deliveries = 3,
	      .rows = 4,
	      .buffers = 1},
};
static struct timelines timelines = {.dead = true};
static struct member producer, consumer;
static struct claim claim;
static struct inherited inherited[MESSAGES];
static struct entry entries[MESSAGES];
static struct orphan messages[MESSAGES], *orphans[MESSAGES];
static struct channel_row *row; /* as the consumer writes it */

/* The consumer has an entry for each message of a producer that is gone. One after the other they
 * are of other parts of the row. */
static void setup(void)
{
	size_t size = channel_ledger_size(&channel.shape);
	int fd = memfd_create("ledger", 0);
	char *memory;

	cr_assert(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert(memory != MAP_FAILED);
	producer = (struct member){.channel = &channel,
				   .id = 7,
				   .role = SHARE_PRODUCER,
				   .state = MEMBER_GONE,
				   .as_producer.orphans = orphans};
	consumer = (struct member){.channel = &channel,
				   .id = 8,
				   .role = SHARE_CONSUMER,
				   .state = MEMBER_HERE,
				   .timelines = &timelines,
				   .page = {.fd = fd, .memory = memory, .size = size}};
	row = channel_row_at(memory, &channel.shape, ROW);
	claim = (struct claim){.producer = &producer, .consumer = &consumer, .row = ROW};
	TAILQ_INIT(&claim.entries);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		uint32_t ticket = i * 2731 % MESSAGES;

		inherited[i] = (struct inherited){.version = 1, .ticket = ticket};
		entries[i] = (struct entry){.inherited = &inherited[i]};
		messages[ticket] = (struct orphan){.producer = &producer,
						   .owner = &claim,
						   .ticket = ticket,
						   .version = 1,
						   .deliveries = 1};
		orphans[ticket] = &messages[ticket];
		TAILQ_INSERT_TAIL(&claim.entries, &entries[i], link);
		claim.n++;
	}
	n_looks = 0;
}

static void teardown(void)
{
	munmap(consumer.page.memory, consumer.page.size);
	close(consumer.page.fd);
}

TestSuite(row_looks, .init = setup, .fini = teardown);

static int looks_of_a_pass(void)
{
	int budget = MESSAGES;

	n_looks = 0;
	claim_look(&claim, &budget);
	cr_expect_eq(claim.n, MESSAGES, "the consumer is done with nothing");
	return n_looks;
}

Test(row_looks, where_nothing_was_written_it_is_looked_once)
{
	cr_expect_leq(looks_of_a_pass(), 2);
}

Test(row_looks, where_the_beginning_was_written_each_page_is_looked_for_once)
{
	atomic_store(&row->producer, producer.id);
	cr_expect_leq(looks_of_a_pass(), FEW);
}

Test(row_looks, where_every_other_page_was_written_each_is_looked_for_once)
{
	atomic_store(&row->producer, producer.id);
	for (uint32_t i = 0; i < MESSAGES; i += 2 * PAGE / sizeof(struct channel_ack))
		atomic_store(&row->acks[i].word, UINT64_C(2) << 32);
	cr_expect_leq(looks_of_a_pass(), FEW);
}

Test(row_looks, what_is_written_later_is_seen_by_the_next_pass)
{
	looks_of_a_pass();
	atomic_store(&row->producer, producer.id);
	atomic_store(&row->acks[5].word, UINT64_C(1) << 32);
	cr_expect_eq(claim_ask_row(&claim, 5, 1), DONE_WITH);
	cr_expect_eq(claim_ask_row(&claim, 6, 1), NOT_ACKNOWLEDGED);
}

/* Its message would be given to another one, though it has taken it. */
Test(row_looks, what_was_written_before_the_end_is_seen_after_it)
{
	member_remember_looks(&consumer, row);
	cr_expect_eq(claim_taken(&claim), 0);
	atomic_store(&row->taken, 3);
	atomic_store(&row->producer, producer.id);
	atomic_store(&((struct channel_ledger *)consumer.page.memory)->receives_no_more, 1);
	cr_expect(member_receives_no_more(&consumer));
	cr_expect_eq(claim_taken(&claim), 3);
	member_forget_looks(&consumer);
}
