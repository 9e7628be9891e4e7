/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_END_H
#define BROKER_CLIENT_END_H

#include <event2/util.h>

struct broker;
struct client;

/* Callbacks of a client's events, whose data is the client. */
void client_on_death(evutil_socket_t fd, short what, void *data);
void client_on_timer(evutil_socket_t fd, short what, void *data);

/* Some more of what ending clients hold; data is the broker. */
void client_on_reap(evutil_socket_t fd, short what, void *data);

/* Those whose connections have ended, and whose timers could not be set. */
void clients_settle(struct broker *b);

/* Everything of a client that holds nothing (any more). */
void client_free(struct client *c);

#endif
