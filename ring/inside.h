/* SPDX-License-Identifier: MIT */
#pragma once

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pages/channel_page.h"

/* ThreadSanitizer does not know fences, and GCC says so. It needs none of them to see that there is
 * no race: all that is shared is atomic, and what is handed over goes by release and acquire. */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

/* So many things are done without sleeping before it counts as a habit. */
#define RING_IDLE 1024

/*
 * A store before it and a load after it stay in that order for everybody. Where one side stores A
 * and looks at B, and the other stores B and looks at A, one of them sees the other's.
 */
static inline void ring_barrier(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

/* Our own announcement that we sleep, and what there is to look at for those who have something for
 * us; see sleep.c. */
struct ring_sleeper {
	_Atomic uint32_t *word; /* in our page */
	bool always;            /* this process cannot make others pass a barrier */
	bool unsure;            /* it could not when it had to */
	uint32_t idle;          /* things done since the last sleep */
};

void ring_sleeper_init(struct ring_sleeper *s, _Atomic uint32_t *word);
/* False: others may not see it. */
bool ring_sleeper_announce(struct ring_sleeper *s, enum channel_sleep state);
void ring_sleeper_awake(struct ring_sleeper *s);
void ring_sleeper_forget(struct ring_sleeper *s);

/* Something was done without having slept for it. */
static inline void ring_sleeper_goes_on(struct ring_sleeper *s)
{
	if (++s->idle == RING_IDLE)
		ring_sleeper_forget(s);
}

/* Whether whoever sleeps can count on this process to pass a barrier when it wants. */
bool ring_can_be_ordered(void);

/* Whether a barrier is due between having stored what somebody may sleep for, and the look at its
 * announcement that counts. */
static inline bool ring_may_sleep(const _Atomic uint32_t *word)
{
	atomic_signal_fence(memory_order_seq_cst);
	return atomic_load_explicit(word, memory_order_relaxed) & CHANNEL_MAY_SLEEP;
}

/* What an entry consists of is written and read while others do the same; the entry's sequence
 * number says whether what was read is whole. */
#define ring_load(pointer)         __atomic_load_n((pointer), __ATOMIC_RELAXED)
#define ring_store(pointer, value) __atomic_store_n((pointer), (value), __ATOMIC_RELAXED)

/*
 * Data of a message into an entry, which has room for whole lines, and out of one. Sixteen bytes at
 * a time, each once: what is torn by somebody who writes at the same time is told by the sequence
 * number. ThreadSanitizer is shown words, which it knows to be atomic.
 */
#ifdef __SANITIZE_THREAD__
#define RING_WIDE 0
#else
#define RING_WIDE 16
#endif
typedef uint64_t ring_wide __attribute__((vector_size(16), aligned(1), may_alias));

static inline uint32_t ring_copy_wide(unsigned char *to, const unsigned char *from, uint32_t size)
{
	uint32_t i = 0;

	for (; RING_WIDE && i + 64 <= size; i += 64) {
		ring_wide a = *(const volatile ring_wide *)(from + i);
		ring_wide b = *(const volatile ring_wide *)(from + i + 16);
		ring_wide c = *(const volatile ring_wide *)(from + i + 32);
		ring_wide d = *(const volatile ring_wide *)(from + i + 48);

		*(volatile ring_wide *)(to + i) = a;
		*(volatile ring_wide *)(to + i + 16) = b;
		*(volatile ring_wide *)(to + i + 32) = c;
		*(volatile ring_wide *)(to + i + 48) = d;
	}
	for (; RING_WIDE && i + 16 <= size; i += 16)
		*(volatile ring_wide *)(to + i) = *(const volatile ring_wide *)(from + i);
	return i;
}

static inline void ring_store_data(unsigned char *to, const unsigned char *from, uint32_t size)
{
	uint64_t word;
	uint32_t i = ring_copy_wide(to, from, size);

	for (; i + 8 <= size; i += 8) {
		memcpy(&word, from + i, 8);
		ring_store((uint64_t *)(void *)(to + i), word);
	}
	if (i == size)
		return;
	word = 0;
	memcpy(&word, from + i, size - i);
	ring_store((uint64_t *)(void *)(to + i), word);
}

static inline void ring_load_data(unsigned char *to, const unsigned char *from, uint32_t size)
{
	uint64_t word;
	uint32_t i = ring_copy_wide(to, from, size);

	for (; i + 8 <= size; i += 8) {
		word = ring_load((const uint64_t *)(const void *)(from + i));
		memcpy(to + i, &word, 8);
	}
	if (i == size)
		return;
	word = ring_load((const uint64_t *)(const void *)(from + i));
	memcpy(to + i, &word, size - i);
}

/* Rings for those who sleep on a futex in our page. The broker does the same to it. */
static inline void ring_bell(_Atomic uint32_t *bell)
{
	atomic_fetch_add_explicit(bell, 1, memory_order_release);
	syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Entries are one after the other, so that one need not ask for each. */
static inline size_t ring_stride(void *ring, const struct channel_shape *shape)
{
	unsigned char *first = (unsigned char *)channel_entry_at(ring, shape, 0, 0);

	return shape->depth == 1
		   ? 0
		   : (size_t)((unsigned char *)channel_entry_at(ring, shape, 0, 1) - first);
}

#define RING_BIT(slot) (UINT64_C(1) << (slot))
