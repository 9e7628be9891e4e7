/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/* Numbers by which the broker names objects of the agent in later requests. A handle is never 0,
 * and no two objects of a process ever have the same. */
struct handles {
	struct handle_slot *slots;
	uint32_t n_slots;
	uint32_t n_given;
};

/* Adds @object, which stays the caller's, and puts its handle into @out. Returns 0 or -ENOMEM. */
int handles_add(struct handles *h, void *object, uint64_t *out);

/* Returns the object with that handle, or NULL when there is none. */
void *handles_find(const struct handles *h, uint64_t handle);

/* Removes the object with that handle from the table and returns it, or NULL when there is none. */
void *handles_take(struct handles *h, uint64_t handle);

/* The object with that handle, if there is one, is known from now on. */
void handles_mark(struct handles *h, uint64_t handle);

/* Removes an object that is not known and returns it. NULL: all that there are were known, and none
 * is from now on. */
void *handles_take_unknown(struct handles *h);
