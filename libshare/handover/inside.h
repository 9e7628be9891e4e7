/* SPDX-License-Identifier: MIT */
#pragma once

#include <share/tensor.h>

#include "libshare/buffer/buffer.h"
#include "libshare/buffer/grant.h"
#include "libshare/client/operation.h"
#include "libshare/client/rpc.h"
#include "libshare/program/struct.h"
#include "libshare/segment/segment.h"

/* What the files of this room know of each other. */

/* ------------------------------------------------------------------------------------------- */
/* tensor.c                                                                                    */

/* A valid tensor that fits into @size bytes; SHARE_EINVAL otherwise. */
int tensor_check_fits(const share_tensor *t, uint64_t size);
/* The caller's, of whatever size. */
int tensor_read(const share_tensor *from, share_tensor *out);

/*
 * What goes with a name or a token of a buffer: writes @t into @room, of SHARE_TENSOR_ENCODED_MAX
 * bytes, and has @out say where; NULL: nothing does. SHARE_ENOTSUP: the broker is too old.
 */
int tensor_for_request(share_buffer *b, const share_tensor *t, unsigned char *room,
		       struct wire_bytes *out);

/* metadata.c: 0, or @error if that is no JSON that every reader understands alike. */
int metadata_check(const char *text, size_t size, int error);

/* ------------------------------------------------------------------------------------------- */
/* name.c and lookup.c: looking a name up, at once or by and by                                */

void lookup_message(struct wire_message *m, const char *name, int mode, int timeout_ms);
/* From a handle to the client, if what is asked of it makes sense. */
int lookup_check(share_client **c, const char *name, int mode, int timeout_ms, void *stream);

/* A request that is answered with a grant, perhaps later, and what comes of that. */
struct lookup {
	share_operation operation;
	struct call call;
	share_lookup_callback callback;
	void *data;
	void *stream;

	struct wire_grant grant; /* what it has of bytes is in `copy` */
	void *copy;
	bool granted; /* and not yet turned into a buffer */
	share_buffer *buffer;
	share_buffer *reclaimed; /* its own uses are waited for, too; NULL: a look-up */
	struct fences users;     /* of the buffer, that it has to come after */
	int error;
};

/* As operation_kind.wait() has it: 1 while the giver's work runs, 0, or SHARE_EOWNERDEAD. */
int giver_wait(share_client *c, const struct held_fence *giver, int timeout_ms);
/* Asks, once the operation is there. With the client's lock held, which it lets go of. */
int lookup_ask_unlocking(struct lookup *l, struct wire_message *m);

/* As operation_kind has them. */
int lookup_proceed(share_operation *o);
int lookup_wait(share_operation *o, int timeout_ms);
void lookup_drop(share_operation *o);
void lookup_recall_unlocking(share_operation *o);
