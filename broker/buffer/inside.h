/* SPDX-License-Identifier: MIT */
#pragma once

/* What the files of this room alone know of each other. */

struct account;
struct broker;
struct buffer;
struct buffers;
struct client;
struct table;

/* Gives up a reference, and frees the buffer with the last one. @by is the account that has let it
 * go, NULL if it may be anybody's; @client is named as who has done so, or NULL. */
void buffer_drop(struct broker *b, struct buffer *buffer, const struct account *by,
		 const struct client *client);

/* lease.c */
void leases_init(struct buffers *all);

/* reclaim.c */
void reclaims_init(struct table *t);
/* The following are for a buffer that requests wait for (buffer->is_awaited). */
/* Called when somebody has given up something of it: a RECLAIM that is due is answered soon. */
void reclaim_look(struct broker *b, struct buffer *buffer);
/* Called when the client has given up its lease: what it waits for will not come. */
void reclaim_give_up(struct buffer *buffer, const struct client *client);
