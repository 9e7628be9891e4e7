/* SPDX-License-Identifier: MIT */

/*
 * How clients go. The connection and the process are two things: the connection may end at any
 * time, but what the process holds is released only when its pidfd proves that it is dead, or when
 * it has said goodbye.
 *
 * Ending clients queue up, and are taken apart a little each time the loop goes round: whoever held
 * a million buffers, or died together with a thousand others, must not keep the living waiting.
 * A client is freed there, never under the feet of a handler.
 */

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>
#include <share/share.h>

#include "base/descriptor.h"
#include "base/mutation.h"
#include "base/process.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/scrub.h"
#include "broker/channel/channel.h"
#include "broker/client/account.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/end.h"
#include "broker/client/park.h"
#include "broker/client/request.h"
#include "broker/client/wait.h"
#include "broker/device/ipc_event.h"
#include "broker/log/log.h"
#include "broker/memory/memory.h"
#include "broker/memory/segment.h"
#include "broker/names/name.h"
#include "broker/names/token.h"
#include "broker/names/watch.h"

/* What a turn costs at most, in leases; some 50 microseconds. */
#define TURN        128
#define CLIENT_COST 128 /* its page to poison, others' pages to update */
#define POOL_COST   64  /* gated blocks to look at, segments to retire */

static const struct timeval at_once = {0, 0};
static const struct timeval dying = {1, 0};

static bool holds_something(const struct holdings *h)
{
	return h->leases || h->names || h->tokens || h->memberships || h->events;
}

/* Some of what it holds ends with its connection; the log has all of it. */
static void close_connection(struct client *c)
{
	if (c->connection)
		c->held = c->holds;
	request_abandon(c);
	connection_free(c->connection);
	c->connection = NULL;
}

/* Some of what it gave to others, or waits for; true when that was all. */
static bool drop_hand_overs(struct client *c, int *budget)
{
	struct broker *b = c->broker;

	while (*budget > 0) {
		if (!LIST_EMPTY(&c->parked))
			park_free(LIST_FIRST(&c->parked));
		else if (!LIST_EMPTY(&c->scrubs))
			scrub_abandon(LIST_FIRST(&c->scrubs));
		else if (!LIST_EMPTY(&c->waits))
			wait_free(LIST_FIRST(&c->waits));
		else if (!LIST_EMPTY(&c->watches))
			watch_free(b, LIST_FIRST(&c->watches));
		else if (!LIST_EMPTY(&c->names))
			name_unpublish(b, LIST_FIRST(&c->names));
		else if (!LIST_EMPTY(&c->tokens))
			token_free(b, LIST_FIRST(&c->tokens));
		else
			return true;
		--*budget;
	}
	return false;
}

static bool release_leases(struct client *c, int *budget)
{
	for (; *budget > 0; --*budget) {
		struct lease *lease = LIST_FIRST(&c->leases);

		if (!lease)
			return true;
		lease_return(c->broker, lease, lease->count, &(struct fence){0});
	}
	return false;
}

/* Whoever said goodbye had finished with them. */
static bool release_events(struct client *c, int *budget)
{
	for (; *budget > 0; --*budget) {
		struct event_lease *lease = LIST_FIRST(&c->events);

		if (!lease)
			return true;
		ipc_event_return(lease, lease->count, !c->goodbye);
	}
	return false;
}

static void forget_everywhere(struct client *c)
{
	struct broker *b = c->broker;

	for (uint32_t i = 0; i < c->n_segments; i++) {
		struct segment *s = c->segments[i] ? slab_at(&b->memory->segments, i) : NULL;

		if (s)
			segment_forget_client(b, s, c);
	}
	if (!c->timelines || !c->timelines->known)
		return;
	for (uint32_t i = 0; i < b->clients->n_slots; i++)
		if (b->clients->by_slot[i] && c->slot < b->clients->by_slot[i]->n_pages)
			b->clients->by_slot[i]->pages[c->slot] = 0;
}

void client_free(struct client *c)
{
	struct broker *b = c->broker;

	close_connection(c);
	turn_end(&c->death);
	if (c->timer)
		event_free(c->timer);
	timelines_unref(c->timelines);
	peer_done(&c->peer);
	free(c->segments);
	free(c->pages);
	charge_return(&c->charge);
	charge_return(&c->charge_descriptors);
	account_unref(c->account);
	clients_remove(b->clients, c);
	free(c);
}

/* Its process can signal no more, and whoever waits for it is released. */
static void kill_timelines(struct client *c)
{
	struct broker *b = c->broker;

	if (!c->timelines || c->timelines->dead)
		return;
	timelines_kill(c->timelines, c->goodbye);
	if (c->goodbye)
		return;
	memory_page_died(b->memory, c->timelines->id);
}

/* One ending client, within the budget; true when it is gone. */
static bool take_apart(struct client *c, int *budget)
{
	struct wire_message done = {.type = WIRE_DONE, .serial = c->goodbye};

	kill_timelines(c);
	/* what is in flight must be known before it is let go */
	if (!drop_hand_overs(c, budget) || !members_end(c, budget) || !release_leases(c, budget) ||
	    !release_events(c, budget))
		return false;
	for (; !LIST_EMPTY(&c->pools); *budget -= POOL_COST) {
		if (*budget <= 0)
			return false;
		LIST_FIRST(&c->pools)->count = 1;
		client_close_pool(c, LIST_FIRST(&c->pools));
	}
	forget_everywhere(c);
	if (c->goodbye)
		client_send(c, &done, NULL, 0);
	TAILQ_REMOVE(&c->broker->clients->ending, c, ending);
	client_free(c);
	*budget -= CLIENT_COST;
	return true;
}

void client_on_reap(evutil_socket_t fd, short what, void *data)
{
	struct broker *b = data;
	struct client *c;
	int budget = TURN;

	(void)fd, (void)what;
	while (budget > 0 && (c = TAILQ_FIRST(&b->clients->ending))) {
		struct account *account = account_ref(c->account);
		uint64_t begun = turns_begin(&b->clients->turns);

		take_apart(c, &budget);
		turns_count(&b->clients->turns, account_turns(account), begun);
		account_unref(account);
	}
	/* a timer, not an active event: the loop looks at its sockets first */
	if (!TAILQ_EMPTY(&b->clients->ending))
		broker_set_timer(b, b->clients->reaper, &at_once);
}

/* Nobody can touch its memory any more. */
static void start_ending(struct client *c)
{
	struct broker *b = c->broker;

	if (c->state == CLIENT_ENDING)
		return;
	client_set_state(c, CLIENT_ENDING);
	turn_end(&c->death);
	event_del(c->timer);
	TAILQ_INSERT_TAIL(&b->clients->ending, c, ending);
	broker_set_timer(b, b->clients->reaper, &at_once);
}

void client_on_death(struct turn *turn, uint32_t events)
{
	struct client *c = (void *)((char *)turn - offsetof(struct client, death));
	struct log_client who = client_in_log(c);

	(void)events;
	/* what it said before it died still counts: "publish, then exit" has published */
	c->drained = true;
	if (c->connection)
		connection_drain(c->connection);
	close_connection(c);
	if (c->quarantine_told)
		log_quarantine_over(&who, &c->holds);
	else if (c->state != CLIENT_ENDING && holds_something(&c->held))
		log_died(&who, &c->held);
	start_ending(c);
}

static bool could_touch_memory(const struct client *c)
{
	if (!LIST_EMPTY(&c->leases) || !LIST_EMPTY(&c->events))
		return true;
	for (uint32_t i = 0; i < c->n_segments; i++)
		if (c->segments[i])
			return true;
	return false;
}

/* The connection has ended; the process perhaps not. */
static void settle(struct client *c)
{
	struct log_client who = client_in_log(c);
	int budget = TURN;

	if (!drop_hand_overs(c, &budget)) {
		broker_set_timer(c->broker, c->timer, &at_once);
		return;
	}
	if (!could_touch_memory(c) || MUTATION(drop_leases_at_hang_up)) {
		if (holds_something(&c->held))
			log_hung_up(&who, &c->held);
		start_ending(c);
		return;
	}
	if (MUTATION(poison_at_hang_up))
		kill_timelines(c);
	client_set_state(c, CLIENT_QUARANTINED);
	members_leave(c);
	broker_set_timer(c->broker, c->timer, &dying);
}

/* A dying process hangs up before it is dead, some time before if a driver takes its work down:
 * what it holds is told when it is dead. One that does not die by then is told of. */
static void tell_of_quarantine(struct client *c)
{
	struct log_client who = client_in_log(c);
	int stat = -1;
	bool exits = process_state(c->peer.pidfd, &stat) == PROCESS_EXITS;

	fd_close(stat);
	if (exits) {
		broker_set_timer(c->broker, c->timer, &dying);
		return;
	}
	log_quarantine(&who, &c->holds);
	c->quarantine_told = true;
}

void client_on_timer(evutil_socket_t fd, short what, void *data)
{
	struct client *c = data;

	(void)fd, (void)what;
	if (c->connection)
		client_hang_up(c, SHARE_EPROTO, "the handshake took too long");
	else if (c->state < CLIENT_QUARANTINED)
		settle(c);
	else if (c->state == CLIENT_QUARANTINED)
		tell_of_quarantine(c);
}

void clients_settle(struct broker *b)
{
	for (uint32_t i = 0; i < b->clients->n_slots; i++)
		if (b->clients->by_slot[i] && !b->clients->by_slot[i]->connection &&
		    b->clients->by_slot[i]->state < CLIENT_QUARANTINED)
			settle(b->clients->by_slot[i]);
}

void client_hang_up(struct client *c, int error, const char *why)
{
	struct log_client who = client_in_log(c);

	if (!c->connection)
		return;
	if (why) {
		c->broker->counters.dropped++;
		log_violation(&who, why);
		connection_farewell(connection_socket(c->connection), error, why);
	}
	close_connection(c);
	/* the rest from the loop: whoever is sending to this client may be walking its lists */
	if (c->state < CLIENT_QUARANTINED)
		broker_set_timer(c->broker, c->timer, &at_once);
}

void client_drop(struct client *c, const struct client *by)
{
	struct log_client who = client_in_log(c);
	char why[128];

	snprintf(why, sizeof(why), "uid %u has dropped this client (sharectl drop-client)",
		 (unsigned)by->peer.uid);
	log_dropped(&who, by->peer.uid);
	connection_farewell(connection_socket(c->connection), SHARE_EDISCONNECTED, why);
	client_hang_up(c, 0, NULL);
}

void client_lose(struct client *c, int error)
{
	struct log_client who = client_in_log(c);
	char why[128];

	/* what ends with the peer is not worth a line */
	if (c->connection && error != -EPIPE && error != -ECONNRESET) {
		snprintf(why, sizeof(why), "the broker cannot go on with this connection: %s",
			 strerror(-error));
		log_lost(&who, why);
		connection_farewell(connection_socket(c->connection), SHARE_ESYSTEM, why);
	}
	client_hang_up(c, 0, NULL);
}

void client_goodbye(struct client *c, uint32_t serial)
{
	c->goodbye = serial;
	start_ending(c);
}

void client_discard(struct client *c)
{
	int budget;

	close_connection(c);
	start_ending(c);
	do
		budget = TURN;
	while (!take_apart(c, &budget));
}
