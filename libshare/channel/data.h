/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_CHANNEL_DATA_H
#define LIBSHARE_CHANNEL_DATA_H

#include <string.h>

#include "libshare/channel/inside.h"

/* What each message that is received and given up goes through of data.c. */

/* Whoever reads the data of a message that was given up is told by AddressSanitizer. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, size)   ((void)(p), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(p, size) ((void)(p), (void)(size))
#endif

/* A place more. False without memory. */
bool data_grow(struct receiver *receiver);

/* Reserves a place, so that the next call of data_keep() does not fail. False without memory. */
static inline bool data_reserve(struct receiver *receiver)
{
	return receiver->free_data || data_grow(receiver);
}

/* Where the data of the next message go. A place is reserved. */
static inline unsigned char *data_place(struct receiver *receiver)
{
	struct channel_data *d = receiver->free_data;

	ASAN_UNPOISON_MEMORY_REGION(d->bytes, sizeof(d->bytes));
	return d->bytes;
}

/* They stay there with a message, whose size, producer and receipt are known. */
static inline void data_keep(struct receiver *receiver, share_message *m)
{
	struct channel_data *d = receiver->free_data;

	if (m->data_size == 0) {
		m->data = (const unsigned char *)"";
		m->place = UINT32_MAX;
		return;
	}
	receiver->free_data = d->next;
	d->receipt = m->receipt;
	d->producer = m->producer;
	ASAN_POISON_MEMORY_REGION(d->bytes + m->data_size, sizeof(d->bytes) - m->data_size);
	m->data = d->bytes;
	m->place = d->place;
}

/* NULL: the message was given up, or has no data. */
static inline struct channel_data *data_find(const struct receiver *receiver,
					     const share_message *m)
{
	struct channel_data *d = m->place < receiver->n_data ? receiver->data[m->place] : NULL;

	return d && d->producer == m->producer &&
		       d->receipt == (m->receipt & ~(uint64_t)RECEIPT_RETAINED)
		   ? d
		   : NULL;
}

/* The message is given up. False if it had no data, or was before. */
static inline bool data_drop(struct receiver *receiver, const share_message *m)
{
	struct channel_data *d = data_find(receiver, m);

	if (!d)
		return false;
	d->producer = 0; /* no member has that number */
	ASAN_POISON_MEMORY_REGION(d->bytes, sizeof(d->bytes));
	d->next = receiver->free_data;
	receiver->free_data = d;
	return true;
}

void data_free(struct receiver *receiver);

#endif
