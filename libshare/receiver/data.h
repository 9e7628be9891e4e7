/* SPDX-License-Identifier: MIT */
#pragma once

#include <string.h>

#include "libshare/receiver/inside.h"

/* What each message that is received and given up goes through of data.c. */

/* Whoever reads the data of a message that was given up is told by AddressSanitizer. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, size)   ((void)(p), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(p, size) ((void)(p), (void)(size))
#endif

/* Bytes of a place. */
static inline size_t data_room(const struct receiver *receiver)
{
	return receiver->ch->shape.data_max;
}

/* A place more, @at the end of those that are free. False without memory. */
bool data_grow(struct receiver *receiver, struct channel_data **at);

/* Places for the data of the next messages, @n at most. How many; fewer without memory. */
static inline uint32_t data_places(struct receiver *receiver, struct ring_message *out, uint32_t n)
{
	struct channel_data **at = &receiver->free_data;
	uint32_t i;

	for (i = 0; i < n && (*at || data_grow(receiver, at)); i++, at = &(*at)->next) {
		out[i].data = (*at)->bytes;
		ASAN_UNPOISON_MEMORY_REGION((*at)->bytes, data_room(receiver));
	}
	return i;
}

/* The first of these places: the message, whose data are there, keeps it. */
static inline void data_keep(struct receiver *receiver, share_message *m)
{
	struct channel_data *d = receiver->free_data;

	receiver->free_data = d->next;
	d->receipt = m->receipt;
	d->producer = m->producer;
	m->data = d->bytes;
	m->place = d->place;
	ASAN_POISON_MEMORY_REGION(d->bytes + m->data_size, data_room(receiver) - m->data_size);
}

/* Those that no message was received for. */
static inline void data_leave(const struct receiver *receiver, const struct ring_message *m,
			      uint32_t n)
{
	(void)receiver; /* where nothing is to be told */
	for (uint32_t i = 0; i < n; i++)
		ASAN_POISON_MEMORY_REGION(m[i].data, data_room(receiver));
}

/* NULL: the message was given up. */
static inline struct channel_data *data_find(const struct receiver *receiver,
					     const share_message *m)
{
	struct channel_data *d = m->place < receiver->n_data ? receiver->data[m->place] : NULL;

	return d && d->producer == m->producer &&
		       d->receipt == (m->receipt & ~(uint64_t)RECEIPT_RETAINED)
		   ? d
		   : NULL;
}

/* The message is given up. False if it was before. */
static inline bool data_drop(struct receiver *receiver, const share_message *m)
{
	struct channel_data *d = data_find(receiver, m);

	if (!d)
		return false;
	d->producer = 0; /* no member has that number */
	ASAN_POISON_MEMORY_REGION(d->bytes, data_room(receiver));
	d->next = receiver->free_data;
	receiver->free_data = d;
	return true;
}

void data_free(struct receiver *receiver);
