/* SPDX-License-Identifier: MIT */
#ifndef BROKER_BUFFER_RECLAIM_H
#define BROKER_BUFFER_RECLAIM_H

struct broker;
struct buffer;
struct client;
struct table;

void reclaims_init(struct table *t);
/* Of a buffer that requests wait for (buffer->is_awaited). */
/* Somebody has given up what he had of it: a RECLAIM is answered soon if it is due. */
void reclaim_look(struct broker *b, struct buffer *buffer);
/* The client has given up its lease: what it waits for will not come. */
void reclaim_give_up(struct buffer *buffer, const struct client *client);

#endif
