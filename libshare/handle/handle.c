/* SPDX-License-Identifier: MIT */

/*
 * The memory of objects that programs have handles of. A slot that was freed last is used first,
 * as it is in the cache; but one that has been through all its generations has to wait until many
 * others have, as a handle of old would be taken for a new one otherwise.
 *
 * AddressSanitizer looks after all of a free slot but its header. Where it is at work, each slot is
 * a block of its own, and what is in use is listed nowhere: so LeakSanitizer finds what a program
 * has lost.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "libshare/handle/handle.h"
#include "libshare/program/error.h"

#include <share/error.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED
#include <sanitizer/asan_interface.h>
#define AT_ONCE 1u /* bytes: one slot */
#else
#define AT_ONCE (16u << 10)
#endif

#define WORN_KEPT 64u /* at least so many have to wait */

/* Where there are slots, for good. */
struct place {
	struct place *next;
	uintptr_t from, to;
};

static struct room {
	size_t slot; /* bytes of one, all the same */
	struct handle *ready;
	struct handle *worn, *last_worn;
	unsigned n_worn;
	_Atomic(struct place *) places;
} rooms[HANDLE_KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The child's rooms are in order, whatever other threads were at. */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

static void set_poison(struct handle *h, size_t slot, bool poison)
{
#ifdef SANITIZED
	if (poison)
		ASAN_POISON_MEMORY_REGION(h + 1, slot - sizeof(*h));
	else
		ASAN_UNPOISON_MEMORY_REGION(h + 1, slot - sizeof(*h));
#else
	(void)h, (void)slot, (void)poison;
#endif
}

/* For others, nobody has to look at what may be anything. And what is listed is not lost for
 * LeakSanitizer. */
static bool is_known_by_place(enum handle_kind kind)
{
	return kind == HANDLE_HOST_STREAM;
}

/* With the lock of @room held, as those below whose names end so. False without memory. */
static bool note_place_locked(struct room *room, const void *memory, size_t size)
{
	struct place *place = malloc(sizeof(*place));

	if (!place)
		return false;
	place->next = atomic_load_explicit(&room->places, memory_order_relaxed);
	place->from = (uintptr_t)memory;
	place->to = place->from + size;
	atomic_store_explicit(&room->places, place, memory_order_release);
	return true;
}

bool handle_was_given(const void *pointer, enum handle_kind kind)
{
	const struct place *p;

	for (p = atomic_load_explicit(&rooms[kind].places, memory_order_acquire); p; p = p->next)
		if ((uintptr_t)pointer >= p->from && (uintptr_t)pointer < p->to)
			return true;
	return false;
}

/* More slots, if there is memory. */
static void make_locked(struct room *room, enum handle_kind kind)
{
	size_t n = AT_ONCE / room->slot ? AT_ONCE / room->slot : 1;
	void *memory;

	if (posix_memalign(&memory, HANDLE_ALIGNMENT, n * room->slot) != 0)
		return;
	if (is_known_by_place(kind) && !note_place_locked(room, memory, n * room->slot)) {
		free(memory);
		return;
	}
	while (n-- > 0) {
		struct handle *h = (struct handle *)(void *)((char *)memory + n * room->slot);

		atomic_init(&h->word, (uint64_t)kind << 40 | UINT64_C(1) << 32);
		h->next = room->ready;
		room->ready = h;
		set_poison(h, room->slot, true);
	}
}

static struct handle *take_worn_locked(struct room *room)
{
	struct handle *h = room->worn;

	room->worn = h->next;
	room->n_worn--;
	atomic_fetch_or_explicit(&h->word, UINT64_C(1) << 32, memory_order_relaxed);
	return h;
}

void *handle_new(enum handle_kind kind, size_t size)
{
	struct room *room = &rooms[kind];
	struct handle *h = NULL;
	size_t slot;

	pthread_mutex_lock(&lock);
	if (room->slot == 0)
		room->slot = (size + HANDLE_ALIGNMENT - 1) & ~(size_t)(HANDLE_ALIGNMENT - 1);
	slot = room->slot;
	if (!room->ready && room->n_worn <= WORN_KEPT)
		make_locked(room, kind);
	if (room->ready) {
		h = room->ready;
		room->ready = h->next;
	} else if (room->n_worn > 0) {
		h = take_worn_locked(room);
	}
	pthread_mutex_unlock(&lock);
	if (!h)
		return NULL;
	set_poison(h, slot, false);
	h->next = NULL;
	memset(h + 1, 0, slot - sizeof(*h));
	return h;
}

void handle_free(void *object)
{
	if (!object)
		return;
	handle_end(object);
	handle_free_ended(object);
}

void handle_free_ended(void *object)
{
	struct handle *h = object;
	bool worn = handle_of(h) == h; /* in no generation */
	struct room *room;

	room = &rooms[atomic_load_explicit(&h->word, memory_order_relaxed) >> 40];
	set_poison(h, room->slot, true);
	pthread_mutex_lock(&lock);
	if (!worn) {
		h->next = room->ready;
		room->ready = h;
	} else {
		h->next = NULL;
		if (room->n_worn++)
			room->last_worn->next = h;
		else
			room->worn = h;
		room->last_worn = h;
	}
	pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------------------------------------- */

int handle_fault(const void *handle, enum handle_kind kind)
{
	static const char *const names[HANDLE_KINDS] = {
	    [HANDLE_CLIENT] = "client",           [HANDLE_POOL] = "pool",
	    [HANDLE_BUFFER] = "buffer",           [HANDLE_WATCH] = "watch",
	    [HANDLE_OPERATION] = "operation",     [HANDLE_EVENT] = "event",
	    [HANDLE_HOST_STREAM] = "host stream", [HANDLE_CHANNEL] = "channel",
	    [HANDLE_SERVICE] = "service",         [HANDLE_PENDING] = "call",
	};
	const struct handle *h = handle_object(handle);
	uint64_t word;

	if (!h)
		return fail(SHARE_EINVAL, "the %s is NULL", names[kind]);
	word = atomic_load_explicit(&h->word, memory_order_relaxed);
	if (word >> 40 != (uint64_t)kind && word >> 40 > 0 && word >> 40 < HANDLE_KINDS)
		return fail(SHARE_EINVAL, "this handle is not of the kind \"%s\" but \"%s\"",
			    names[kind], names[word >> 40]);
	if (word >> 40 != (uint64_t)kind)
		return fail(SHARE_EINVAL, "this is no %s handle", names[kind]);
	if (word == (handle_tag(handle, kind) | HANDLE_LENT | 1))
		return fail(SHARE_EINVAL,
			    "nothing but its message holds this buffer: give that up with "
			    "share_ack(), or share_retain() the buffer to keep it");
	return fail(SHARE_EINVAL, "this %s handle was given up already", names[kind]);
}
