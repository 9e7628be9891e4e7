/* SPDX-License-Identifier: MIT */
#ifndef PAGES_TIMELINE_H
#define PAGES_TIMELINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Layout of a timeline page, shared memory between one client that writes it, the broker that
 * poisons it, and everyone else who maps it read-only. One counter a cache line. Slot 0 is not
 * used as one, so that timeline 0 can mean "no fence"; its `last` counts how often the broker has
 * asked the owner to give back what it keeps without using it (TRIM), for those who do not read
 * their socket.
 */

#define TIMELINE_SLOTS     256
#define TIMELINE_PAGE_SIZE (TIMELINE_SLOTS * 64)

/*
 * From here on a value is poison. WAIT_VALUE_GEQ compares cyclically, (int64)(*addr - value) >= 0,
 * so poison has to stay less than 2^63 above every value in use and still be reached for all of
 * them (cuda.h, measured).
 */
#define TIMELINE_POISON (UINT64_C(1) << 62)

struct timeline_slot {
	_Atomic uint64_t value;
	_Atomic uint64_t
	    last; /* what it had reached when the owner was found dead; by the broker */
	_Atomic uint64_t by_gpu; /* 1: a GPU writes the value, and wakes nobody up; by the owner */
	uint64_t reserved[5];
};

struct timeline_page {
	struct timeline_slot slots[TIMELINE_SLOTS];
};

_Static_assert(sizeof(struct timeline_slot) == 64, "one slot a cache line");
_Static_assert(sizeof(struct timeline_page) == TIMELINE_PAGE_SIZE, "a page has no header");

enum timeline_state {
	TIMELINE_REACHED,
	TIMELINE_PENDING,
	TIMELINE_DEAD, /* poisoned before it was reached */
};

/* One load, two when poisoned. */
enum timeline_state timeline_query(const struct timeline_page *page, uint32_t slot, uint64_t value);

/* Owner only. Release order: what was written before is seen by whoever sees the value. */
void timeline_signal(struct timeline_page *page, uint32_t slot, uint64_t value);

/* The counter as it is. */
uint64_t timeline_value(const struct timeline_page *page, uint32_t slot);

/* Owner only: who will signal from now on. */
void timeline_set_by_gpu(struct timeline_page *page, uint32_t slot, bool by_gpu);
bool timeline_is_by_gpu(const struct timeline_page *page, uint32_t slot);

/*
 * Broker only: records where the owner had got to, in the page and in @last, then releases every
 * waiter. What a GPU has written counts only as far as @last says already: when a process is
 * killed, a value may still be written though the work before it never finished (measured).
 * @others: somebody else may have mapped the page, and may sleep; to wake nobody up takes a system
 * call for each slot, too.
 */
void timeline_poison(struct timeline_page *page, uint64_t last[TIMELINE_SLOTS], bool others);

/*
 * Waits until the value is reached or poisoned, at most @timeout_ms (-1: no limit). Works on a
 * read-only mapping. Returns the state; TIMELINE_PENDING when the time is over.
 */
enum timeline_state timeline_wait(const struct timeline_page *page, uint32_t slot, uint64_t value,
				  int timeout_ms);

/* A sealed page: neither shrinks nor grows. Returns a memfd or negative errno. */
int timeline_create(void);

/* Once its owner and the broker have mapped it: no further writer, ever. 0 or negative errno. */
int timeline_seal(int fd);

/* Maps a page. Returns 0 or negative errno. */
int timeline_map(int fd, bool writable, struct timeline_page **out);
void timeline_unmap(const struct timeline_page *page);

#endif
