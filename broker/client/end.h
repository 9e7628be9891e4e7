/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_END_H
#define BROKER_CLIENT_END_H

#include <event2/util.h>
#include <stdint.h>

struct broker;
struct client;
struct turn;

/* It is the death of a client that has come; and its timer, whose data is the client. */
void client_on_death(struct turn *turn, uint32_t events);
void client_on_timer(evutil_socket_t fd, short what, void *data);

/* Some more of what ending clients hold; data is the broker. */
void client_on_reap(evutil_socket_t fd, short what, void *data);

/* Those whose connections have ended, and whose timers could not be set. */
void clients_look_at_ended(struct broker *b);

/* Of a client that another broker had: it goes on to end. */
void client_end_again(struct client *c);
/* Its connection has ended, and the loop is to see what becomes of it. */
void client_outlive_connection_soon(struct client *c);

/* What it was charged for when it came. */
void client_return_admission(struct client *c);
/* Everything of a client that holds nothing (any more). */
void client_free(struct client *c);

#endif
