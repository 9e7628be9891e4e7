/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "broker/config/config.h"
#include "broker/rights/right.h"
#include "wire/packet.h"
#include "wire/wire.h"

struct broker;
struct client;
struct deferred;

/* A message of a client while it is handled. */
struct request {
	struct broker *broker;
	struct client *client;
	const struct wire_message *m;
	uint64_t deferred_ms;   /* since when it has waited for others; 0: it has not */
	bool waits_for_agent;   /* it is being deferred until an agent has done something */
	struct deferred *again; /* what it was while it waited; NULL: it has not waited */
	/* descriptors that came with it and are not taken; NULL: it is handled again */
	struct fd_list *fds;
};

/*
 * A handler answers its request (once, now or later) and returns what the function does by which it
 * answers. It never fails: a client's mistake is an answer, and a broken rule ends that client's
 * connection.
 */
typedef bool (*request_handler)(struct request *r);

/* These answer. The first two return true and the others false, so that a check that fails is
 * answered and over in one statement. */
bool request_reply(struct request *r, struct wire_message *m, const int *fds, size_t n_fds);
bool request_done(struct request *r);
bool request_fail(struct request *r, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool request_fail_with(struct request *r, const struct failure *failure);
bool request_fail_memory(struct request *r);
/* Answers that the client's user has reached a limit, in the words of account_refuse(). */
bool request_fail_quota(struct request *r, enum limit_kind resource, const char *also);

/* Answers a request with an error when its struct request is no longer there. */
void request_reply_error(struct client *client, enum wire_type request, uint32_t serial, int error,
			 const char *detail);

/* handle_hello() and so on: one for each message to the broker, in the room that it is about. */
#define TO_BROKER_HANDLER(name) bool handle_##name(struct request *r);
#define TO_CLIENT_HANDLER(name)
#define TO_AGENT_HANDLER(name)
#define FROM_AGENT_HANDLER(name)
#define DECLARE_HANDLER(NAME, name, number, direction, ...) direction##_HANDLER(name)
WIRE_MESSAGES(DECLARE_HANDLER)
#undef DECLARE_HANDLER

/* Whether this can be a name. If not, the request is answered with an error. */
bool request_name(struct request *r, const struct wire_bytes *name);
/* Whether this user may publish something by that name (RIGHT_PUBLISH) or make a channel of that
 * name (RIGHT_CREATE). If not, the second function gives the answer: "may not @what". */
bool request_may_name(const struct request *r, enum access_right right,
		      const struct wire_bytes *name);
bool request_fail_foreign_name(struct request *r, int error, const char *what,
			       const struct wire_bytes *name);
/* Answers that a thing is not there; the same when it is there, but not for this user:
 * SHARE_ENOENT, and nothing that would tell which of the two it is. */
bool request_fail_absent(struct request *r, const char *what, const struct wire_bytes *name);
/* Logs that the thing is there, and why it is not for this user: one who is kept out by mistake
 * does not learn that from the answer. */
void request_hide(const struct request *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Answers a client that opens something with another option than it has: "depth of channel 'left'
 * is 64, not 128", and what to do about it. */
bool request_fail_unlike(struct request *r, const char *option, const char *what, const char *name,
			 const char *is, const char *wanted);
