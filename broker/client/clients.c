/* SPDX-License-Identifier: MIT */

/* All clients: the slots that they have, and what they wait in for their turn. */

#include <errno.h>
#include <stdlib.h>

#include <event2/event.h>

#include "broker/broker.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/conversation.h"
#include "broker/client/end.h"
#include "broker/client/inside.h"
#include "broker/keeper/kept.h"
#include "broker/socket/closer.h"
#include "wire/wire.h"

int clients_init(struct broker *b, const struct client_rooms *rooms)
{
	struct clients *all = b->clients;

	all->rooms = rooms;
	clients_table_init(all);
	TAILQ_INIT(&all->ending);
	TAILQ_INIT(&all->in_flight);
	TAILQ_INIT(&all->news);
	TAILQ_INIT(&all->waiting);
	TAILQ_INIT(&all->woken);
	all->reaper = event_new(b->base, -1, 0, client_on_reap, b);
	all->waker = event_new(b->base, -1, 0, rooms->on_waker, b);
	all->spare = malloc(sizeof(*all->spare) + WIRE_PACKET_MAX + WIRE_NUMBER_SIZE);
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

	broker_free_event(all->reaper);
	broker_free_event(all->waker);
	free(all->spare);
	turns_deinit(&all->turns);
	table_deinit(&all->by_id);
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
