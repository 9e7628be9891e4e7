/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Hazard pointers: a call says, where its thread keeps it, which objects it is about, and only then
 * looks whether the program has them. Whoever gives a handle up has it taken from the program
 * first, and looks at what the threads say after that. So one of the two sees the other, and an
 * object ends at once, or when the last call is out that is about it; nobody waits.
 *
 * Calls are many and ends are few: only these pay for the barrier that this takes, as the kernel
 * has all threads of the process pass one (membarrier()). What a call pays for is two stores.
 *
 * Buffers have none: each reference to one is somebody's, and a call is made by who has one.
 */
#define HAZARDS_AT_ONCE 15
#define HAZARDS_ALIGNED 128

/* Of a thread: objects from the first place on. The last place is none. */
struct hazards {
	_Alignas(HAZARDS_ALIGNED) _Atomic(void *) at[HAZARDS_AT_ONCE + 1];
	struct hazards *before; /* the same thread's, which was full; the thread's alone */
	struct hazards *next;   /* of all that there are; none ever goes */
	atomic_bool taken;      /* some thread has it */
};
_Static_assert(sizeof(void *) * (HAZARDS_AT_ONCE + 1) == HAZARDS_ALIGNED, "");

/* The first free place of the calling thread. Where that is stays the same as long as the thread is
 * there, so a call asks once. It is not at a fixed distance (tls_model("initial-exec")): for that,
 * all that the library has for a thread would need a place that is scarce where a program loads it
 * late, beside others that want it. */
_Atomic(void *) **hazards_top(void) __attribute__((const, visibility("hidden")));
/* Objects that were given up and have not ended; and a bit, if the kernel has no such barrier, so
 * that each call has some of its own. */
#define HAZARDS_FENCE 0x80000000u
extern atomic_uint hazards_limbo __attribute__((visibility("hidden")));
extern bool hazards_fence __attribute__((visibility("hidden")));

static inline struct hazards *hazards_of(const _Atomic(void *) *at)
{
	return (struct hazards *)((uintptr_t)at & ~(uintptr_t)(HAZARDS_ALIGNED - 1));
}

/* More places for the calling thread, as there is none left. The first one, or NULL without memory.
 */
_Atomic(void *) *hazards_more(void);

/* Says that the call is about @object. False without memory. */
static inline bool hazard_set(const void *object)
{
	_Atomic(void *) *at = *hazards_top();

	if (__builtin_expect(at == &hazards_of(at)->at[HAZARDS_AT_ONCE], false)) {
		at = hazards_more();
		if (!at)
			return false;
	}
	*hazards_top() = at + 1;
	if (__builtin_expect(hazards_fence, false))
		atomic_exchange(at, (void *)(uintptr_t)object);
	else
		atomic_store_explicit(at, (void *)(uintptr_t)object, memory_order_relaxed);
	/* who gives it up has the barrier that goes with this one */
	atomic_signal_fence(memory_order_seq_cst);
	return true;
}

/* The calling thread has said so before: of what a call looks for again and again. */
static inline bool hazard_is_set(const void *object)
{
	const struct hazards *h = hazards_of(*hazards_top());

	for (const _Atomic(void *) *at = h->at; at < *hazards_top(); at++)
		if (atomic_load_explicit(at, memory_order_relaxed) == object)
			return true;
	return false;
}
