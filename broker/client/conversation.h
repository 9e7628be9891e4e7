/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the conversation with a client begins, what the broker says in it, and how it ends. */

struct broker;
struct client;
struct closing;
struct wire_message;

/* Makes a client of the peer, or tells the peer why it is refused. Takes @socket and @closing over
 * in either case. @closing: NULL when nothing but bytes can come in. */
void client_accept(struct broker *b, int socket, struct closing *closing);

/* Gives the client a time limit for becoming ready. 0, or -1 without memory. */
int client_limit_handshake(struct client *c);
/* The client says what it is for. False, and hung up on, when it was let in as an operator's
 * alone and is for something else. */
bool client_greets_as(struct client *c, bool operator);

/* Ends the connection. @why is NULL when the peer has hung up; else the peer is told of it with
 * @error, and the log as well. */
void client_hang_up(struct client *c, int error, const char *why);
/* The same, as another client has asked for it. */
void client_drop(struct client *c, const struct client *by);
/* Ends the connection, which has failed with this negative errno. */
void client_lose(struct client *c, int error);
/* The client has said goodbye. It is answered once everything that it holds is released. */
void client_goodbye(struct client *c, uint32_t serial);
/* Frees the client and all that it holds, as the broker ends. */
void client_discard(struct client *c);

/*
 * Sends a message. Never blocks; what the socket does not take is queued and charged. A client
 * whose queue exceeds its account is dropped (later, from the loop: @c stays valid).
 */
void client_send(struct client *c, const struct wire_message *m, const int *fds, size_t n_fds);
/* The same for what can wait: false when it did not go out, for whatever reason. */
bool client_offer(struct client *c, const struct wire_message *m, const int *fds, size_t n_fds);
/* Whether an unasked message would go out at once. */
bool client_keeps_up(const struct client *c);

/* Lets requests of the client come with descriptors from now on. 0 or -ENOMEM. */
int client_let_bring(struct client *c);
