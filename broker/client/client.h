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
#include "broker/memory/fence.h"
#include "broker/memory/trim.h"
#include "wire/wire.h"

struct broker;
struct closing;
struct connection;
struct event_lease;
struct lease;
struct member;
struct name;
struct open_pool;
struct park;
struct scrub;
struct stake;
struct token;
struct unfinished;
struct wait;
struct watch;

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

struct client {
	struct broker *broker;
	uint32_t slot;
	uint64_t id;
	enum client_state state;
	struct peer peer;
	uint32_t version;      /* of the protocol, that both sides speak */
	bool beyond_limit;     /* an administrator's, for an operator alone */
	enum limit_kind lacks; /* what it is beyond */
	bool drained;          /* its process is dead: nothing is sent to it any more */
	char label[64];
	struct account *account;
	struct charge charge, charge_descriptors; /* the connection */
	struct connection *connection;            /* NULL once it has ended */
	struct unfinished *unfinished;            /* a request that takes more than a turn */
	struct turn death;                        /* of the process */
	struct event *timer; /* handshake limit, then the rest of a long release */
	uint32_t goodbye;    /* serial of BYE, to be answered when all is released */
	struct timelines *timelines;

	uint8_t *segments; /* enum segment_possession by segment index */
	uint32_t n_segments;
	uint32_t n_asked;   /* segments it was asked to unmap and has not yet */
	uint32_t n_overdue; /* messages since it last did */
	struct trim trim;
	uint8_t *pages; /* whether it has the timeline page of the client in this slot */
	uint32_t n_pages;

	TAILQ_ENTRY(client) ending; /* in the broker, while ENDING */
	struct holdings holds;
	struct holdings held;   /* when its connection ended */
	bool quarantine_told;   /* to the log */
	struct log_rate hidden; /* what was answered as if it were not there */
	LIST_HEAD(, lease) leases;
	LIST_HEAD(, stake) stakes; /* the same, by pool */
	LIST_HEAD(, open_pool) pools;
	LIST_HEAD(, name) names; /* that go with it */
	LIST_HEAD(, token) tokens;
	LIST_HEAD(, wait) waits;
	LIST_HEAD(, watch) watches;
	LIST_HEAD(, park) parked;
	LIST_HEAD(, scrub) scrubs;
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

/* By segment index: what it has of it. NULL without memory. */
uint8_t *client_possession(struct client *c, uint32_t segment);
void client_ask_to_unmap(struct client *c, uint64_t segment);
/* Whether the timeline page of the client in @slot was sent to it. */
bool client_has_page(const struct client *c, uint32_t slot);
int client_reserve_page(struct client *c, uint32_t slot); /* 0 or -ENOMEM */
void client_set_page(struct client *c, uint32_t slot);    /* after reserving */
/* It is told of a fence on that page, and may ask for it. False without memory. */
bool client_let_ask(struct client *c, uint32_t slot);
/* Whether a fence of @owner can have come to it: so, by their user, or as both have a pool open. */
bool client_may_ask(const struct client *c, const struct client *owner);

int client_add_lease(struct client *c, struct lease *lease); /* 0 or -ENOMEM */
void client_remove_lease(struct client *c, struct lease *lease);

/* One open pool handle; a client may open a pool several times. */
struct open_pool {
	LIST_ENTRY(open_pool) link;
	struct pool *pool;
	uint64_t count;
	bool asks;  /* for memory of it, or has */
	bool keeps; /* blocks, without using them: WIRE_ALLOC_KEEPS */
};
struct open_pool *client_find_pool(const struct client *c, uint64_t id);
int client_open_pool(struct client *c, struct pool *pool); /* 0 or -ENOMEM */
void client_close_pool(struct client *c, struct open_pool *open);

/*
 * Sends a message. Never blocks; what the socket does not take is queued and charged. A client
 * whose queue exceeds its account is dropped (later, from the loop: @c stays valid).
 */
void client_send(struct client *c, const struct wire_message *m, const int *fds, size_t n_fds);
/* The same for what can wait: false when it did not go out, for whatever reason. */
bool client_offer(struct client *c, const struct wire_message *m, const int *fds, size_t n_fds);
/* Whether an unasked message would go out at once. */
bool client_keeps_up(const struct client *c);
/* It does again. */
void client_caught_up(struct client *c);

#endif
