/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bridge/data/header.h"

struct bridge;
struct link;
struct reach;

/*
 * Content, by active messages of UCX: what they are for is in a header, and the memory that they
 * carry is received where the receiver says, or not at all.
 *
 * Memory of GPUs goes from where it is and to where it is going if UCX takes it (it has transports
 * of CUDA). Else it is staged: copied to pinned memory of the host, piece by piece, while the
 * pieces before are sent; and from there on the other side. Then the message has a header alone,
 * the receiver says when it has memory ("go"), and each piece is a message of its own.
 */

/* Says to UCX, by the environment, what this has not said; so there may be no threads yet. */
void data_prepare(void);
int data_open(struct bridge *b);
void data_close(struct bridge *b);
/*
 * Each connection has a worker of UCX to itself: what is left of one that was lost does not get
 * into the next one. 0 or -1.
 */
int data_begin(struct link *l);
/* Where the peer reaches it: opaque bytes. */
const void *data_address(const struct link *l, size_t *size);
/* Whether what comes has to come in pieces, if there is much of it. */
bool data_wants_pieces(const struct link *l);
int data_connect(struct link *l, const void *address, bool wants_pieces);
/* What is under way ends with an error before this returns. */
void data_end(struct link *l);

typedef void (*data_done)(int error, void *arg);

/* @from: the memory that goes with it; NULL or zeroed: none. The work on it is done, and
 * it stays as it is until @done, which always comes, perhaps before this returns. NULL: nobody has
 * to know, as the link notices by itself what is lost. */
void data_send(struct link *l, const struct data_header *h, const struct reach *from,
	       data_done done, void *arg);

/* What has come and was not received yet. */
struct parcel {
	struct data_end *from;
	void *what;
	size_t size;
	bool here;  /* it has come with the message; else it comes when it is received */
	bool kept;  /* it outlives the callback that brought it */
	bool taken; /* it is kept, or on its way */
	bool in_pieces;
	uint64_t number;
};

/* Receives all of it. It is in the memory, also in that of a device, when @done comes without an
 * error; and @done always comes, perhaps before this returns. */
void data_receive(struct parcel *p, const struct reach *to, data_done done, void *arg);
/* To receive it later, outside of the callback: then data_receive() or data_drop(), before the end
 * of the link. */
void data_keep(struct parcel *p, struct parcel *kept);
void data_drop(struct parcel *kept);
