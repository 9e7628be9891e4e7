/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/channel/state.h"

/* The handle of a message's buffer is a loan, until channel_retain() makes a lease of it. */
struct lent {
	share_channel *channel;
	uint64_t producer; /* member */
	uint64_t segment;
	uint32_t row, ticket, version;
	bool rejected; /* the program has rejected the message, and the loan goes on */
};
struct lent_buffer {
	share_buffer b; /* first: it is freed as one when it is an ordinary one */
	struct lent lent;
	union {
		share_buffer *handle;     /* the program's, as the only buffer of the message */
		struct lent_buffer *next; /* among those that are free */
	};
};

static inline struct lent_buffer *lent_of(share_buffer *b)
{
	return (struct lent_buffer *)(void *)b;
}
/* Makes an ordinary handle of a loan. 0 or an error. */
int channel_retain(share_buffer *b);
