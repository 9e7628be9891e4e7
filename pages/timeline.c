/* SPDX-License-Identifier: MIT */

/*
 * Timeline pages as a CPU uses them: signal, wait, poison. The broker and the library both link
 * this file, so that they agree on what "reached" means. It must not know clients, streams or any
 * policy.
 */

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "pages/page.h"
#include "pages/timeline.h"

static bool passed(uint64_t now, uint64_t value)
{
	return (int64_t)(now - value) >= 0;
}

enum timeline_state timeline_query(const struct timeline_page *page, uint32_t slot, uint64_t value)
{
	const struct timeline_slot *s = &page->slots[slot];
	uint64_t now = atomic_load_explicit(&s->value, memory_order_acquire);

	if (!passed(now, value))
		return TIMELINE_PENDING;
	if (now < TIMELINE_POISON)
		return TIMELINE_REACHED;
	/* The broker stored `last` before it stored the poison that was read above, with release
	 * order. */
	return passed(atomic_load_explicit(&s->last, memory_order_relaxed), value)
		   ? TIMELINE_REACHED
		   : TIMELINE_DEAD;
}

/* Futexes are 32 bits wide, so the futex is the low half of the counter. */
static const uint32_t *futex_word(const struct timeline_slot *s)
{
	return (const uint32_t *)(uintptr_t)&s->value;
}

const _Atomic uint32_t *timeline_word(const struct timeline_page *page, uint32_t slot)
{
	return (const _Atomic uint32_t *)(uintptr_t)futex_word(&page->slots[slot]);
}

/* Waiters map the page read-only and cannot leave a trace in it. So nobody knows whether there are
 * any, and waking always costs one system call. */
static void wake(const struct timeline_slot *s)
{
	syscall(SYS_futex, futex_word(s), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void timeline_signal(struct timeline_page *page, uint32_t slot, uint64_t value)
{
	atomic_store_explicit(&page->slots[slot].value, value, memory_order_release);
	wake(&page->slots[slot]);
}

uint64_t timeline_value(const struct timeline_page *page, uint32_t slot)
{
	return atomic_load_explicit(&page->slots[slot].value, memory_order_acquire);
}

void timeline_set_by_gpu(struct timeline_page *page, uint32_t slot, bool by_gpu)
{
	atomic_store_explicit(&page->slots[slot].by_gpu, by_gpu, memory_order_relaxed);
}

bool timeline_is_by_gpu(const struct timeline_page *page, uint32_t slot)
{
	return atomic_load_explicit(&page->slots[slot].by_gpu, memory_order_relaxed) != 0;
}

/* The low half of the poison is far from that of @value, too: a waiter that has read @value, and is
 * about to sleep as long as the low half is the same, must not sleep. */
static uint64_t poison_for(uint64_t value)
{
	return TIMELINE_POISON | (uint32_t)(value + (UINT32_C(1) << 31));
}

void timeline_poison(struct timeline_page *page, uint64_t last[TIMELINE_SLOTS], bool others)
{
	for (uint32_t i = 0; i < TIMELINE_SLOTS; i++) {
		struct timeline_slot *s = &page->slots[i];
		uint64_t value = atomic_load_explicit(&s->value, memory_order_relaxed);

		/* this was done by somebody who did not come to the end of it, and @last is right
		 */
		if (value >= TIMELINE_POISON)
			continue;
		if (!timeline_is_by_gpu(page, i) || !passed(value, last[i]))
			last[i] = value;
		atomic_store_explicit(&s->last, last[i], memory_order_relaxed);
		atomic_store_explicit(&s->value, poison_for(value), memory_order_release);
		if (others)
			wake(s);
	}
}

/*
 * A GPU wakes nobody. So a waiter first looks for the value without a pause, as a sleep takes 50 us
 * at least, and after that ten thousand times a second; and without a pause again when the value is
 * expected.
 */
#define SPIN_NS  100000
#define SLEEP_NS 50000 /* the kernel adds its timer slack */

/* Looks for the value for SPIN_NS, or until @end. Returns false when it was not reached. */
static bool spin_for_gpu(const struct timeline_slot *s, uint64_t value, uint64_t now, uint64_t end)
{
	if (end - now > SPIN_NS)
		end = now + SPIN_NS;
	do {
		for (int i = 0; i < 64; i++)
			if (passed(atomic_load_explicit(&s->value, memory_order_acquire), value))
				return true;
	} while (clock_ns() < end);
	return false;
}

enum timeline_state timeline_wait(const struct timeline_page *page, uint32_t slot, uint64_t value,
				  int timeout_ms)
{
	return timeline_wait_with(page, slot, value, timeout_ms, &(struct timeline_wait){0});
}

enum timeline_state timeline_wait_with(const struct timeline_page *page, uint32_t slot,
				       uint64_t value, int timeout_ms,
				       const struct timeline_wait *how)
{
	const struct timeline_slot *s = &page->slots[slot];
	int64_t deadline = deadline_from(timeout_ms);
	bool by_gpu = timeout_ms != 0 && timeline_is_by_gpu(page, slot);

	if (by_gpu)
		spin_for_gpu(s, value, clock_ns(), UINT64_MAX);
	for (;;) {
		uint64_t seen = atomic_load_explicit(&s->value, memory_order_acquire);
		struct timespec t, *limit = NULL;

		if (passed(seen, value))
			return timeline_query(page, slot, value);
		if (how->word && atomic_load(how->word) != how->same)
			return TIMELINE_PENDING;
		if (timeout_ms >= 0) {
			int left = deadline_left(deadline);

			if (left == 0)
				return TIMELINE_PENDING;
			t.tv_sec = left / 1000;
			t.tv_nsec = (long)(left % 1000) * 1000000;
			limit = &t;
		}
		if (by_gpu) {
			uint64_t now = clock_ns();

			if (now >= how->from && now < how->until) {
				spin_for_gpu(s, value, now, how->until);
				continue;
			}
			if (!limit || t.tv_sec > 0 || t.tv_nsec > SLEEP_NS)
				t = (struct timespec){0, SLEEP_NS};
			limit = &t;
		}
		/* whoever may be told to stop by the word looks what a signal was for */
		if (syscall(SYS_futex, futex_word(s), FUTEX_WAIT, (uint32_t)seen, limit, NULL, 0) <
			0 &&
		    errno == EINTR && how->word)
			return timeline_query(page, slot, value);
	}
}

int timeline_create(void)
{
	return page_create("share-timeline", TIMELINE_PAGE_SIZE);
}

int timeline_seal(int fd)
{
	return page_seal(fd);
}

uint64_t timeline_file(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

int timeline_map(int fd, bool writable, struct timeline_page **out)
{
	void *p;
	int r = page_map(fd, TIMELINE_PAGE_SIZE, writable, &p);

	/* A timeline belongs to one process: a forked child must not be able to signal for its
	 * parent, and page_map() sees to that. */
	if (r == 0)
		*out = p;
	return r;
}

void timeline_unmap(const struct timeline_page *page)
{
	page_unmap(page, TIMELINE_PAGE_SIZE);
}
