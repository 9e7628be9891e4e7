/* SPDX-License-Identifier: MIT */

/* The table is searched from the start for a free slot: it has some thousands of objects at most,
 * and each of them costs a call of the driver, which takes longer. */

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/handles.h"

struct handle_slot {
	uint64_t handle; /* the number of the handle in its upper half, the slot in its lower one */
	void *object;    /* NULL: the slot is free */
	bool is_known;
};

static struct handle_slot *free_slot(struct handles *h)
{
	uint32_t before = h->n_slots, grown = before ? 2 * before : 16;
	struct handle_slot *slots;

	for (uint32_t i = 0; i < before; i++)
		if (!h->slots[i].object)
			return &h->slots[i];
	slots = realloc(h->slots, grown * sizeof(*slots));
	if (!slots)
		return NULL;
	for (uint32_t i = before; i < grown; i++)
		slots[i] = (struct handle_slot){0};
	h->slots = slots;
	h->n_slots = grown;
	return &slots[before];
}

int handles_add(struct handles *h, void *object, uint64_t *out)
{
	struct handle_slot *slot = free_slot(h);

	if (!slot)
		return -ENOMEM;
	/* The first number is random, so that a handle which an earlier process of this agent gave
	 * out finds nothing here. */
	if (h->n_given == 0 && getrandom(&h->n_given, sizeof(h->n_given), 0) < 0)
		h->n_given = (uint32_t)getpid();
	slot->object = object;
	slot->is_known = false;
	slot->handle = (uint64_t)++h->n_given << 32 | (uint64_t)(slot - h->slots);
	*out = slot->handle;
	return 0;
}

void *handles_find(const struct handles *h, uint64_t handle)
{
	uint32_t index = (uint32_t)handle;

	if (index >= h->n_slots || h->slots[index].handle != handle)
		return NULL;
	return h->slots[index].object;
}

void *handles_take(struct handles *h, uint64_t handle)
{
	void *object = handles_find(h, handle);

	if (object)
		h->slots[(uint32_t)handle].object = NULL;
	return object;
}

void handles_mark(struct handles *h, uint64_t handle)
{
	if (handles_find(h, handle))
		h->slots[(uint32_t)handle].is_known = true;
}

void *handles_take_unknown(struct handles *h)
{
	for (uint32_t i = 0; i < h->n_slots; i++) {
		struct handle_slot *slot = &h->slots[i];
		void *object = slot->object;

		if (!object || slot->is_known)
			continue;
		slot->object = NULL;
		return object;
	}
	for (uint32_t i = 0; i < h->n_slots; i++)
		h->slots[i].is_known = false;
	return NULL;
}
