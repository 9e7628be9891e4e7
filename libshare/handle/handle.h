/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__has_include)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define HANDLE_MAY_BE_ALONE 1
#endif
#endif

/*
 * Handles: what a program has of the library's objects. A handle is the address of an object with
 * the generation of its slot in the low bits, which the alignment of slots leaves free. The memory
 * of a slot holds nothing but objects of one kind, for ever. So a handle can be looked at however
 * old it is, and it is seen when the program uses one that it has given up, or one of another kind.
 *
 * Inside of the library an object is known by its address. Functions of the public interface find
 * it on entry, and hand handles out; both are the same type to the compiler, but an address is no
 * handle, as no generation is 0.
 */
enum handle_kind {
	HANDLE_CLIENT = 1,
	HANDLE_POOL,
	HANDLE_BUFFER,
	HANDLE_WATCH,
	HANDLE_OPERATION,
	HANDLE_EVENT,
	HANDLE_HOST_STREAM,
	HANDLE_CHANNEL,
	HANDLE_SERVICE,
	HANDLE_PENDING,
	HANDLE_KINDS,
};

/*
 * The first member of every object. `word` says which kind it is, its generation, and in the low
 * half how many references to the handle the program has: none when it has not got it yet, or has
 * given it up. A generation ends with the object, or when its handle is given out again.
 */
struct handle {
	_Atomic uint64_t word;
	struct handle *next; /* while the slot is free */
};

#define HANDLE_ALIGNMENT   256u
#define HANDLE_GENERATIONS (HANDLE_ALIGNMENT - 1)
/* One of the references is a message's: it goes with that, and by nothing else. */
#define HANDLE_LENT (UINT64_C(1) << 31)

/* An object of zeros that the program has not got, in a slot for @size bytes, which is the same for
 * all of a kind; or NULL. */
void *handle_new(enum handle_kind kind, size_t size);
/* Whoever has a handle of it still has none now. NULL is fine. */
void handle_free(void *object);
/* The same after handle_end(), of an object that nobody may find while hazards are looked at. */
void handle_free_ended(void *object);

/* Whether @pointer, whatever it may be, is a handle of this kind, now or in former times. */
bool handle_was_given(const void *pointer, enum handle_kind kind);

/* SHARE_EINVAL: why @handle was not found, or could not be taken. */
int handle_fault(const void *handle, enum handle_kind kind);

/* Nobody else can be at a word, so that it takes no atomic instruction, which cost the most on the
 * way of an allocation. */
static inline bool handle_is_alone(void)
{
#ifdef HANDLE_MAY_BE_ALONE
	return __libc_single_threaded;
#else
	return false;
#endif
}

/* False: it is not @word any more, which says what it is. */
static inline bool handle_exchange(struct handle *h, uint64_t *word, uint64_t with)
{
	if (handle_is_alone()) {
		atomic_store_explicit(&h->word, with, memory_order_relaxed);
		return true;
	}
	return atomic_compare_exchange_weak_explicit(&h->word, word, with, memory_order_acq_rel,
						     memory_order_relaxed);
}

/* Whatever it is, and whether or not it still is. */
static inline void *handle_object(const void *handle)
{
	return (void *)((uintptr_t)handle & ~(uintptr_t)(HANDLE_ALIGNMENT - 1));
}

/* What the program calls it. */
static inline void *handle_of(void *object)
{
	struct handle *h = object;

	return (char *)object + (atomic_load_explicit(&h->word, memory_order_relaxed) >> 32 &
				 (HANDLE_ALIGNMENT - 1));
}

/* The word of its slot without the references, if it is what it says. */
static inline uint64_t handle_tag(const void *handle, enum handle_kind kind)
{
	return ((uint64_t)kind << 8 | ((uintptr_t)handle & (HANDLE_ALIGNMENT - 1))) << 32;
}

/* The object, if the program has a reference to this handle; else NULL. */
static inline void *handle_find(const void *handle, enum handle_kind kind)
{
	struct handle *h = handle_object(handle);
	uint64_t references;

	if (!h)
		return NULL;
	references =
	    atomic_load_explicit(&h->word, memory_order_relaxed) ^ handle_tag(handle, kind);
	return references - 1 < UINT32_MAX ? h : NULL;
}

/* Whether the object is still what it was, though the program may have given it up. */
static inline bool handle_exists(const void *handle, enum handle_kind kind)
{
	struct handle *h = handle_object(handle);

	return h && (atomic_load_explicit(&h->word, memory_order_relaxed) &
		     ~(uint64_t)UINT32_MAX) == handle_tag(handle, kind);
}

/* handle_find(), and one reference less. Of several threads that give the last one up, one gets the
 * object. */
static inline void *handle_take(const void *handle, enum handle_kind kind)
{
	struct handle *h = handle_object(handle);
	uint64_t tag = handle_tag(handle, kind), word;

	if (!h)
		return NULL;
	word = atomic_load_explicit(&h->word, memory_order_relaxed);
	do {
		uint64_t references = word ^ tag;

		if (references - 1 >= UINT32_MAX || references == (HANDLE_LENT | 1))
			return NULL;
	} while (!handle_exchange(h, &word, word - 1));
	return h;
}

/* What was taken is the program's still. */
static inline void handle_keep(void *object)
{
	struct handle *h = object;

	atomic_fetch_add_explicit(&h->word, 1, memory_order_relaxed);
}

/* The word of the same slot in its next generation. */
static inline uint64_t handle_next_tag(uint64_t word)
{
	uint64_t tag = word >> 32;

	/* 1 is after the last */
	return ((tag & (HANDLE_ALIGNMENT - 1)) < HANDLE_GENERATIONS ? tag + 1
								    : tag - HANDLE_GENERATIONS + 1)
	       << 32;
}

/* To the program: an object that it has not got, with one reference. Returns the handle. */
static inline void *handle_give(void *object)
{
	struct handle *h = object;
	uint64_t word = atomic_load_explicit(&h->word, memory_order_relaxed);

	atomic_store_explicit(&h->word, word | 1, memory_order_relaxed);
	return handle_of(object);
}

/* The same for one that it may have had before. */
static inline void *handle_give_anew(void *object)
{
	struct handle *h = object;
	uint64_t word = atomic_load_explicit(&h->word, memory_order_relaxed);

	atomic_store_explicit(&h->word, handle_next_tag(word) | 1, memory_order_relaxed);
	return handle_of(object);
}

/* The same as handle_give() with a message, which has that reference. */
static inline void *handle_lend(void *object)
{
	struct handle *h = object;
	uint64_t word = atomic_load_explicit(&h->word, memory_order_relaxed);

	atomic_store_explicit(&h->word, word | HANDLE_LENT | 1, memory_order_relaxed);
	return handle_of(object);
}

/* The message's reference is taken, once. False: it was before. */
static inline bool handle_take_lent(const void *handle, enum handle_kind kind)
{
	struct handle *h = handle_object(handle);
	uint64_t tag = handle_tag(handle, kind), word;

	word = atomic_load_explicit(&h->word, memory_order_relaxed);
	do
		if ((word & ~(uint64_t)UINT32_MAX) != tag || !(word & HANDLE_LENT))
			return false;
	while (!handle_exchange(h, &word, word - HANDLE_LENT - 1));
	return true;
}

/* It is the message's still. */
static inline void handle_keep_lent(void *object)
{
	struct handle *h = object;

	atomic_fetch_add_explicit(&h->word, HANDLE_LENT + 1, memory_order_relaxed);
}

/* The next generation is the first again, which the program may have of old: then it is time for
 * another slot. */
static inline bool handle_is_worn(const void *object)
{
	const struct handle *h = object;

	return (atomic_load_explicit(&h->word, memory_order_relaxed) >> 32 &
		(HANDLE_ALIGNMENT - 1)) == HANDLE_GENERATIONS;
}

/* Whoever has handles of it still has none now. After the last generation it is in none, so that
 * the first handle is not that of what lies there unused. */
static inline void handle_end(void *object)
{
	struct handle *h = object;
	uint64_t word = atomic_load_explicit(&h->word, memory_order_relaxed);

	atomic_store_explicit(&h->word,
			      handle_is_worn(h) ? word >> 40 << 40 : handle_next_tag(word),
			      memory_order_relaxed);
}

/* As handle_give_anew(), but for one reference more where the program has it already. */
static inline void *handle_give_again(void *object)
{
	struct handle *h = object;
	uint64_t word = atomic_load_explicit(&h->word, memory_order_relaxed), next;

	do
		next = (uint32_t)word ? word + 1 : handle_next_tag(word) | 1;
	while (!handle_exchange(h, &word, next));
	return (char *)object + (next >> 32 & (HANDLE_ALIGNMENT - 1));
}
