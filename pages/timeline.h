/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Layout of a timeline page: shared memory that one client writes, that the broker poisons, and
 * that all others map read-only. Each counter has a cache line of its own. Slot 0 is no timeline,
 * so that timeline 0 can mean "no fence". Its `last` counts how often the broker has asked the
 * owner to give back what its magazines keep (TRIM), for owners that do not read their socket at
 * the moment.
 */

#define TIMELINE_SLOTS     256
#define TIMELINE_PAGE_SIZE (TIMELINE_SLOTS * 64)

/*
 * A value from here on is poison. WAIT_VALUE_GEQ compares cyclically, (int64)(*addr - value) >= 0.
 * So poison has to be less than 2^63 above every value in use, and a wait for any of these values
 * still has to see it as reached (cuda.h, measured).
 */
#define TIMELINE_POISON (UINT64_C(1) << 62)

struct timeline_slot {
	_Atomic uint64_t value;
	/* What the value had reached when the owner was found dead; the broker writes it. */
	_Atomic uint64_t last;
	/* 1: a GPU writes the value, and wakes nobody; the owner writes this. */
	_Atomic uint64_t by_gpu;
	/* For people, and of no timeline: one of the owner's streams stands still until this
	 * timeline (page << 16 | slot; 0: none) has got to this value. The owner writes it, and in
	 * the first TIMELINE_PARKED_MAX slots only. */
	_Atomic uint64_t parked_for, parked_until;
	uint64_t reserved[3];
};
/* Half as many as a CUDA device has connections at most: see libshare/order/parked.h. */
#define TIMELINE_PARKED_MAX 16

struct timeline_page {
	struct timeline_slot slots[TIMELINE_SLOTS];
};

_Static_assert(sizeof(struct timeline_slot) == 64, "one slot a cache line");
_Static_assert(sizeof(struct timeline_page) == TIMELINE_PAGE_SIZE, "a page has no header");

enum timeline_state {
	TIMELINE_REACHED,
	TIMELINE_PENDING,
	TIMELINE_DEAD, /* the owner died before the value was reached */
};

/* Says whether the value is reached. This is one load, and two when the timeline is poisoned. */
enum timeline_state timeline_query(const struct timeline_page *page, uint32_t slot, uint64_t value);

/* Only for the owner of the page. Stores the value with release order, so that whoever sees it also
 * sees what was written before, and wakes those who wait. */
void timeline_signal(struct timeline_page *page, uint32_t slot, uint64_t value);

/* Returns the counter as it is. */
uint64_t timeline_value(const struct timeline_page *page, uint32_t slot);

/* Only for the owner of the page: whether a GPU or a CPU signals the timeline from now on. */
void timeline_set_by_gpu(struct timeline_page *page, uint32_t slot, bool by_gpu);
bool timeline_is_by_gpu(const struct timeline_page *page, uint32_t slot);

/*
 * Only for the broker, when the owner is dead: records in the page and in @last how far each
 * timeline had got, and then releases everybody who waits. What a GPU has written counts only as
 * far as @last said before the call: when a process is killed, a value may still be written though
 * the work before it never finished (measured). With @others, another process may have mapped the
 * page and may sleep on it, and this wakes it; without, the system call for each slot is saved.
 */
void timeline_poison(struct timeline_page *page, uint64_t last[TIMELINE_SLOTS], bool others);

/* Waits at most @timeout_ms (-1: without limit) until the value is reached or poisoned; a read-only
 * mapping is enough. Returns the state, which is TIMELINE_PENDING when the time is over. */
enum timeline_state timeline_wait(const struct timeline_page *page, uint32_t slot, uint64_t value,
				  int timeout_ms);
/* How: while *word, if not NULL, is @same; who is to look at it is woken at timeline_word(). What a
 * GPU writes is looked for without a pause between two points in time of clock_ns(). */
struct timeline_wait {
	const _Atomic uint32_t *word;
	uint32_t same;
	uint64_t from, until;
};
enum timeline_state timeline_wait_with(const struct timeline_page *page, uint32_t slot,
				       uint64_t value, int timeout_ms,
				       const struct timeline_wait *how);
const _Atomic uint32_t *timeline_word(const struct timeline_page *page, uint32_t slot);

/* Creates a timeline page, whose size is sealed. Returns a memfd, which the caller owns, or a
 * negative errno. */
int timeline_create(void);

/* Seals the page when its owner and the broker have mapped it: from now on nobody else can map it
 * for writing. Returns 0 or a negative errno. */
int timeline_seal(int fd);

/* Returns which file a page is: two mappings of one page say the same. 0: that cannot be told. */
uint64_t timeline_file(int fd);

/* Maps a page, for which @fd is not needed any more afterwards. Returns 0 or a negative errno. */
int timeline_map(int fd, bool writable, struct timeline_page **out);
void timeline_unmap(const struct timeline_page *page);
