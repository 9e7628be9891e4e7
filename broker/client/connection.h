/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_CONNECTION_H
#define BROKER_CLIENT_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>

struct account;
struct broker;
struct client;
struct closing;
struct connection;
struct wire_message;

/*
 * A client's socket on the loop: packets in, packets out. While something waits to go out nothing
 * is read, so a client that does not read its replies stops being served and costs no memory.
 */

/* Takes the client's socket and @closing over when it succeeds. @closing: NULL when nothing but
 * bytes can come in. 0 or negative errno. */
int connection_new(struct client *client, struct closing *closing, struct connection **out);
/* The peer sees its end now. Descriptors that it has not received count until it has, and so does
 * the connection, which keeps its socket. */
void connection_free(struct connection *c);

/* Copies and duplicates what cannot go out at once. 0 or negative errno: -EDQUOT when the client's
 * account is full, -EPIPE when the peer is gone. */
int connection_send(struct connection *c, const struct wire_message *m, const int *fds,
		    size_t n_fds);

/* The same, only if it can go out now and leaves room for answers; else -EAGAIN, and nothing has
 * happened. */
int connection_offer(struct connection *c, const struct wire_message *m, const int *fds,
		     size_t n_fds);

/* Looks at connections that have ended before their peers had received all descriptors: when
 * some timer could not be set, and at the end of the broker. */
void connections_catch_up(struct broker *b);
void connections_end(struct broker *b);

/* Called before this user is told that it has too many connections: some of those may count no
 * more. */
void connections_look_whether_received(struct broker *b, const struct account *a);

/* What was said on all connections since the last time goes out: it counts now. */
void connections_flush(struct broker *b);
bool connections_wait_for_flush(const struct broker *b);

bool connection_is_idle(const struct connection *c);

/* Handles what has arrived and not been read yet, as the process is dead and will send no more. */
void connection_drain(struct connection *c);

/* What was said and has not gone out yet goes out as far as it can, as the connection is about to
 * end. */
void connection_send_rest(struct connection *c);
/* A last word, sent only if it can go out now. */
void connection_farewell(int socket, int error, const char *detail);

#endif
