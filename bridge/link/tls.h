/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

struct bridge;
struct bufferevent;

/* TLS 1.3 between two who have the same key, and no certificates: who has it not gets nowhere. */
int tls_open(struct bridge *b);
void tls_close(struct bridge *b);

struct bufferevent *tls_client(struct bridge *b);
struct bufferevent *tls_server(struct bridge *b, int fd); /* takes @fd if it is not NULL */

/* Why a connection has ended. */
void tls_describe(struct bufferevent *tls, short what, char *out, size_t room);
