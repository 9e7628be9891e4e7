/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_END_H
#define BROKER_CLIENT_END_H

#include <event2/util.h>
#include <stdint.h>

struct broker;
struct client;
struct turn;

/* The death of a client, by its pidfd; and what its timer calls, with the client as data. */
void client_on_death(struct turn *turn, uint32_t events);
void client_on_timer(evutil_socket_t fd, short what, void *data);

/* Releases some more of what ending clients hold; data is the broker. */
void client_on_reap(evutil_socket_t fd, short what, void *data);

/* Looks at clients whose connections have ended, as some of their timers could not be set. */
void clients_look_at_ended(struct broker *b);

/* Goes on to end a client that an earlier broker had begun to end. */
void client_end_again(struct client *c);
/* Its connection has ended, and the loop is to see what becomes of it. */
void client_outlive_connection_soon(struct client *c);

/* Returns what the client was charged for when it came. */
void client_return_admission(struct client *c);
/* Frees a client that holds nothing (any more). */
void client_free(struct client *c);

#endif
