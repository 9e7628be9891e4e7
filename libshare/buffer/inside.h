/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_BUFFER_INSIDE_H
#define LIBSHARE_BUFFER_INSIDE_H

#include <share/tensor.h>

#include "libshare/buffer/buffer.h"
#include "libshare/buffer/segment.h"
#include "libshare/buffer/uses.h"
#include "libshare/client/dispatch.h"
#include "libshare/client/operation.h"
#include "libshare/client/rpc.h"
#include "libshare/program/struct.h"

/* What the files of this room know of each other. */

struct magazine;

/* segments.c: the segments of this process. */
struct segments {
	pthread_mutex_t lock; /* taken after all others */
	struct segment **all; /* by the low half of their identifier */
	uint32_t room;
	LIST_HEAD(, segment) retired; /* to be unmapped when nobody is delivering */
	TAILQ_HEAD(, segment) ahead;  /* those that came before they were needed, oldest first */
	uint32_t n_ahead, ahead_max;  /* that may wait to be mapped */
	uint64_t arrived;             /* descriptors, ever */
};

/* magazines.c: the blocks that are kept back. */
struct magazines {
	bool wanted;          /* it has magazines at all */
	pthread_mutex_t lock; /* over the list; no other lock is taken under it */
	LIST_HEAD(, magazine) list;
	struct task trim;              /* so that share_dispatch() is called when memory is short */
	atomic_uint_fast64_t answered; /* the last TRIM that was seen to */
};

/* give_back.c: buffers that were given up, but others' fences are to be reached before the broker
 * may know. */
struct cooling {
	struct share_buffer *first;
	atomic_uint n;
};

/* Who waits until no message has a buffer any more. Under the client's lock. */
struct message_wait {
	LIST_ENTRY(message_wait) link;
	share_buffer *buffer;
	bool waits;
	/* None has, or the broker is lost. It does not wait any more. */
	void (*over)(struct message_wait *w);
};
struct awaited {
	LIST_HEAD(, message_wait) list; /* those who do not sleep meanwhile */
	atomic_uint n;                  /* all of them; changed under the client's lock */
};

/* What of a client is this room's. */
struct buffers {
	struct magazines magazines;
	struct awaited awaited;
	bool dumps_mine;           /* see segment_dump() */
	atomic_bool brings;        /* the broker lets in descriptors: see share_adopt() */
	pthread_mutex_t uses_lock; /* see buffers_lock_uses(); taken before the client's lock */
	struct cooling cooling;    /* under the same */
	atomic_bool ending;        /* what is released goes back to the broker at once */
};

struct share_pool {
	struct handle handle;
	share_client *client;
	uint64_t id;
	const struct memory_kind *kind; /* NULL: one this library does not know */
	share_pool_info info;
	char *name, *device, *reason; /* that `info` points to */
	struct magazine *magazine;    /* NULL: the program wants none */
};
HANDLES_OF(share_pool, pool, HANDLE_POOL);

int mode_check(int mode);

/* adopt.c. The pool, the size and the options have been looked at; the answer is a handle to
 * give. */
int buffer_adopt(share_pool *p, uint64_t size, const share_alloc_options *o, void *stream,
		 share_buffer **out);

/*
 * grant.c. Makes a handle of a grant and orders @stream after what the grant has to wait for. Gives
 * the reference back on failure. A giver's death is an error; that of former users is as good as
 * their being done.
 */
int buffer_from_grant(share_client *c, const struct wire_grant *m, void *stream, int timeout_ms,
		      share_buffer **out);
/* The same without waiting for anything; the fences are for the caller to wait for. */
int buffer_from_grant_unordered(share_client *c, const struct wire_grant *m, share_buffer **out);
/* What a grant has to come after, held: the giver's fence goes into @b (and is an error, if it is
 * dead); those of others who use the memory need fences_deinit(), on failure as well. */
int buffer_hold_giver(share_client *c, const struct wire_grant *m, share_buffer *b);
int buffer_hold_users(share_client *c, const struct wire_grant *m, struct fences *out);
/* Gives the only reference to a handle up that nothing was done with yet. */
void buffer_drop(share_buffer *b);
/* One RELEASE. */
int buffer_send_release(share_client *c, uint64_t id, uint32_t count, const share_fence *fence);
/* The handle is nobody's any more. Neither the broker nor the client's references know. */
void buffer_free(share_buffer *b);

/* This client has allocated it, in a block of its size: counted until it goes back. */
void buffer_is_ours(share_buffer *b);

/* give_back.c. To the broker, by its last holder; what is not over yet is told, or waited for in
 * `cooling`. */
int buffer_give_back(share_buffer *b);
/* Gives back those in `cooling` whose fences are reached; @all: whether or not. */
void buffers_cooled(share_client *c, bool all);
/* The same as a chore: calls no driver, and does not wait for the lock. False: some are left. */
bool buffers_cooled_meanwhile(share_client *c);

/* release.c. One reference less, of somebody who has done nothing with it or has noted it. */
int buffer_let_go(share_buffer *b);
/* Others get to know it: what they are given comes after @out, which is behind the work on @stream
 * and behind what that has to come after. */
int buffer_make_known(share_buffer *b, void *stream, share_fence *out);

/* messages.c. How many messages are in flight with it. */
unsigned messages_in_flight(share_buffer *b);
/* Waits until none is: 0 or an error. */
int messages_wait(share_buffer *b, int64_t deadline);
/* These three are called with the client's lock held. True: some are, and over() will be called. */
bool messages_wait_locked(struct message_wait *w);
void messages_stop_locked(struct message_wait *w);
/* The broker is lost: those who wait for messages need not. */
void messages_lose_broker(share_client *c);

/* import.c. Maps it and makes it reachable for the calling thread: 0 or an error. */
int segment_import(share_client *c, struct segment *s, bool writable,
		   struct memory_mapping **mapping);
/* The same, if what it takes is here: 1, 0 when it is not, or an error. */
int segment_import_if_here(share_client *c, struct segment *s, bool writable,
			   struct memory_mapping **mapping);
/* The same in the mode that it came in, as its descriptors say. */
void segment_import_as_it_came(share_client *c, struct segment *s);

/* segment.c. With the lock of the table held: the one with this identifier, or NULL. */
struct segment *segments_at(struct segments *t, uint64_t id);
/* The same: it is needed, or gone. */
void segments_not_ahead(struct segments *t, struct segment *s);
/* segment_put() for who may hold the client's lock: it is unmapped later. */
void segment_put_soon(share_client *c, struct segment *s);
/* Maps what came ahead, where there is more of it than may wait. */
void segments_map_ahead(share_client *c);
/* Of one that has arrived; false: it has not. */
bool segment_get_recipe(share_client *c, uint64_t id, struct memory_recipe *out);
/* From now on what comes ahead is mapped when it comes. Says how many descriptors have come. */
uint64_t segments_want_ahead(share_client *c);
/* Maps what has come of a pool, all of it that can be, and makes it reachable for the calling
 * thread: 0, or the last error. */
int segments_map(share_client *c, uint64_t pool, bool writable);
/* What this client has allocated of a pool. */
void segments_count(share_client *c, uint64_t pool, uint64_t *bytes, uint64_t *blocks);

/* ------------------------------------------------------------------------------------------- */
/* tensor.c                                                                                    */

/* A valid tensor that fits into @size bytes; SHARE_EINVAL otherwise. */
int tensor_check_fits(const share_tensor *t, uint64_t size);
/* These two are for the caller's, of whatever size, and for our own. */
int tensor_read(const share_tensor *from, share_tensor *out);
int tensor_extent(const share_tensor *t, uint64_t *out);

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

/* Asks, once the operation is there. With the client's lock held, which it lets go of. */
int lookup_ask_unlocking(struct lookup *l, struct wire_message *m);

/* As operation_kind has them. */
int lookup_proceed(share_operation *o);
int lookup_wait(share_operation *o, int timeout_ms);
void lookup_drop(share_operation *o);
void lookup_recall_unlocking(share_operation *o);

#endif
