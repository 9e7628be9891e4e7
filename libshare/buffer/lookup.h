/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_BUFFER_LOOKUP_H
#define LIBSHARE_BUFFER_LOOKUP_H

#include "libshare/buffer/buffer.h"
#include "libshare/client/operation.h"

/* Shared by the two ways to look up. */
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

struct lookup *lookup_of(share_operation *o);

/* Asks, once the operation is there. With the lock held, which is given up in between. */
int lookup_ask_locked(struct lookup *l, struct wire_message *m);

/* As operation_kind has them. */
int lookup_proceed(share_operation *o);
int lookup_wait(share_operation *o, int timeout_ms);
void lookup_drop(share_operation *o);
void lookup_recall_locked(share_operation *o);

#endif
