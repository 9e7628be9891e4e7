/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/* What two bridges send each other before content. */

#define DATA_SECRET 16
#define DATA_MORE   256 /* bytes that can go with a header */

/* A message has a frame for each of its buffers, of which the first has the beginning of its data
 * as well, and one for the rest of the data, which comes last. They are alike but for their
 * `part`. A peer that has not said that it takes parts is sent messages of one frame alone. */
#define DATA_BUFFERS 32
#define DATA_PARTS   (DATA_BUFFERS + 1)
#define DATA_REST    (65535 - DATA_MORE) /* bytes */

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
	uint64_t size; /* of the memory that comes with it, or of all its pieces; it may be 0 */
	int32_t status;
	uint32_t flags; /* enum data_flags */
	uint32_t n_more;
	uint32_t deliveries;
	uint64_t number; /* of a content in pieces, and in DATA_PIECE and DATA_GO */
	union {
		uint64_t offset; /* of a piece */
		struct {
			uint32_t part;  /* of a message: which of its frames this is, from 0 */
			uint32_t parts; /* so many it has; 0: this one */
		};
	};
	unsigned char more[DATA_MORE]; /* n_more bytes of it travel */
};

enum data_flags {
	DATA_HAS_BUFFER = 1 << 0, /* if of no bytes */
	DATA_IN_PIECES = 1 << 1,  /* the memory comes later */
};
