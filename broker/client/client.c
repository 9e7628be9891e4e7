/* SPDX-License-Identifier: MIT */

/*
 * Clients: what they have and may do, and how they are found. How they come is told in come.c, and
 * how they go in hang_up.c and end.c.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "base/clock.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/conversation.h"
#include "broker/client/inside.h"
#include "broker/client/records.h"

#define HANDSHAKE_SECONDS 10

static const char *const state_names[] = {
    [CLIENT_CONNECTED] = "connected",     [CLIENT_GREETED] = "greeted", [CLIENT_READY] = "ready",
    [CLIENT_QUARANTINED] = "quarantined", [CLIENT_ENDING] = "ending",
};

const char *client_state_name(enum client_state state)
{
	return state_names[state];
}

/* ------------------------------------------------------------------------------------------- */

int client_limit_handshake(struct client *c)
{
	const struct timeval limit = {HANDSHAKE_SECONDS, 0};

	c->end.ready_by_ms = clock_ms() + HANDSHAKE_SECONDS * 1000;
	return event_add(c->end.timer, &limit);
}

void client_return_admission(struct client *c)
{
	if (c->admission.connection.account)
		account_give_back(c->account, peer_size(&c->peer));
	charge_return(&c->admission.connection);
	charge_return(&c->admission.descriptors);
}

/* ------------------------------------------------------------------------------------------- */

struct log_client client_in_log(const struct client *c)
{
	return (struct log_client){c->id, c->peer.pid, c->peer.uid, c->label};
}

bool client_may(const struct client *c, enum access_right right, const struct access_object *what)
{
	const struct access_who who = {c->peer.uid, c->peer.groups, c->peer.n_groups};

	return access_may(&c->broker->config->rights, &who, right, what);
}

bool client_answers_for(const struct client *c, uid_t uid)
{
	return client_may(
	    c, RIGHT_MANAGE,
	    &(struct access_object){.kind = OBJECT_PROCESS, .is_owned = true, .owner = uid});
}

bool client_may_operate(const struct client *c)
{
	return client_may(c, RIGHT_MANAGE, &(struct access_object){.kind = OBJECT_BROKER});
}

/* ------------------------------------------------------------------------------------------- */
/* How they are found                                                                          */

#define MAX_CLIENTS (1u << 20)

static uint64_t hash(const struct table_link *link)
{
	return table_mix(((const struct client *)(const void *)link)->id);
}

static bool has_id(const struct table_link *link, const void *key)
{
	return ((const struct client *)(const void *)link)->id == *(const uint64_t *)key;
}

void clients_table_init(struct clients *all)
{
	table_init(&all->by_id, hash);
}

/* To tell so many clients what happens costs as much again as what happens. */
#define TOLD_FOR_AS_MUCH 8

int clients_turn(const struct clients *all, int most)
{
	int share = most / (1 + (int)(all->n_told / TOLD_FOR_AS_MUCH));

	return share > 0 ? share : 1;
}

int clients_add_at(struct clients *all, struct client *c, uint32_t slot)
{
	uint32_t room = all->n_slots ? all->n_slots : 64;
	struct client **by_slot;

	if (slot >= MAX_CLIENTS)
		return -EMFILE;
	while (room <= slot)
		room *= 2;
	if (room > all->n_slots) {
		by_slot = realloc(all->by_slot, room * sizeof(struct client *));
		if (!by_slot)
			return -ENOMEM;
		memset(by_slot + all->n_slots, 0, (room - all->n_slots) * sizeof(struct client *));
		all->by_slot = by_slot;
		all->n_slots = room;
	}
	if (all->by_slot[slot])
		return -EEXIST;
	all->by_slot[slot] = c;
	table_insert(&all->by_id, &c->by_id);
	all->n++;
	c->slot = slot;
	return 0;
}

int clients_add(struct clients *all, struct client *c)
{
	uint32_t slot = 0;

	while (slot < all->n_slots && all->by_slot[slot])
		slot++;
	c->id = ++all->last_id;
	return clients_add_at(all, c, slot);
}

struct client *clients_find(const struct clients *all, uint64_t id)
{
	return (struct client *)(void *)table_find(&all->by_id, table_mix(id), has_id, &id);
}

void clients_remove(struct clients *all, struct client *c)
{
	all->by_slot[c->slot] = NULL;
	table_remove(&all->by_id, &c->by_id);
	all->n--;
}
