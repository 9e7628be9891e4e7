/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pages/timeline.h"
#include "wire/packet.h"
#include "wire/wire.h"

/* A client without libshare: says what it likes, and shows what comes back. */
struct raw {
	int socket;
	uint32_t version;           /* of the protocol, to be set before raw_greet(); 0: this one */
	uint32_t serial;            /* last one used by raw_ask() */
	uint64_t page_id;           /* of its timelines, after raw_greet() */
	struct timeline_page *page; /* mapped for writing */
	bool numbered;              /* after WELCOME, packets are */
	uint64_t last_number;
	/* the last packet received */
	struct wire_message m;
	struct fd_list fds;
	size_t size;
	unsigned char packet[WIRE_PACKET_MAX];
};

enum raw_event { RAW_MESSAGE, RAW_END, RAW_NOTHING };

void raw_connect(struct raw *r);
/* HELLO, WELCOME, READY, DONE. */
void raw_greet(struct raw *r, const char *label);
/* Both. */
void raw_open(struct raw *r, const char *label);
/* The socket, and whatever it got. The mapping of the page stays: processes die with it. */
void raw_hang_up(struct raw *r);
void raw_close(struct raw *r);

/* 0 or negative errno; does not wait. */
int raw_send_bytes(struct raw *r, const void *data, size_t size, const int *fds, size_t n_fds);
int raw_send(struct raw *r, const struct wire_message *m);

/* What the broker sends next, waiting at most @timeout_ms. */
enum raw_event raw_receive(struct raw *r, int timeout_ms);
/* Sends, with a serial of its own, and waits for the answer, which is in @r then. */
void raw_request(struct raw *r, struct wire_message *m);
/* The same, and expects this type (or error number). */
void raw_ask(struct raw *r, struct wire_message *m, enum wire_type type);
void raw_ask_error(struct raw *r, struct wire_message *m, int error);
/* Waits for the farewell: the error it names, 0 when the broker hung up without a word. */
int raw_farewell(struct raw *r);

/* Shortcuts. Identifiers, as the broker gave them. */
uint64_t raw_pool(struct raw *r, const char *name);
uint64_t raw_alloc(struct raw *r, uint64_t pool, uint64_t size);
struct wire_bytes raw_text(const char *text);
