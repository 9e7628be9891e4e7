/* SPDX-License-Identifier: MIT */
#ifndef BROKER_BUFFER_RECLAIM_H
#define BROKER_BUFFER_RECLAIM_H

struct broker;
struct buffer;
struct client;
struct table;

void reclaims_init(struct table *t);
/* The following are for a buffer that requests wait for (buffer->is_awaited). */
/* Called when somebody has given up something of it: a RECLAIM that is due is answered soon. */
void reclaim_look(struct broker *b, struct buffer *buffer);
/* Called when the client has given up its lease: what it waits for will not come. */
void reclaim_give_up(struct buffer *buffer, const struct client *client);

#endif
