/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "base/table.h"
#include "broker/accounts/account.h"
#include "broker/client/end.h"
#include "broker/counters.h"
#include "broker/log/log.h"
#include "broker/rights/right.h"
#include "broker/socket/peer.h"

struct connection;

/* A client is a connection of a process, and that process's leases until it is proven dead. */
enum client_state {
	CLIENT_CONNECTED,   /* it has said nothing yet */
	CLIENT_GREETED,     /* it has its timeline page, which is not sealed yet */
	CLIENT_READY,       /* it may make every request */
	CLIENT_QUARANTINED, /* its connection has ended; the process lives with what it holds */
	CLIENT_ENDING, /* the process is dead, or said goodbye: what it holds is being released */
};

/* How many descriptors a client costs until its process is dead, or it has said goodbye: socket,
 * pidfd, timeline page, and /proc/PID/stat as soon as a GPU signals fences for it. */
#define CLIENT_DESCRIPTORS 4

struct admission { /* what its connection is charged for */
	struct charge connection, descriptors;
	bool for_operator;     /* an administrator's: beyond a limit, or the broker is to end */
	enum limit_kind lacks; /* the limit that it is beyond */
};

/* Requests that are not answered yet. */
struct client_requests {
	LIST_HEAD(, deferred) deferred;
	struct timed_request current; /* the one that is being handled now */
	/* all requests that are not answered, as the journal has them */
	TAILQ_HEAD(, unanswered) unanswered;
	uint32_t goodbye; /* serial of BYE, to be answered when all is released */
};

/* What the log has been told of the client, or is yet to be told. */
struct client_logged {
	struct holdings held; /* what it held when its connection ended */
	bool quarantine_told;
	struct log_rate hidden; /* answers that a thing is absent which the user may not use */
};

struct client {
	struct table_link by_id;
	struct broker *broker;
	uint32_t slot, record;
	uint64_t id;
	enum client_state state;
	struct peer peer;
	uint32_t version; /* the version of the protocol that both sides speak */
	bool brings;      /* descriptors may come with its requests: see client_let_bring() */
	char label[64];
	struct account *account;
	struct admission admission;
	struct connection *connection; /* NULL once it has ended */
	int socket;                    /* the connection's socket, or -1 */
	struct client_end end;
	struct client_requests requests;
	struct client_logged logged;
	/* what it has in the rooms above, which alone know what that is (struct client_rooms) */
	struct holdings holds;
	struct client_order *order;
	struct client_memory *memory;
	struct client_buffers *buffers;
	struct client_names *names;
	struct monitor *monitor; /* NULL: it does not ask what happens */
	LIST_HEAD(, event_lease) events;
	LIST_HEAD(, member) members; /* of channels */
};

void client_set_state(struct client *c, enum client_state state);
const char *client_state_name(enum client_state state);
/* Names the client as lines of the log do. The result is valid as long as the client is. */
struct log_client client_in_log(const struct client *c);
/* access_may() for its user, by the configuration as it is now. */
bool client_may(const struct client *c, enum access_right right, const struct access_object *what);
/* Whether the client may do what only administrators may. */
bool client_may_operate(const struct client *c);
/* Whether the client may see what processes of this user are and have, and may end them. */
bool client_answers_for(const struct client *c, uid_t uid);
