/* SPDX-License-Identifier: MIT */

/* All clients: the slots that they have, and what they wait in for their turn. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/conversation.h"
#include "broker/client/end.h"
#include "broker/client/inside.h"
#include "broker/client/records.h"
#include "broker/keeper/kept.h"
#include "broker/socket/closer.h"

#define MAX_CLIENTS (1u << 20)

static uint64_t hash(const struct table_link *link)
{
	return table_mix(((const struct client *)(const void *)link)->id);
}

static bool has_id(const struct table_link *link, const void *key)
{
	return ((const struct client *)(const void *)link)->id == *(const uint64_t *)key;
}

int clients_init(struct broker *b, const struct client_rooms *rooms)
{
	struct clients *all = b->clients;

	all->rooms = rooms;
	table_init(&all->by_id, hash);
	TAILQ_INIT(&all->ending);
	TAILQ_INIT(&all->in_flight);
	TAILQ_INIT(&all->news);
	TAILQ_INIT(&all->waiting);
	TAILQ_INIT(&all->woken);
	all->reaper = event_new(b->base, -1, 0, client_on_reap, b);
	all->waker = event_new(b->base, -1, 0, rooms->on_waker, b);
	all->spare = queued_spare_new();
	if (!all->reaper || !all->waker || !all->spare || turns_init(&all->turns, b->base) < 0)
		return -ENOMEM;
	return closer_new(b, &all->closer);
}

void clients_end(struct broker *b)
{
	struct clients *all = b->clients;

	for (uint32_t i = 0; i < all->n_slots; i++)
		if (all->by_slot[i])
			client_discard(all->by_slot[i]);
	free(all->by_slot);
	all->by_slot = NULL;
	all->n_slots = 0;
	connections_end(b);
	kept_flush(kept_waiting());
	closer_free(all->closer);
}

void clients_deinit(struct broker *b)
{
	struct clients *all = b->clients;

	if (all->reaper)
		event_free(all->reaper);
	if (all->waker)
		event_free(all->waker);
	free(all->spare);
	turns_deinit(&all->turns);
	table_deinit(&all->by_id);
}

/* To tell so many clients what happens costs as much again as what happens. */
#define TOLD_FOR_AS_MUCH 8

int clients_turn(const struct clients *all, int most)
{
	int share = most / (1 + (int)(all->n_told / TOLD_FOR_AS_MUCH));

	return share > 0 ? share : 1;
}

void clients_catch_up(struct broker *b)
{
	event_active(b->clients->waker, EV_TIMEOUT, 0);
	connections_catch_up(b);
	clients_look_at_ended(b);
	/* before a page of a client says that the client is ending, a record that counts has to say
	 * so */
	broker_commit(b);
	event_active(b->clients->reaper, EV_TIMEOUT, 0);
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
