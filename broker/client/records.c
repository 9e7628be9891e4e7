/* SPDX-License-Identifier: MIT */

/*
 * The records of clients. A client has one from READY on: a process that has not come so far
 * connects again when the broker has died.
 */

#include <errno.h>
#include <stdlib.h>

#include "base/beat.h"
#include "base/clock.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/inside.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/keeper/kept.h"

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

uint32_t record_user(const struct account *a)
{
	return a ? (uint32_t)account_uid(a) : RECORD_NOBODY;
}

struct account *account_of_record(struct broker *b, uint32_t uid)
{
	return uid == RECORD_NOBODY ? NULL : account_get(b->accounts, uid);
}

void record_payer(struct record *r, struct charge *charge)
{
	uint32_t uid = record_user(charge->account);

	record_u32(r, &uid);
	if (!record_reads(r) || uid == RECORD_NOBODY)
		return;
	charge->account = account_of_record(r->broker, uid);
	if (!charge->account)
		record_fail(r, -ENOMEM);
}

bool payer_charge(struct charge *charge, enum limit_kind resource, uint64_t amount)
{
	struct account *payer = charge->account;
	bool taken = !payer || charge_take(charge, payer, resource, amount);

	account_unref(payer);
	return taken;
}

/* ------------------------------------------------------------------------------------------- */
/* Clients                                                                                     */

/* This flag is in the same member of the record as the state. */
#define CLIENT_FORFEITS (1u << 31)

static void client_fields(struct record *r, void *object)
{
	struct client *c = object;
	uint32_t state = c->state | (c->end.forfeits ? CLIENT_FORFEITS : 0);

	record_u64(r, &c->id);
	record_u32(r, &c->slot);
	record_u32(r, &c->peer.uid);
	record_u32(r, &c->version);
	record_u32(r, &state);
	record_i32(r, &c->peer.pid);
	record_fd(r, &c->socket);
	record_fd(r, &c->peer.pidfd);
	record_u32(r, &c->requests.goodbye);
	record_text(r, c->label, sizeof(c->label));
	if (record_has(r, 1))
		record_flag(r, &c->brings);
	c->state = state & ~CLIENT_FORFEITS;
	c->end.forfeits = state & CLIENT_FORFEITS;
}

const struct object_kind client_kind =
    OBJECT_KIND(RECORD_CLIENT, "client", struct client, client_fields, client_attach);

void client_note(struct client *c)
{
	if (c->record || c->state == CLIENT_READY)
		object_put(c->broker->journal, &client_kind, c);
}

/* ------------------------------------------------------------------------------------------- */
/* Requests that are not answered                                                              */

/* A request as its record has it; else only the record's number is kept of it. */
struct waiting {
	TAILQ_ENTRY(waiting) link; /* in the broker's list, once it was read */
	uint64_t client, number, since_ms;
	uint32_t serial, record;
	char *packet;
	size_t size;
	char read[]; /* the packet, when the record was read */
};

static void waiting_fields(struct record *r, void *object)
{
	struct waiting *w = object;

	record_u64(r, &w->client);
	record_u64(r, &w->number);
	record_u64(r, &w->since_ms);
	record_u32(r, &w->serial);
	record_rest_of(r, w->packet ? w->packet : w->read, &w->size);
	r->order = w->number;
}

static bool add_unanswered(struct client *c, const struct waiting *w)
{
	struct unanswered *u = calloc(1, sizeof(*u));

	if (!u)
		return false;
	u->serial = w->serial;
	u->record = w->record;
	TAILQ_INSERT_TAIL(&c->requests.unanswered, u, of_client);
	return true;
}

static int waiting_attach(struct broker *b, void *object)
{
	struct waiting *w = object;

	TAILQ_INSERT_TAIL(&b->clients->waiting, w, link);
	return 0;
}

const struct object_kind waiting_kind =
    OBJECT_KIND(RECORD_WAITING, "request", struct waiting, waiting_fields, waiting_attach);

void unanswered_note(struct client *c, uint32_t serial, const void *packet, size_t size)
{
	struct waiting w = {.client = c->id,
			    .number = ++c->broker->clients->last_waiting,
			    .since_ms = clock_ms(),
			    .serial = serial,
			    .packet = (char *)(uintptr_t)packet,
			    .size = size};

	object_put(c->broker->journal, &waiting_kind, &w);
	if (!add_unanswered(c, &w))
		journal_drop(c->broker->journal, &w.record);
}

static bool ask_again(struct broker *b, struct waiting *w)
{
	struct client *c = clients_find(b->clients, w->client);

	if (!c || !c->connection)
		journal_drop(b->journal, &w->record);
	else if (add_unanswered(c, w))
		b->clients->rooms->ask_again(c, w->read, w->size, w->since_ms);
	else
		return false;
	return true;
}

int unanswered_ask_again(struct broker *b)
{
	struct waiting *w;
	bool asked = true;

	while (asked && (w = TAILQ_FIRST(&b->clients->waiting))) {
		beat();
		TAILQ_REMOVE(&b->clients->waiting, w, link);
		asked = ask_again(b, w);
		free(w);
	}
	return asked ? 0 : -ENOMEM;
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
