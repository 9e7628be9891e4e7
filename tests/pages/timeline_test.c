/* SPDX-License-Identifier: MIT */

/*
 * Timeline pages: that only one process can write is the kernel's word, and that everybody agrees
 * on what "reached" means is ours. Waiters are processes of their own with a read-only mapping, as
 * they are in life; the tests know them to be asleep before they wake them.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "base/system/descriptor.h"
#include "pages/timeline.h"

TestSuite(timeline, .timeout = 30);

static int fd = -1;
static struct timeline_page *page;
static uint64_t last[TIMELINE_SLOTS];

static void make_page(void)
{
	fd = timeline_create();
	cr_assert_geq(fd, 0);
	cr_assert_eq(timeline_map(fd, true, &page), 0);
}

static void make_sealed_page(void)
{
	make_page();
	cr_assert_eq(timeline_seal(fd), 0);
}

/* ------------------------------------------------------------------------------------------- */
/* What the kernel guards                                                                      */

Test(timeline, a_new_page_is_all_zeros_and_has_its_size, .init = make_page)
{
	const unsigned char *bytes = (const unsigned char *)page;
	struct stat st;

	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_size, TIMELINE_PAGE_SIZE);
	cr_assert_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	for (size_t i = 0; i < TIMELINE_PAGE_SIZE; i++)
		cr_assert_eq(bytes[i], 0);
}

Test(timeline, a_page_neither_shrinks_nor_grows, .init = make_page)
{
	cr_assert(ftruncate(fd, TIMELINE_PAGE_SIZE - 1) < 0 && errno == EPERM);
	cr_assert(ftruncate(fd, 0) < 0 && errno == EPERM);
	cr_assert(ftruncate(fd, TIMELINE_PAGE_SIZE + 1) < 0 && errno == EPERM);
	cr_assert(fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 4096) == 0,
		  "holes may be punched until the page is sealed");
	cr_assert_eq(timeline_seal(fd), 0);
	cr_assert(ftruncate(fd, 0) < 0 && errno == EPERM);
}

Test(timeline, a_sealed_page_cannot_be_mapped_for_writing_again, .init = make_sealed_page)
{
	struct timeline_page *again = NULL;

	cr_assert_eq(timeline_map(fd, true, &again), -EPERM);
	cr_assert_null(again, "outputs are untouched on failure");
}

Test(timeline, a_sealed_page_is_still_written_by_who_had_mapped_it, .init = make_sealed_page)
{
	struct timeline_page *reader;

	cr_assert_eq(timeline_map(fd, false, &reader), 0);
	timeline_signal(page, 3, 42);
	cr_assert_eq(atomic_load(&reader->slots[3].value), 42);
	timeline_unmap(reader);
}

Test(timeline, a_reader_of_a_sealed_page_cannot_make_itself_a_writer, .init = make_sealed_page)
{
	char path[64];
	struct timeline_page *reader;
	_cleanup_fd_ int again = -1;

	cr_assert_eq(timeline_map(fd, false, &reader), 0);
	cr_assert(mprotect(reader, TIMELINE_PAGE_SIZE, PROT_READ | PROT_WRITE) < 0 &&
		  errno == EACCES);
	cr_assert(pwrite(fd, "x", 1, 0) < 0 && errno == EPERM);
	cr_assert(fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 4096) < 0 &&
		  errno == EPERM);
	/* nor through /proc, which root may open for writing whatever the mode is */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	cr_assert(again >= 0 || errno == EACCES);
	if (again >= 0) {
		struct timeline_page *writer;

		cr_assert_eq(timeline_map(again, true, &writer), -EPERM);
		cr_assert(pwrite(again, "x", 1, 0) < 0 && errno == EPERM);
	}
	cr_assert_eq(atomic_load(&page->slots[0].value), 0);
	timeline_unmap(reader);
}

Test(timeline, a_page_is_sealed_once_and_for_all, .init = make_sealed_page)
{
	cr_assert_eq(timeline_seal(fd), 0); /* as it is, by whomever */
	cr_assert(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0 && errno == EPERM);
}

Test(timeline, a_forked_child_does_not_inherit_the_mapping, .init = make_sealed_page)
{
	int status;
	pid_t child = fork();

	cr_assert_geq(child, 0);
	if (child == 0) {
		unsigned char resident[TIMELINE_PAGE_SIZE / 4096 + 1];

		_exit(mincore(page, TIMELINE_PAGE_SIZE, resident) < 0 && errno == ENOMEM ? 0 : 1);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
}

/* ------------------------------------------------------------------------------------------- */
/* What reached means                                                                          */

Test(timeline, a_value_is_reached_from_its_signal_on, .init = make_page)
{
	cr_assert_eq(timeline_query(page, 1, 5), TIMELINE_PENDING);
	timeline_signal(page, 1, 4);
	cr_assert_eq(timeline_query(page, 1, 5), TIMELINE_PENDING);
	timeline_signal(page, 1, 5);
	cr_assert_eq(timeline_query(page, 1, 5), TIMELINE_REACHED);
	cr_assert_eq(timeline_query(page, 1, 4), TIMELINE_REACHED);
	cr_assert_eq(timeline_query(page, 1, 6), TIMELINE_PENDING);
	cr_assert_eq(timeline_query(page, 2, 1), TIMELINE_PENDING, "slots have nothing in common");
}

/* As cuStreamWaitValue64(GEQ) does it: (int64)(now - value) >= 0. */
Test(timeline, values_are_compared_cyclically_as_the_gpu_does, .init = make_page)
{
	static const struct {
		uint64_t now, value;
		enum timeline_state state;
	} cases[] = {
	    {0, 0, TIMELINE_REACHED},
	    {0, 1, TIMELINE_PENDING},
	    {0, INT64_MAX, TIMELINE_PENDING},
	    {0, UINT64_C(1) << 63, TIMELINE_PENDING},
	    {0, (UINT64_C(1) << 63) + 1, TIMELINE_REACHED},
	    {0, UINT64_MAX, TIMELINE_REACHED},
	    {7, UINT64_MAX, TIMELINE_REACHED},
	    {TIMELINE_POISON - 1, TIMELINE_POISON - 1, TIMELINE_REACHED},
	    {TIMELINE_POISON - 2, TIMELINE_POISON - 1, TIMELINE_PENDING},
	    {TIMELINE_POISON - 1, 1, TIMELINE_REACHED},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		atomic_store(&page->slots[1].value, cases[i].now);
		cr_assert_eq(timeline_query(page, 1, cases[i].value), cases[i].state, "case %zu",
			     i);
		cr_assert_eq(timeline_wait(page, 1, cases[i].value, 0), cases[i].state, "case %zu",
			     i);
	}
}

Test(timeline, the_poison_is_above_every_value_in_use_for_the_gpu_too, .init = make_page)
{
	static const uint64_t last_seen[] = {0, UINT32_MAX, TIMELINE_POISON - 1};

	for (size_t i = 0; i < sizeof(last_seen) / sizeof(last_seen[0]); i++) {
		uint64_t poison;

		atomic_store(&page->slots[1].value, last_seen[i]);
		timeline_poison(page, last, true);
		poison = atomic_load(&page->slots[1].value);
		for (uint64_t value = 1; value < TIMELINE_POISON; value = value * 2 + 1)
			cr_assert_geq((int64_t)(poison - value), 0);
		cr_assert_geq((int64_t)(poison - 0), 0);
	}
}

Test(timeline, poison_keeps_what_was_reached_and_reports_the_rest_dead, .init = make_sealed_page)
{
	timeline_signal(page, 1, 5);
	timeline_signal(page, TIMELINE_SLOTS - 1, TIMELINE_POISON - 1);
	timeline_poison(page, last, true);
	cr_assert_eq(timeline_query(page, 1, 4), TIMELINE_REACHED);
	cr_assert_eq(timeline_query(page, 1, 5), TIMELINE_REACHED);
	cr_assert_eq(timeline_query(page, 1, 6), TIMELINE_DEAD);
	cr_assert_eq(timeline_query(page, 1, TIMELINE_POISON - 1), TIMELINE_DEAD);
	cr_assert_eq(timeline_query(page, 2, 1), TIMELINE_DEAD);
	cr_assert_eq(timeline_query(page, TIMELINE_SLOTS - 1, TIMELINE_POISON - 1),
		     TIMELINE_REACHED);
	cr_assert_eq(timeline_wait(page, 1, 5, -1), TIMELINE_REACHED);
	cr_assert_eq(timeline_wait(page, 1, 6, -1), TIMELINE_DEAD);
}

Test(timeline, poison_tells_the_broker_how_far_the_owner_had_got, .init = make_sealed_page)
{
	timeline_signal(page, 1, 5);
	timeline_signal(page, TIMELINE_SLOTS - 1, 7);
	timeline_poison(page, last, true);
	cr_assert_eq(last[1], 5);
	cr_assert_eq(last[2], 0);
	cr_assert_eq(last[TIMELINE_SLOTS - 1], 7);
	/* readers are told the same */
	cr_assert_eq(atomic_load(&page->slots[1].last), 5);
	cr_assert_geq(atomic_load(&page->slots[1].value), TIMELINE_POISON);
}

Test(timeline, poisoning_twice_forgets_nothing, .init = make_sealed_page)
{
	timeline_signal(page, 1, 5);
	timeline_poison(page, last, true);
	timeline_poison(page, last, true);
	cr_assert_eq(timeline_query(page, 1, 5), TIMELINE_REACHED);
	cr_assert_eq(timeline_query(page, 1, 6), TIMELINE_DEAD);
}

/* ------------------------------------------------------------------------------------------- */
/* Waiting                                                                                     */

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

Test(timeline, waiting_ends_with_its_time_limit, .init = make_page)
{
	int64_t start = now_us();

	cr_assert_eq(timeline_wait(page, 1, 1, 30), TIMELINE_PENDING);
	/* milliseconds are counted in whole ones */
	cr_assert_geq(now_us() - start, 29000);
}

Test(timeline, a_time_limit_of_zero_only_asks, .init = make_page)
{
	cr_assert_eq(timeline_wait(page, 1, 1, 0), TIMELINE_PENDING);
	timeline_signal(page, 1, 1);
	cr_assert_eq(timeline_wait(page, 1, 1, 0), TIMELINE_REACHED);
}

Test(timeline, what_is_reached_is_not_waited_for, .init = make_page)
{
	timeline_signal(page, 1, 10);
	cr_assert_eq(timeline_wait(page, 1, 9, -1), TIMELINE_REACHED);
	cr_assert_eq(timeline_wait(page, 1, 10, 1000000), TIMELINE_REACHED);
}

/* A process that maps the page read-only, waits, and exits with the state it saw. */
static pid_t start_waiter(uint32_t slot, uint64_t value, int timeout_ms)
{
	pid_t child = fork();
	struct timeline_page *reader;

	cr_assert_geq(child, 0);
	if (child > 0)
		return child;
	if (timeline_map(fd, false, &reader) < 0)
		_exit(100);
	_exit((int)timeline_wait(reader, slot, value, timeout_ms));
}

static char process_state(pid_t pid)
{
	char path[64], line[512] = "", *after_name;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	cr_assert(f);
	cr_assert(fgets(line, sizeof(line), f));
	fclose(f);
	after_name = strrchr(line, ')');
	cr_assert(after_name);
	return after_name[2];
}

/* The only place where a waiter sleeps is the futex. */
static void settle(pid_t waiter)
{
	char state;

	while ((state = process_state(waiter)) != 'S') {
		cr_assert_neq(state, 'Z', "the waiter is gone already");
		sched_yield();
	}
}

static int result_of(pid_t waiter)
{
	int status;

	cr_assert_eq(waitpid(waiter, &status, 0), waiter);
	cr_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

Test(timeline, a_signal_wakes_a_reader_in_another_process, .init = make_sealed_page)
{
	pid_t waiter = start_waiter(7, 3, -1);

	settle(waiter);
	timeline_signal(page, 7, 3);
	cr_assert_eq(result_of(waiter), TIMELINE_REACHED);
}

Test(timeline, a_signal_wakes_every_reader, .init = make_sealed_page)
{
	enum { WAITERS = 8 };
	pid_t waiters[WAITERS];

	for (int i = 0; i < WAITERS; i++)
		waiters[i] = start_waiter(7, 3, -1);
	for (int i = 0; i < WAITERS; i++)
		settle(waiters[i]);
	timeline_signal(page, 7, 3);
	for (int i = 0; i < WAITERS; i++)
		cr_assert_eq(result_of(waiters[i]), TIMELINE_REACHED);
}

Test(timeline, a_reader_sleeps_on_until_its_own_value_comes, .init = make_sealed_page)
{
	pid_t waiter = start_waiter(7, 3, -1);

	settle(waiter);
	timeline_signal(page, 8, 3);
	timeline_signal(page, 7, 1);
	timeline_signal(page, 7, 2);
	settle(waiter);
	timeline_signal(page, 7, 3);
	cr_assert_eq(result_of(waiter), TIMELINE_REACHED);
}

/* The futex has the low half of the counter only. */
Test(timeline, a_signal_that_changes_only_the_high_half_is_seen, .init = make_sealed_page)
{
	pid_t waiter = start_waiter(7, UINT64_C(1) << 32, -1);

	settle(waiter);
	timeline_signal(page, 7, UINT64_C(1) << 32);
	cr_assert_eq(result_of(waiter), TIMELINE_REACHED);
}

Test(timeline, poison_wakes_a_reader_and_tells_it_that_the_owner_is_dead, .init = make_sealed_page)
{
	pid_t one = start_waiter(1, 1, -1), another = start_waiter(TIMELINE_SLOTS - 1, 9, -1);

	timeline_signal(page, TIMELINE_SLOTS - 1, 8);
	settle(one);
	settle(another);
	timeline_poison(page, last, true);
	cr_assert_eq(result_of(one), TIMELINE_DEAD);
	cr_assert_eq(result_of(another), TIMELINE_DEAD);
}

/* What a reader does between its look at the counter and its sleep. */
static bool would_sleep(uint32_t slot, uint64_t seen)
{
	static const struct timespec soon = {0, 1000000};

	return syscall(SYS_futex, &page->slots[slot].value, FUTEX_WAIT, (uint32_t)seen, &soon, NULL,
		       0) < 0 &&
	       errno == ETIMEDOUT;
}

Test(timeline, who_is_about_to_sleep_when_the_poison_comes_does_not, .init = make_sealed_page)
{
	static const uint64_t seen[] = {0, 1, UINT32_MAX, UINT64_C(1) << 32, UINT64_C(7) << 32};
	const uint32_t n = sizeof(seen) / sizeof(seen[0]);

	for (uint32_t i = 0; i < n; i++) {
		timeline_signal(page, i + 1, seen[i]);
		cr_assert(would_sleep(i + 1, seen[i]), "until then");
	}
	timeline_poison(page, last, true);
	for (uint32_t i = 0; i < n; i++) {
		cr_assert_not(would_sleep(i + 1, seen[i]), "%#llx", (unsigned long long)seen[i]);
		/* a GPU's last words may have come in between */
		cr_assert_not(would_sleep(i + 1, seen[i] + 1));
	}
}

Test(timeline, a_reader_with_a_time_limit_is_woken_before_it, .init = make_sealed_page)
{
	pid_t waiter = start_waiter(1, 1, 1000000);

	settle(waiter);
	timeline_signal(page, 1, 1);
	cr_assert_eq(result_of(waiter), TIMELINE_REACHED);
}
