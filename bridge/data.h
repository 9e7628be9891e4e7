/* SPDX-License-Identifier: MIT */
#ifndef BRIDGE_DATA_H
#define BRIDGE_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bridge;
struct data;
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

#define DATA_SECRET 16
#define DATA_MORE   256 /* bytes that can go with a header */

enum data_kind {
	DATA_NAME = 1, /* id: of the transfer. The version of a name that was wanted */
	DATA_MESSAGE,  /* of a channel: id is its number, `which` the channel */
	DATA_TAKEN,    /* the other way: id messages were taken, or in a queue acknowledged */
	DATA_REQUEST,  /* of a service */
	DATA_ANSWER,   /* the other way; status: 0 or a negative error */
	DATA_CANCEL,   /* nobody waits for this answer any more */
	DATA_PIECE,    /* of what came before in pieces */
	DATA_GO,       /* the other way: they may come; or, with a status, nobody wants them */
};

/* Little-endian, as every machine that UCX and CUDA run on is. */
struct data_header {
	/* The receiver has told it to this peer alone: who knows it is this peer. */
	unsigned char secret[DATA_SECRET];
	uint32_t kind; /* enum data_kind */
	uint32_t which;
	uint64_t id;
	uint64_t
	    size; /* of the memory that comes with it, or of all its pieces; there may be none */
	int32_t status;
	uint32_t flags; /* enum data_flags */
	uint32_t n_more;
	uint32_t deliveries;
	uint64_t number;               /* of a content in pieces, and in DATA_PIECE and DATA_GO */
	uint64_t offset;               /* of a piece */
	unsigned char more[DATA_MORE]; /* n_more bytes of it travel */
};

enum data_flags {
	DATA_HAS_BUFFER = 1 << 0, /* if of no bytes */
	DATA_IN_PIECES = 1 << 1,  /* the memory comes later */
};

/* Says to UCX, by the environment, what this has not said; so there may be no threads yet. */
void data_prepare(void);
int data_open(struct bridge *b);
void data_close(struct bridge *b);
/* What memory of the pool's device is allocated with (staging.h). */
void *data_gate(struct bridge *b);
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

/* @from: the memory that goes with it; NULL or without a buffer: none. The work on it is done, and
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

#endif
