/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/import.h"

/*
 * A copier makes copies between a device and host memory while its caller goes on, in a stream of
 * its own in the device's primary context. The stream waits for nobody else's work. Copies overlap
 * with what the host does only if the host memory is registered (memory_page_register()); they are
 * right in any case. A copier is for one thread at a time. Functions return 0 or a SHARE_E...
 * number and give the reason in @failure.
 */
struct memory_copier;

int memory_copier_open(int ordinal, struct memory_copier **out, struct failure *failure);
/* What is enqueued still happens. All points must have been forgotten before. NULL is allowed. */
void memory_copier_close(struct memory_copier *c);

/* Returns the CUstream. What others enqueue there happens before the copies that come later. */
void *memory_copier_stream(struct memory_copier *c);

/* Makes the primary context current in the calling thread, for as long as the thread lives. Some
 * libraries want this of their callers. */
int memory_copier_stay(struct memory_copier *c, struct failure *failure);

/* Enqueues a copy. The memory of both sides has to stay until a later point is reached. */
int memory_copier_to_host(struct memory_copier *c, void *to, const void *from, uint64_t size,
			  struct failure *failure);
int memory_copier_from_host(struct memory_copier *c, void *to, const void *from, uint64_t size,
			    struct failure *failure);

/* A point in the work of a copier. Zeroed memory is a point that was never set. */
struct memory_point {
	void *event;
};
/* Moves the point to the end of all that was enqueued so far. */
int memory_copier_set(struct memory_copier *c, struct memory_point *p, struct failure *failure);
/* Returns 0 when everything before the point is done, SHARE_EAGAIN while it is not, or an error of
 * the device. It never blocks. */
int memory_copier_reached(struct memory_copier *c, const struct memory_point *p,
			  struct failure *failure);
void memory_copier_forget(struct memory_copier *c, struct memory_point *p);
