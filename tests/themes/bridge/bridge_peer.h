/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <openssl/ssl.h>
#include <ucp/api/ucp.h>

#include "bridge/data/header.h"
#include "tests/themes/bridge/bridge_rig.h"

#define BARE offsetof(struct data_header, more)

/* A peer that is written by hand, and says and sends what a test wants it to. */
struct peer {
	SSL_CTX *tls;
	SSL *ssl;
	int socket;
	char line[65536]; /* the last that it was told */
	unsigned char secret[DATA_SECRET];
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_address_t *address;
	size_t address_size;
	ucp_ep_h endpoint;
	unsigned heard[DATA_GO + 1]; /* by UCX, of each kind, and not asked for yet */
	unsigned pieces[4];          /* that came, of the first contents */
	bool wants_pieces;           /* as it says in its hello */
	bool takes_parts; /* the same; false: it is of an earlier version, and says nothing */
};

/* As both sides have it, unless a test changes it. */
extern unsigned char peer_key[32];
void peer_read_key(const struct sides *s);

int peer_connect_to(const char *place);
/* Whether both have the same key. */
bool peer_connect(struct peer *p, const struct sides *s);
/* As a proper peer does; then it has an endpoint, too. */
void peer_greet(struct peer *p);
void peer_close(struct peer *p);

void peer_say(struct peer *p, const char *text);
void peer_hear_word(struct peer *p, const char *word);
/* Pings are answered by nobody here. */
void peer_expect_hung_up(struct peer *p);
/* Has the bridge ask for "in/x", and says that it has so many bytes: the number of the transfer. */
uint64_t peer_offer(struct peer *p, uint64_t size);
/* By UCX: the next of this kind. */
void peer_hear_content(struct peer *p, enum data_kind kind);
void peer_send(struct peer *p, struct data_header *h, size_t n, const void *memory, size_t size);
