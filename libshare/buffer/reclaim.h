/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_BUFFER_RECLAIM_H
#define LIBSHARE_BUFFER_RECLAIM_H

#include "libshare/buffer/buffer.h"

/* The last message that was in flight with @b is back. */
void reclaims_look(share_buffer *b);
/* The broker is lost: those who wait for messages need not. With the lock held. */
void reclaims_lost_locked(share_client *c);

/* A message is about to be sent with @b, or it is over. Whoever has the only reference is alone. */
static inline bool buffer_is_alone(share_buffer *b)
{
	return atomic_load_explicit(&b->refs, memory_order_acquire) == 1;
}

static inline void buffer_message_sent(share_buffer *b)
{
	if (buffer_is_alone(b))
		atomic_store_explicit(&b->messages,
				      atomic_load_explicit(&b->messages, memory_order_relaxed) + 1,
				      memory_order_relaxed);
	else
		atomic_fetch_add(&b->messages, 1);
}

/* What came of it is noted: see uses_add_all(). */
static inline void buffer_message_over(share_buffer *b)
{
	if (buffer_is_alone(b))
		atomic_store_explicit(&b->messages,
				      atomic_load_explicit(&b->messages, memory_order_relaxed) - 1,
				      memory_order_relaxed);
	else if (atomic_fetch_sub(&b->messages, 1) == 1 && atomic_load(&b->client->n_reclaims) > 0)
		reclaims_look(b);
}

#endif
