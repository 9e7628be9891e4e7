/* SPDX-License-Identifier: MIT */
#ifndef AGENT_HANDLES_H
#define AGENT_HANDLES_H

#include <stddef.h>
#include <stdint.h>

/* Numbers for objects that the broker names later. Never 0, and never used twice. */
struct handles {
	struct handle_slot *slots;
	uint32_t n_slots;
	uint32_t n_given;
};

/* 0 or -ENOMEM. */
int handles_add(struct handles *h, void *object, uint64_t *out);

/* The object; NULL: there is no such. */
void *handles_find(const struct handles *h, uint64_t handle);

/* The object, which is not in there any more; NULL: there is no such. */
void *handles_take(struct handles *h, uint64_t handle);

#endif
