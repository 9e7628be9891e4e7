/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <sys/queue.h>

#include <share/share.h>

#include "libshare/client/wait.h"
#include "libshare/handle/hazard.h"
#include "pages/timeline.h"

/*
 * The client: what this process has with one broker. Each room of the library keeps what is its own
 * of a client behind a pointer that only this room follows (libshare/client/room.h). `lock` is over
 * what the broker sends and over what is dispatched; whoever waits for either waits for `arrived`.
 */
struct share_client {
	struct handle handle;
	atomic_uint refs;           /* the application's and one a handle */
	uint32_t *guard;            /* in a page that is wiped in a forked child */
	uint32_t version;           /* of the protocol, that both sides speak */
	uint64_t page_id;           /* of its own timelines, as its broker calls them */
	uint64_t page_file;         /* timeline_file() of these */
	struct timeline_page *page; /* these, writable; unmapped by libshare/order */

	pthread_mutex_t lock;
	struct bell arrived;
	atomic_bool lost; /* the broker is gone; under the lock, but for client_is_lost() */
	struct waiters waiters;

	struct connection *connection; /* libshare/client, as the next one */
	struct dispatch *dispatch;
	struct order *order;       /* libshare/order */
	struct segments *segments; /* libshare/segment */
	struct buffers *buffers;   /* libshare/buffer */

	LIST_HEAD(, share_watch) watches;    /* libshare/handover; under the lock */
	LIST_HEAD(, share_channel) channels; /* libshare/channel; the same */
	atomic_uint_fast64_t looks; /* how often these were asked to look for what came back */
	atomic_bool brings; /* libshare/pool: the broker lets in descriptors; see share_adopt() */
};

/* Not in a forked child, where the page reads as zeros. */
static inline bool client_is_forked(const share_client *c)
{
	return *(volatile uint32_t *)c->guard == 0;
}

/* From the program's handle to the client: 0, SHARE_EINVAL or SHARE_EFORK. */
int client_find(const share_client *handle, share_client **out);
static inline int client_resolve(share_client **c)
{
	return client_find(*c, c);
}

/* The same, or SHARE_EINVAL: @out is NULL, where what is made of it goes. */
int client_resolve_for(share_client **c, const void *out);

/* Of a handle that was found before. */
static inline share_client *client_of(const share_client *handle)
{
	return handle_object(handle);
}

share_client *client_ref(share_client *c);
void client_unref(share_client *c);

/* The broker has said, or done, what ends the connection. With the lock held. */
void client_mark_lost(share_client *c, const char *why);
/* Whether it was. Without the lock. */
bool client_is_lost(share_client *c);
/* The same, and whether the socket says so, which perhaps nobody has read yet. */
bool client_sees_loss(share_client *c);
/* SHARE_EDISCONNECTED with the reason. */
int client_lost(share_client *c);
