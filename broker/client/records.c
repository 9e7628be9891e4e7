/* SPDX-License-Identifier: MIT */

/*
 * The records of clients. A client has one from READY on: who has not come so far connects again
 * when the broker has died.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <event2/event.h>

#include "base/beat.h"
#include "base/clock.h"
#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/client/account.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/closer.h"
#include "broker/client/connection.h"
#include "broker/client/conversation.h"
#include "broker/client/end.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/journal/record.h"
#include "broker/keeper/kept.h"
#include "wire/packet.h"
#include "wire/wire.h"

void record_client(struct record *r, struct client **c)
{
	uint64_t id = *c ? (*c)->id : 0;

	record_u64(r, &id);
	if (!record_reads(r) || id == 0)
		return;
	*c = clients_find(r->broker->clients, id);
	if (!*c)
		record_fail(r, -EBADMSG);
}

void record_fd(struct record *r, int *fd)
{
	uint32_t id = r->is_read ? 0 : kept_id(*fd);

	record_u32(r, &id);
	if (!record_reads(r))
		return;
	*fd = kept_take(id);
	if (id != 0 && *fd < 0)
		record_fail(r, -EBADMSG);
}

/* ------------------------------------------------------------------------------------------- */
/* Clients                                                                                     */

/* Beside its state. */
#define CLIENT_FORFEITS (1u << 31)

struct client_record {
	uint64_t id;
	uint32_t slot, uid, version, state;
	int32_t pid;
	uint32_t socket, pidfd; /* as the keeper has them; no socket: its connection has ended */
	uint32_t goodbye;
	char label[64];
};

void client_note(struct client *c)
{
	struct client_record r = {
	    .id = c->id,
	    .slot = c->slot,
	    .uid = (uint32_t)c->peer.uid,
	    .version = c->version,
	    .state = c->state | (c->forfeits ? CLIENT_FORFEITS : 0),
	    .pid = c->peer.pid,
	    .socket = c->connection ? kept_id(connection_socket(c->connection)) : 0,
	    .pidfd = kept_id(c->peer.pidfd),
	    .goodbye = c->requests.goodbye,
	};

	if (!c->record && c->state != CLIENT_READY)
		return;
	memcpy(r.label, c->label, sizeof(r.label));
	journal_put(c->broker->journal, RECORD_CLIENT, &c->record, &r, sizeof(r));
}

void client_forget_record(struct client *c)
{
	journal_drop(c->broker->journal, &c->record);
}

static int restore_peer(struct client *c, const struct client_record *r, int socket)
{
	/* its groups, as the kernel remembers them */
	if (socket >= 0 && peer_identify_again(socket, &c->peer) < 0)
		return -EBADMSG;
	c->peer.pid = r->pid;
	c->peer.uid = r->uid;
	c->peer.pidfd = kept_take(r->pidfd);
	return c->peer.pidfd < 0 ? -EBADMSG : 0;
}

static int charge_again(struct client *c)
{
	c->account = account_get(c->broker->accounts, c->peer.uid);
	if (!c->account ||
	    !charge_take(&c->admission.connection, c->account, LIMIT_CONNECTIONS, 1) ||
	    !charge_take(&c->admission.descriptors, c->account, LIMIT_DESCRIPTORS,
			 CLIENT_DESCRIPTORS))
		return -ENOMEM;
	return 0;
}

/* As a client of this state is. */
static int go_on(struct client *c, int socket)
{
	struct broker *b = c->broker;
	struct closing *closing = NULL;
	int r = 0;

	c->death.serve = client_on_death;
	c->timer = event_new(b->base, -1, 0, client_on_timer, c);
	if (!c->timer)
		return -ENOMEM;
	if (socket >= 0) {
		if (!packet_is_without_fds(socket)) {
			closing = closing_new(b->clients->closer);
			if (!closing)
				return -ENOMEM;
		}
		r = connection_new(c, socket, closing, &c->connection);
	}
	if (r < 0)
		return r;
	if (c->state == CLIENT_ENDING)
		client_end_again(c);
	else if (!MUTATION(deaths_unnoticed))
		r = turn_start(&b->clients->turns, account_turns(c->account), &c->death,
			       c->peer.pidfd, EPOLLIN);
	if (r == 0 && !c->connection && c->state == CLIENT_READY)
		client_outlive_connection_soon(c);
	return r;
}

static enum client_state state_of(const struct client_record *r)
{
	return r->state & ~CLIENT_FORFEITS;
}

/* Its connection is there until it ends or is quarantined. */
static bool is_client(const struct broker *b, const struct client_record *r)
{
	return r->id > 0 && r->id <= b->clients->last_id && !clients_find(b->clients, r->id) &&
	       state_of(r) >= CLIENT_READY && state_of(r) <= CLIENT_ENDING &&
	       r->version >= WIRE_VERSION_OLDEST && r->version <= WIRE_VERSION &&
	       strnlen(r->label, sizeof(r->label)) < sizeof(r->label);
}

static int restore_client(struct broker *b, uint32_t record, const struct client_record *r)
{
	int socket = kept_take(r->socket), e;
	struct client *c;

	if (!is_client(b, r) || (r->socket && socket < 0))
		return -EBADMSG;
	c = calloc(1, sizeof(*c));
	if (!c || b->clients->rooms->begin(c) < 0) {
		free(c);
		return -ENOMEM;
	}
	c->broker = b;
	TAILQ_INIT(&c->requests.unanswered);
	c->id = r->id;
	c->record = record;
	c->state = state_of(r);
	c->forfeits = r->state & CLIENT_FORFEITS;
	c->version = r->version;
	c->requests.goodbye = r->goodbye;
	memcpy(c->label, r->label, sizeof(c->label));
	e = clients_add_at(b->clients, c, r->slot);
	if (e == 0)
		e = restore_peer(c, r, socket);
	if (e == 0)
		e = charge_again(c);
	if (e == 0)
		e = b->clients->rooms->restore(c);
	if (e == 0)
		e = go_on(c, socket);
	return e;
}

static int read_client(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct client_record copy;

	(void)size;
	memcpy(&copy, bytes, sizeof(copy));
	return restore_client(data, record, &copy);
}

int clients_restore(struct broker *b)
{
	return journal_read(b->journal, RECORD_CLIENT, sizeof(struct client_record), read_client,
			    b);
}

/* ------------------------------------------------------------------------------------------- */
/* Requests that are not answered                                                              */

struct unanswered_record {
	uint64_t client, number, since_ms;
	uint32_t serial, size; /* of the packet, which follows */
};

void unanswered_note(struct client *c, uint32_t serial, const void *packet, size_t size)
{
	const struct unanswered_record r = {c->id, ++c->broker->clients->last_waiting, clock_ms(),
					    serial, (uint32_t)size};
	const struct iovec parts[] = {{(void *)(uintptr_t)&r, sizeof(r)},
				      {(void *)(uintptr_t)packet, size}};
	struct unanswered *u = calloc(1, sizeof(*u));

	if (!u)
		return;
	u->serial = serial;
	journal_put_parts(c->broker->journal, RECORD_WAITING, &u->record, parts, 2);
	TAILQ_INSERT_TAIL(&c->requests.unanswered, u, of_client);
}

static void unanswered_free(struct client *c, struct unanswered *u)
{
	journal_drop(c->broker->journal, &u->record);
	TAILQ_REMOVE(&c->requests.unanswered, u, of_client);
	free(u);
}

void unanswered_done(struct client *c, uint32_t serial)
{
	struct unanswered *u;

	TAILQ_FOREACH (u, &c->requests.unanswered, of_client) {
		if (u->serial == serial) {
			unanswered_free(c, u);
			return;
		}
	}
}

void unanswered_drop(struct client *c)
{
	while (!TAILQ_EMPTY(&c->requests.unanswered))
		unanswered_free(c, TAILQ_FIRST(&c->requests.unanswered));
}

/* Copies: to handle one changes the records. */
struct asked {
	struct unanswered_record r;
	uint32_t record;
	unsigned char *packet;
};

struct all_asked {
	struct asked *asked;
	size_t n;
};

static int find_asked(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct all_asked *all = data;
	struct asked *grown, *one;

	grown = realloc(all->asked, (all->n + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	all->asked = grown;
	one = &all->asked[all->n];
	memcpy(&one->r, bytes, sizeof(one->r));
	one->record = record;
	if (one->r.size > size - sizeof(one->r))
		return -EBADMSG;
	one->packet = malloc(one->r.size + 1);
	if (!one->packet)
		return -ENOMEM;
	memcpy(one->packet, (const unsigned char *)bytes + sizeof(one->r), one->r.size);
	all->n++;
	return 0;
}

static int compare_asked(const void *left, const void *right)
{
	const struct asked *a = left, *b = right;

	return (a->r.number > b->r.number) - (a->r.number < b->r.number);
}

static int ask_again(struct broker *b, const struct asked *a)
{
	struct client *c = clients_find(b->clients, a->r.client);
	struct unanswered *u = calloc(1, sizeof(*u));
	uint32_t record = a->record;

	if (!u)
		return -ENOMEM;
	if (!c || !c->connection) {
		journal_drop(b->journal, &record);
		free(u);
		return 0;
	}
	u->serial = a->r.serial;
	u->record = a->record;
	TAILQ_INSERT_TAIL(&c->requests.unanswered, u, of_client);
	b->clients->rooms->ask_again(c, a->packet, a->r.size, a->r.since_ms);
	return 0;
}

int unanswered_restore(struct broker *b)
{
	struct all_asked all = {.n = 0};
	int r = journal_read(b->journal, RECORD_WAITING, sizeof(struct unanswered_record),
			     find_asked, &all);

	if (all.n > 0)
		qsort(all.asked, all.n, sizeof(*all.asked), compare_asked);
	for (size_t i = 0; i < all.n; i++) {
		beat();
		if (r == 0)
			r = ask_again(b, &all.asked[i]);
		free(all.asked[i].packet);
	}
	free(all.asked);
	return r;
}
