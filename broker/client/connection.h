/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

struct account;
struct broker;
struct client;
struct closing;
struct connection;

/*
 * A client's socket on the loop: packets in, packets out. While something waits to go out nothing
 * is read, so a client that does not read its replies stops being served and costs no memory.
 */

/* Takes the client's socket and @closing over when it succeeds. @closing: NULL when nothing but
 * bytes can come in. 0 or negative errno. */
int connection_new(struct client *client, struct closing *closing, struct connection **out);
/* Ends the connection, which the peer sees now. Descriptors that the peer has not received go on
 * counting until it has; so does the connection, which keeps its socket until then. */
void connection_free(struct connection *c);

/* Looks at connections that have ended before their peers had received all descriptors: when
 * some timer could not be set, and at the end of the broker. */
void connections_catch_up(struct broker *b);
void connections_end(struct broker *b);

/* Called before this user is told that it has too many connections: some of those may count no
 * more. */
void connections_look_whether_received(struct broker *b, const struct account *a);

/* Sends what was said on all connections since the last time, as it counts from now on. */
void connections_flush(struct broker *b);

/* Handles what has arrived and not been read yet, as the process is dead and will send no more. */
void connection_drain(struct connection *c);

/* Sends what was said and has not gone out yet, as far as the socket takes it, as the connection is
 * about to end. */
void connection_send_rest(struct connection *c);
/* Sends an error as the last word on a socket, only if it can go out now. */
void connection_farewell(int socket, int error, const char *detail);
