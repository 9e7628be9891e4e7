/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/buffer/buffer.h"

/* Waiting until no message in flight has a buffer any more. */

/* Who waits, and does not sleep meanwhile. Under the client's lock. */
struct message_wait {
	LIST_ENTRY(message_wait) link;
	share_buffer *buffer;
	bool waits;
	/* None has, or the broker is lost. It does not wait any more. */
	void (*over)(struct message_wait *w);
};

/* How many messages are in flight with it. */
unsigned messages_in_flight(share_buffer *b);
/* Waits until none is: 0 or an error. */
int messages_wait(share_buffer *b, int64_t deadline);
/* These two are called with the client's lock held. True: some are, and over() will be called. */
bool messages_wait_locked(struct message_wait *w);
void messages_stop_locked(struct message_wait *w);
