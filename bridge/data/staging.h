/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

struct bridge;

/*
 * Memory of GPUs, and the pinned memory of the host by which it is copied. A device gets three
 * streams when its memory is first used: one for each direction, in which copies wait for nobody,
 * and the gate, in which buffers are allocated, and which waits for what others still do with their
 * memory. What was enqueued is looked at from the event loop.
 */
struct staging;

/* NULL: no memory. */
struct staging *staging_open(struct bridge *b);
void staging_close(struct staging *s);

/* What to allocate device memory with. NULL: its device cannot be used. */
void *staging_gate(struct staging *s, int ordinal);
/* Makes the device's primary context that of this thread. 0 or a negative error. */
int staging_stay(struct staging *s, int ordinal);

/* Always comes, and from the event loop or staging_settle(). */
typedef void (*staging_done)(int error, void *arg);

enum staging_way { TO_HOST, FROM_HOST };

/* Copies, when the memory of the device may be used. @owner is for the two functions below. 0 or a
 * negative error, and then @done does not come. */
int staging_copy(struct staging *s, int ordinal, enum staging_way way, void *to, const void *from,
		 uint64_t size, staging_done done, void *arg, const void *owner);
/* @done comes when everything that was allocated at the gate so far may be used. */
int staging_pass_gate(struct staging *s, int ordinal, staging_done done, void *arg,
		      const void *owner);

/* Copies a little, and waits for it. 0 or a negative error. */
int staging_fetch(struct staging *s, int ordinal, void *to, const void *from, uint64_t size);

/* Waits for the copies of an owner, and for no gate: who waits there is told of an error. */
void staging_settle(struct staging *s, const void *owner);

#define PIECE (UINT64_C(1) << 20) /* bytes of a slot */

/* A piece of pinned memory. As many are made as are in use at a time, and they are used again. */
struct slot;
/* NULL: no memory. It is not pinned if the system does not let it be, which makes it slower. */
struct slot *staging_take(struct staging *s, int ordinal);
void staging_give(struct staging *s, struct slot *slot);
void *slot_memory(struct slot *slot);
