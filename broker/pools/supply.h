/* SPDX-License-Identifier: MIT */
#ifndef BROKER_POOLS_SUPPLY_H
#define BROKER_POOLS_SUPPLY_H

#include <stdbool.h>

/* Segments are sent to clients. */

struct client;
struct pool;
struct segment;
struct wire_message;

/* Returns the descriptor to send so that @client can reach @s; -1 when it can. Borrowed. Call
 * segment_sent() once it is on its way. As client_reserve_possession(): 0 or negative errno, when
 * nothing has changed; or -EACCES (segment_is_for()). */
int segment_offer(struct segment *s, struct client *client, bool writable, int *borrowed);
void segment_sent(struct segment *s, struct client *client, bool writable);

/* Fills in the GRANT without a buffer that brings a segment. *fd is borrowed; -1: the client has
 * the segment already. As segment_offer(); call segment_sent() once it is on its way. */
int segment_grant(struct segment *s, struct client *client, bool writable, struct wire_message *out,
		  int *fd);
/* Sends that unasked. 0 also when the client has the segment, may not have it, or cannot pay for
 * it: it asks for it when it needs it, and is told why not then. -EAGAIN when it could not be sent
 * now, or -ENOMEM. */
int segment_supply(struct segment *s, struct client *client, bool writable);
/* The same for all that the pool has. */
int pool_supply(struct pool *p, struct client *client, bool writable);

#endif
