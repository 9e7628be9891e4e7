/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_CLIENT_H
#define BROKER_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "broker/client/account.h"
#include "broker/client/peer.h"
#include "broker/client/turns.h"
#include "broker/config/right.h"
#include "broker/log/log.h"
#include "wire/wire.h"

struct broker;
struct client_buffers;
struct client_memory;
struct client_names;
struct closing;
struct connection;
struct event_lease;
struct member;
struct deferred;
struct unfinished;
struct wait;

/*
 * A client is a connection of a process, and that process's leases until it is proven dead.
 *
 *   CONNECTED    nothing said yet
 *   GREETED      has its timeline page, which is not sealed yet
 *   READY        may ask for everything
 *   QUARANTINED  its connection has ended but the process lives: it may still use what it holds
 *   ENDING       the process is dead, or said goodbye: what it holds is being released
 */
enum client_state {
	CLIENT_CONNECTED,
	CLIENT_GREETED,
	CLIENT_READY,
	CLIENT_QUARANTINED,
	CLIENT_ENDING,
};

/* What it costs the broker until its process is dead, or has said goodbye: its socket, a pidfd, its
 * page of timelines, and /proc/PID/stat once a GPU of its signals fences. */
#define CLIENT_DESCRIPTORS 4

/* What its connection is charged for. */
struct admission {
	struct charge connection, descriptors;
	bool beyond_limit;     /* an administrator's, for an operator alone */
	enum limit_kind lacks; /* what it is beyond */
};

/* Requests that are not answered yet. */
struct client_requests {
	struct unfinished *unfinished; /* one that takes more than a turn */
	LIST_HEAD(, deferred) deferred;
	LIST_HEAD(, wait) waits;
	uint32_t goodbye; /* serial of BYE, to be answered when all is released */
};

/* What the log has been told, or is yet to be. */
struct client_logged {
	struct holdings held; /* when its connection ended */
	bool quarantine_told;
	struct log_rate hidden; /* what was answered as if it were not there */
};

struct client {
	struct broker *broker;
	uint32_t slot;
	uint64_t id;
	enum client_state state;
	struct peer peer;
	uint32_t version; /* of the protocol, that both sides speak */
	bool drained;     /* its process is dead: nothing is sent to it any more */
	char label[64];
	struct account *account;
	struct admission admission;
	struct connection *connection; /* NULL once it has ended */
	struct turn death;             /* of the process */
	struct event *timer;           /* handshake limit, then the rest of a long release */
	TAILQ_ENTRY(client) ending;    /* of all clients, while ENDING */
	struct client_requests requests;
	struct client_logged logged;

	/* what it has in the rooms above, which alone know what that is (struct client_rooms) */
	struct holdings holds;
	struct client_memory *memory;
	struct client_buffers *buffers;
	struct client_names *names;
	LIST_HEAD(, event_lease) events;
	LIST_HEAD(, member) members; /* of channels */
};

/* Takes @socket and @closing over, whatever happens. @closing: NULL when nothing but bytes can come
 * in. Refusals are told to the peer. */
void client_accept(struct broker *b, int socket, struct closing *closing);

/* It says what it is for. False, and hung up on, when it is beyond the limit for another use. */
bool client_greets_as(struct client *c, bool operator);

/* The connection has ended: @why is NULL when the peer hung up, else what it is told and logged. */
void client_hang_up(struct client *c, int error, const char *why);
/* The same, as another client has asked for it. */
void client_drop(struct client *c, const struct client *by);
/* It has said goodbye, and is answered once everything it holds is released. */
void client_goodbye(struct client *c, uint32_t serial);
/* The same for a connection that has failed: negative errno. */
void client_lose(struct client *c, int error);
/* At the end of the broker. */
void client_discard(struct client *c);

void client_set_state(struct client *c, enum client_state state);
const char *client_state_name(enum client_state state);

/* As lines name it: valid as long as the client. */
struct log_client client_in_log(const struct client *c);

const struct peer *client_peer(const struct client *c);
uint32_t client_slot(const struct client *c);
struct account *client_account(const struct client *c);
/* access_may() of its user, as the configuration is now. */
bool client_may(const struct client *c, enum access_right right, const struct access_object *what);
/* Whether what this user's processes are and have is for it to see, and to end. */
bool client_answers_for(const struct client *c, uid_t uid);

/*
 * Sends a message. Never blocks; what the socket does not take is queued and charged. A client
 * whose queue exceeds its account is dropped (later, from the loop: @c stays valid).
 */
void client_send(struct client *c, const struct wire_message *m, const int *fds, size_t n_fds);
/* The same for what can wait: false when it did not go out, for whatever reason. */
bool client_offer(struct client *c, const struct wire_message *m, const int *fds, size_t n_fds);
/* Whether an unasked message would go out at once. */
bool client_keeps_up(const struct client *c);

#endif
