/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_REQUEST_H
#define BROKER_CLIENT_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/config/config.h"
#include "broker/config/right.h"
#include "wire/packet.h"
#include "wire/wire.h"

struct broker;
struct client;

/* One message of a client, being handled. */
struct request {
	struct broker *broker;
	struct client *client;
	const struct wire_message *m;
	uint64_t parked_ms;   /* since when it has waited for others; 0: it has not */
	bool waits_for_agent; /* what it is parked for now */
};

/*
 * A handler answers its request (once, now or later) and returns. It never fails: a client's
 * mistake is an answer, and a broken rule ends that client's connection.
 */
typedef void (*request_handler)(struct request *r);

/* A packet has arrived. What handlers do not take of @fds is the caller's to close. True when the
 * client expects an answer to it, so that it probably says nothing more before it has read that. */
bool request_handle(struct client *client, const void *data, size_t size, struct fd_list *fds);

/* The same again for what was parked. */
void request_handle_again(struct client *client, const struct wire_message *m, uint64_t since_ms);

/* One that takes more than a turn (client->unfinished): the next part of it, and its answer at the
 * end. The connection takes no other request before. */
void request_go_on(struct client *client);
/* Nobody waits for it any more. There may be none. */
void request_abandon(struct client *client);

void request_reply(struct request *r, struct wire_message *m, const int *fds, size_t n_fds);
void request_done(struct request *r);
void request_fail(struct request *r, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void request_fail_memory(struct request *r);
/* The client's user has reached a limit, as account_refuse(). */
void request_fail_quota(struct request *r, enum limit_kind resource, const char *also);

/* Without a request at hand: an answer given later. */
void request_reply_error(struct client *client, uint32_t serial, int error, const char *detail);

/* broker/request/handshake.c */
void handle_hello(struct request *r);
void handle_ready(struct request *r);
void handle_ping(struct request *r);
void handle_bye(struct request *r);
void handle_timeline(struct request *r);
void handle_segment_retired(struct request *r);
/* broker/request/pool.c */
void handle_pool_open(struct request *r);
void handle_pool_create(struct request *r);
void handle_pool_close(struct request *r);
void handle_pool_destroy(struct request *r);
/* broker/request/alloc.c */
void handle_alloc(struct request *r);
/* broker/request/buffer.c */
void handle_release(struct request *r);
void handle_trimmed(struct request *r);
void handle_reclaim(struct request *r); /* in trim.c */
void handle_metadata_set(struct request *r);
void handle_metadata_get(struct request *r);
/* broker/request/name.c */
void handle_publish(struct request *r);
void handle_unpublish(struct request *r);
void handle_lookup(struct request *r);
void handle_cancel(struct request *r);
void handle_watch(struct request *r);
void handle_unwatch(struct request *r);
/* broker/request/token.c */
void handle_export(struct request *r);
void handle_import(struct request *r);
void handle_revoke(struct request *r);
/* broker/request/drop.c */
void handle_drop(struct request *r);
/* broker/request/event.c */
void handle_recipe_get(struct request *r);
void handle_event_create(struct request *r);
void handle_event_open(struct request *r);
void handle_event_release(struct request *r);
/* broker/request/channel_open.c */
void handle_channel_open(struct request *r);
/* broker/request/channel.c */
void handle_channel_ready(struct request *r);
void handle_channel_sync(struct request *r);
void handle_channel_close(struct request *r);
void handle_channel_drained(struct request *r);
void handle_channel_segment(struct request *r);
void handle_channel_retain(struct request *r);
void handle_channel_abandon(struct request *r);
void handle_channel_settle(struct request *r);
void handle_channel_afresh(struct request *r);
/* broker/reload.c */
void handle_reload(struct request *r);
/* broker/report/report.c */
void handle_query(struct request *r);

/* broker/request/alloc.c: to who allocated it, now that its memory is fit for use. The reference
 * stays the caller's. */
struct buffer;
void request_give_allocated(struct client *client, uint32_t serial, struct buffer *buffer);

/* Shared by handlers: each answers the request and returns NULL or false when it cannot be. */
struct fence;
struct lease;

/* The client's lease of this buffer: what it does not hold it cannot name. */
struct lease *request_lease(struct request *r, uint64_t buffer);
/* A fence on one of the client's own timelines; NULL timelines when @timeline is 0. */
bool request_fence(struct request *r, uint64_t timeline, uint64_t value, struct fence *out);
bool request_name(struct request *r, const struct wire_bytes *name);
/* Whether this user may publish something of that name (RIGHT_PUBLISH) or make it (RIGHT_CREATE),
 * and the answer when not: "may not @what". */
bool request_may_name(const struct request *r, enum access_right right,
		      const struct wire_bytes *name);
void request_fail_foreign_name(struct request *r, int error, const char *what,
			       const struct wire_bytes *name);
/* The answer to who asks for a thing that is not there, and the same for one that is not for this
 * user: SHARE_ENOENT, and nothing that would tell which of the two it is. */
void request_fail_absent(struct request *r, const char *what, const struct wire_bytes *name);
/* It is the latter, and @why stands in the log: who is let in by mistake has to be told by
 * somebody.
 */
void request_hide(const struct request *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The pool of that name, if it is there for this user. NULL when answered. */
struct pool;
struct pool *request_pool(struct request *r, const struct wire_bytes *name);
/* Who opens something that is there asks for an option that it does not have: "depth of channel
 * 'left' is 64, not 128", and what to do about it. */
void request_fail_unlike(struct request *r, const char *option, const char *what, const char *name,
			 const char *is, const char *wanted);

#endif
