/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_CLIENT_CLIENT_H
#define LIBSHARE_CLIENT_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include <share/share.h>

#include "libshare/client/error.h"
#include "libshare/client/handle.h"
#include "pages/timeline.h"
#include "wire/packet.h"
#include "wire/wire.h"

struct call;
struct embedded;
struct gpu_late;
struct gpu_order;
struct magazine;
struct peer_page;
struct segment;

/* Something that share_dispatch() has to run, in one thread, with the lock not held. */
struct event {
	TAILQ_ENTRY(event) link;
	bool queued;    /* this and the next under the lock */
	uint64_t order; /* of being queued */
	/* Owns the event. Called and left with the lock held, given up for the callback. */
	void (*run)(share_client *c, struct event *e);
	/* Drops the event unseen; NULL: free(). */
	void (*discard)(share_client *c, struct event *e);
};

struct stats {
	atomic_uint_fast64_t signals, waits, waits_saved, host_signals, host_waits;
};

/*
 * The client. `lock` guards everything below it. At most one thread reads from the socket at a
 * time, without the lock, and delivers what it reads to whom it is for; the others wait for
 * `arrived`.
 */
struct share_client {
	struct handle handle;
	atomic_uint refs; /* the application's and one a handle */
	uint32_t *guard;  /* in a page that is wiped in a forked child */
	int socket;
	uint32_t version; /* of the protocol, that both sides speak */
	char *address;
	struct embedded *embedded;
	uint64_t page_id;           /* of its own timelines */
	struct timeline_page *page; /* writable */

	pthread_mutex_t lock;
	pthread_cond_t arrived;
	bool reading;
	bool lost;
	int lost_error; /* what the broker said why, or 0 */
	char lost_detail[256];
	uint32_t last_serial;
	LIST_HEAD(, call) calls;
	struct wire_message *later; /* to be sent when nobody is delivering */
	size_t n_later;
	bool sending_later;

	int epoll; /* -1 until somebody asks for share_get_fd() */
	int wakeup;
	TAILQ_HEAD(, event) events;
	uint64_t n_events; /* ever queued */
	LIST_HEAD(, share_watch) watches;
	LIST_HEAD(, share_operation) operations;
	LIST_HEAD(, share_channel) channels; /* that are told who comes */

	struct segment **segments; /* by the low half of their identifier */
	uint32_t n_segments;
	LIST_HEAD(, segment) retired; /* to be unmapped when nobody is delivering */
	TAILQ_HEAD(, segment) ahead;  /* those that came before they were needed, oldest first */
	uint32_t n_ahead;
	LIST_HEAD(, peer_page) peers;
	uint32_t n_peers;
	LIST_HEAD(, share_host_stream) streams;
	atomic_uint n_streams;           /* of these */
	struct gpu_order *gpu;           /* NULL until a stream of a GPU is ordered */
	_Atomic(struct gpu_late *) late; /* the same */
	atomic_bool unsettled; /* work may run in its memory that nothing can tell the end of */
	bool host_fences;      /* GPUs are not to be asked to signal or wait */
	bool never_block;      /* rather than waiting for them, fail */
	struct stats stats;
	LIST_HEAD(, magazine) magazines;
	bool keeps_blocks;            /* it has magazines at all */
	atomic_bool ending;           /* what is released goes back to the broker at once */
	struct share_buffer *cooling; /* given up, but others' fences are to be reached before the
				       * broker may know */
	atomic_uint n_cooling;
	LIST_HEAD(, reclaim) reclaims; /* that wait for messages */
	atomic_uint n_reclaims;        /* all of those, under the lock */
	atomic_uint_fast64_t looks;    /* that these have asked channels for */
	struct event trim;             /* so that share_dispatch() is called when memory is short */
	atomic_uint_fast64_t trimmed;  /* the last TRIM that was seen to */
	pthread_mutex_t uses;          /* over the uses of buffers that several threads hold; taken
					* before `lock` if both are */
	uint8_t slots_used[TIMELINE_SLOTS / 8];
	uint64_t slot_values[TIMELINE_SLOTS]; /* last value handed out */

	unsigned char *packet; /* of the reading thread, WIRE_PACKET_MAX bytes */
};

/* Not in a forked child, where the page reads as zeros. */
static inline bool client_is_forked(const share_client *c)
{
	return *(volatile uint32_t *)c->guard == 0;
}

/* From the program's handle to the client: 0, SHARE_EINVAL or SHARE_EFORK. */
static inline int client_resolve(share_client **c)
{
	share_client *found = handle_find(*c, HANDLE_CLIENT);

	if (!found)
		return handle_fault(*c, HANDLE_CLIENT);
	*c = found;
	return client_is_forked(found) ? fail_fork() : 0;
}

/* Of a handle that was found before. */
static inline share_client *client_of(const share_client *handle)
{
	return handle_object(handle);
}

/*
 * The same for what belongs to a client: NAME_resolve(), NAME_of(). And NAME_take(), for what gives
 * it up: NULL when there is nothing that the caller could do. Not every kind needs all of them.
 */
#define HANDLES_OF(type, name, kind)                                              \
	__attribute__((unused)) static inline type *name##_of(const type *handle) \
	{                                                                         \
		return handle_object(handle);                                     \
	}                                                                         \
	__attribute__((unused)) static inline int name##_resolve(type **handle)   \
	{                                                                         \
		type *found = handle_find(*handle, kind);                         \
                                                                                  \
		if (!found)                                                       \
			return handle_fault(*handle, kind);                       \
		*handle = found;                                                  \
		return client_is_forked(found->client) ? fail_fork() : 0;         \
	}                                                                         \
	__attribute__((unused)) static inline type *name##_take(type *handle)     \
	{                                                                         \
		type *taken = handle_take(handle, kind);                          \
                                                                                  \
		if (!taken || !client_is_forked(taken->client))                   \
			return taken;                                             \
		handle_keep(taken);                                               \
		return NULL;                                                      \
	}                                                                         \
	_Static_assert(offsetof(type, handle) == 0, "an object's handle is its address")

/* pthread_create() with all signals blocked: they are for the application's threads. */
int client_start_thread(pthread_t *out, const pthread_attr_t *attributes,
			void *(*function)(void *data), void *data);

/* One that is not connected yet, or NULL. */
share_client *client_new(void);
/* At once, whatever state it is in. */
void client_free(share_client *c);
share_client *client_ref(share_client *c);
void client_unref(share_client *c);

/* With the lock held. */
void client_mark_lost(share_client *c, const char *why);
void client_queue_event(share_client *c, struct event *e);
void client_unqueue_event(share_client *c, struct event *e);

/* Whether the broker is. Without the lock. */
bool client_is_lost(share_client *c);

/* SHARE_EDISCONNECTED with the reason. */
int client_lost(share_client *c);

/*
 * Requests. A reply's variable fields point into `packet`, so it lives as long as that.
 */
struct reply {
	struct wire_message m;
	struct fd_list fds;
	void *packet;
	unsigned char small[256];
};
void reply_done(struct reply *r);
#define _cleanup_reply_ __attribute__((cleanup(reply_done)))

/* Sends @request and waits for its answer. Returns 0 and the reply that the table of messages has
 * for it, or an error: the broker's own, with its detail. @reply may be NULL when only success
 * matters. */
int rpc(share_client *c, struct wire_message *request, struct reply *reply);

/* Sends without waiting. The caller may hold the lock or not, as said. */
int rpc_send(share_client *c, struct wire_message *m);
int rpc_send_locked(share_client *c, struct wire_message *m);

/* A request. If it has `answered`, that handles the answer, called by whoever reads it, under the
 * lock: @error is 0 and @m of the expected type, or @m is NULL. */
struct call {
	LIST_ENTRY(call) link;
	uint32_t serial;
	void (*answered)(share_client *c, struct call *call, const struct wire_message *m,
			 int error);
	bool done;
	int error;
	enum wire_type expected;
	/* of a GRANT: what it has to allow at least, and be as large as */
	uint32_t wanted_mode;
	uint64_t wanted_size;
	struct reply *reply;
	char detail[1024];
};
int rpc_start_locked(share_client *c, struct wire_message *request, struct call *call);
/* Until call->done. Returns its error, with its detail set. */
int rpc_wait_locked(share_client *c, struct call *call);
/* The same, but for 1 when there is no answer by then; the call goes on. */
int rpc_wait_until_locked(share_client *c, struct call *call, int64_t deadline);
/* The same, for what may take as long as others like, and so answers TRIM meanwhile. The caller has
 * no other lock. */
int rpc_wait_long_locked(share_client *c, struct call *call);

/* Until somebody who reads, or counts, says that something has changed; or for that long. */
void rpc_wait_arrived_locked(share_client *c, int timeout_ms);

/* For those who are called while a message is delivered, and so must not send: sends @m, which has
 * no variable fields, soon. 0 or -ENOMEM. */
int rpc_send_later_locked(share_client *c, const struct wire_message *m);
/* For those who are not: segments may have to be unmapped now, and perhaps nobody is going to read.
 * With the lock held, which is given up in between. */
void rpc_retire_locked(share_client *c);

/* Reads what is there without blocking, if nobody else is reading. With the lock held, which is
 * given up in between. */
void rpc_poll_locked(share_client *c);
void rpc_poll(share_client *c); /* without the lock */

/* The broker is lost: what it had sent before is read to the end, of which segments count.
 * Without the lock. */
void rpc_read_rest(share_client *c);

/* In watch.c and libshare/buffer/lookup.c. With the lock held, but for the last. */
void watch_name_changed(share_client *c, const struct wire_name_event *m);

/* libshare/channel/sync.c. Of a CHANNEL_MEMBERS that nobody has asked for; takes what it needs of
 * @fds. */
void channel_told_locked(share_client *c, const struct wire_channel_members *m,
			 struct fd_list *fds);
/* Those that nobody can cancel, as the application is done with the client. */
void operations_abandon(share_client *c);

#endif
