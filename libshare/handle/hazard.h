/* SPDX-License-Identifier: MIT */
#pragma once

#include <errno.h>
#include <stddef.h>

#include "libshare/handle/handle.h"
#include "libshare/handle/hazards.h"
#include "libshare/program/error.h"

/* What a call does with the program's objects: it finds them, and says that it is about them. */

/* handle_find() of an object that stays until the call is over: 0, SHARE_EINVAL or SHARE_ENOMEM. */
static inline int hazard_find(const void *handle, enum handle_kind kind, void **out)
{
	if (kind != HANDLE_BUFFER && !hazard_set(handle_object(handle)))
		return fail_system(-ENOMEM, "looking at a handle");
	*out = handle_find(handle, kind);
	return *out ? 0 : handle_fault(handle, kind);
}

/* From here to the end of the block, which is one of a public function's or of a thread's: what it
 * says that it is about, it is about until then. */
#define HAZARDS                                                                           \
	__attribute__((cleanup(hazards_leave), unused)) _Atomic(void *) *const hazards_ = \
	    *hazards_top()

/* About none, or about several. */
void hazards_leave_others(_Atomic(void *) *from);
/* Ends what nobody is about any more. */
void hazards_end_limbo(void);

static inline void hazards_leave(_Atomic(void *) *const *mark)
{
	_Atomic(void *) *at = *mark;

	if (__builtin_expect(*hazards_top() == at + 1, true)) { /* about one, as nearly all are */
		atomic_store_explicit(at, NULL, memory_order_release);
		*hazards_top() = at;
	} else {
		hazards_leave_others(at);
	}
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(atomic_load_explicit(&hazards_limbo, memory_order_relaxed) > 0, false))
		hazards_end_limbo();
}

/* The program has no handle of @object any more: @end, the same for all of its kind, is called now,
 * or by the last thread that comes out of a call about it. That thread has no lock then. */
void hazard_end(void *object, void (*end)(void *object));

/* For the handler of a signal, which may be no place to get memory at: nothing ends between them.
 */
void hazards_stop(void);
void hazards_go_on(void);

/*
 * For what belongs to a client (client.h), from the program's handle to the object: NAME_find() and
 * NAME_resolve(), 0, SHARE_EINVAL or SHARE_EFORK; NAME_look(), in a forked child as well;
 * NAME_of(), of a handle that was found before; and NAME_take(), for what gives it up: NULL when
 * there is nothing that the caller could do. Not every kind needs all of them.
 */
#define HANDLES_OF(type, name, kind)                                                          \
	__attribute__((unused)) static inline type *name##_of(const type *handle)             \
	{                                                                                     \
		return handle_object(handle);                                                 \
	}                                                                                     \
	__attribute__((unused)) static inline int name##_look(const type *handle, type **out) \
	{                                                                                     \
		void *found = NULL;                                                           \
		int r = hazard_find(handle, kind, &found);                                    \
                                                                                              \
		if (r == 0)                                                                   \
			*out = found;                                                         \
		return r;                                                                     \
	}                                                                                     \
	__attribute__((unused)) static inline int name##_find(const type *handle, type **out) \
	{                                                                                     \
		int r = name##_look(handle, out);                                             \
                                                                                              \
		return r == 0 && client_is_forked((*out)->client) ? fail_fork() : r;          \
	}                                                                                     \
	__attribute__((unused)) static inline int name##_resolve(type **handle)               \
	{                                                                                     \
		return name##_find(*handle, handle);                                          \
	}                                                                                     \
	__attribute__((unused)) static inline type *name##_take(type *handle)                 \
	{                                                                                     \
		type *taken = handle_take(handle, kind);                                      \
                                                                                              \
		if (!taken || !client_is_forked(taken->client))                               \
			return taken;                                                         \
		handle_keep(taken);                                                           \
		return NULL;                                                                  \
	}                                                                                     \
	_Static_assert(offsetof(type, handle) == 0, "an object's handle is its address")
