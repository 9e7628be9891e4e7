/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

/* Segments are sent to clients. */

struct client;
struct pool;
struct segment;
struct wire_message;

/* Fills in the GRANT without a buffer that brings a segment. *fd is borrowed; -1: the client has
 * the segment already. As client_reserve_possession(): 0 or negative errno, when nothing has
 * changed; or -EACCES (segment_is_for()). Call segment_sent() once it is on its way. */
int segment_grant(struct segment *s, struct client *client, bool writable, struct wire_message *out,
		  int *fd);
void segment_sent(struct segment *s, struct client *client, bool writable);
/* Sends that unasked. 0 also when the client has the segment, may not have it, or cannot pay for
 * it: it asks for it when it needs it, and is told why not then. -EAGAIN when it could not be sent
 * now, or -ENOMEM. */
int segment_supply(struct segment *s, struct client *client, bool writable);
/* The same for all that the pool has. */
int pool_supply(struct pool *p, struct client *client, bool writable);
