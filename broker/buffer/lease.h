/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/table.h"

struct broker;
struct buffer;
struct client;
struct failure;
struct fence;
struct request;

/*
 * What one client holds of one buffer. `count` is how many GRANTs it got and has not given back.
 */
struct lease {
	struct table_link key;
	struct buffer *buffer;
	TAILQ_ENTRY(lease) of_client;
	LIST_ENTRY(lease) of_buffer;
	uint32_t slot : 31; /* the client's, who keeps it as long as it has leases */
	uint32_t filed : 1; /* the table finds it */
	uint32_t count : 30;
	uint32_t mode : 2;
	uint32_t since_s; /* when its first GRANT was, counted since the broker started */
	uint32_t record;
};
#define LEASE_COUNT_MAX ((UINT32_C(1) << 30) - 1)

/* A buffer's newest leases are looked through, the others are in a table. Most buffers have only
 * one lease, and to put a million of these into a table takes time when a broker takes over. */
#define LEASES_LOOKED_THROUGH 8

/* What a client has of buffers. */
struct client_buffers {
	TAILQ_HEAD(, lease) leases; /* the oldest one first */
	LIST_HEAD(, stake) stakes;  /* their sums, by pool */
	LIST_HEAD(, scrub) scrubs;
};

/* Gives @client one more reference on @buffer. 0, or a SHARE_E... number; with @failure NULL nobody
 * is told why, and it is not in the log. */
int lease_grant(struct broker *b, struct client *client, struct buffer *buffer, uint32_t mode,
		struct lease **out, struct failure *failure);
struct lease *lease_find(struct broker *b, struct client *client, struct buffer *buffer);
struct client *lease_client(const struct lease *lease);
/* Makes a lease with no GRANT yet; no limit is looked at. Whoever gives one calls lease_note().
 * NULL without memory. */
struct lease *lease_new(struct broker *b, struct client *client, struct buffer *buffer,
			uint32_t since_s);
/* Puts the buffer's leases into the table that have to be there, so that all are found. */
void leases_file(struct broker *b, struct buffer *buffer);
/* Gives @count references back, at most lease->count, behind @fence (consumed, may be reached). */
void lease_return(struct broker *b, struct lease *lease, uint32_t count, struct fence *fence);
/* Returns some of the leases of a client that is gone; true when there are none any more. */
bool client_return_leases(struct client *c, int *budget);

/* How long the client has had this lease; and how long it has had its oldest one: -1 if it has
 * none. */
uint64_t lease_age_ms(const struct lease *lease);
int64_t client_oldest_lease_ms(const struct client *c);

/* For requests about buffers: finds the client's lease, as a client cannot name what it does not
 * hold. NULL when answered. */
struct lease *request_lease(struct request *r, uint64_t buffer);
/* Sets how many bytes of its buffer are used. False when answered: it has no room for so many. */
bool request_set_size(struct request *r, const struct lease *lease, uint64_t size);
/* Answers a client that has a lease or a loan. */
bool request_tell_metadata(struct request *r, const struct buffer *buffer);
/* Gives a buffer to the client that allocated it, now that its memory is fit for use. The reference
 * stays the caller's. */
void request_give_allocated(struct client *client, uint32_t serial, struct buffer *buffer);
