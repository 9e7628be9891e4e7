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

#include <stdlib.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "base/probe.h"
#include "base/system/descriptor.h"
#include "base/system/process.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/conversation.h"
#include "broker/client/end.h"
#include "broker/client/inside.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/log/log.h"

/* What a turn costs at most, in leases; some 50 microseconds. */
#define TURN        128
#define STUCK_COST  4
#define CLIENT_COST 128 /* its page to poison, others' pages to update */

#define STUCK_MS 50 /* until what found no memory is tried again */
#define DYING_MS 1000
#define LATE_MS  1000 /* no broker that runs is that late to see a limit pass */

void client_set_state(struct client *c, enum client_state state)
{
	log_debug("client %llu (pid %d, '%s'): %s -> %s", (unsigned long long)c->id,
		  (int)c->peer.pid, c->label, client_state_name(c->state),
		  client_state_name(state));
	c->state = state;
	client_note(c);
	c->broker->clients->rooms->changed_state(c);
}

/* True when all steps were taken to their ends. */
static bool take_steps(struct client *c, client_step *const *steps, int *budget)
{
	for (; *steps; steps++)
		if (!(*steps)(c, budget))
			return false;
	return true;
}

void client_free(struct client *c)
{
	struct broker *b = c->broker;

	client_close_connection(c);
	turn_end(&c->end.death);
	broker_free_event(c->end.timer);
	b->clients->rooms->end(c);
	client_return_admission(c);
	peer_deinit(&c->peer);
	account_unref(c->account);
	journal_drop(b->journal, &c->record);
	clients_remove(b->clients, c);
	free(c);
}

/* Takes an ending client apart, as far as the budget goes. True when it is gone. */
static bool take_apart(struct client *c, int *budget)
{
	struct wire_message done = {.type = WIRE_DONE, .serial = c->requests.goodbye};
	const struct client_rooms *rooms = c->broker->clients->rooms;

	rooms->die(c);
	if (!take_steps(c, rooms->at_hang_up, budget) || !take_steps(c, rooms->at_death, budget))
		return false;
	if (c->requests.goodbye)
		client_send(c, &done, NULL, 0);
	TAILQ_REMOVE(&c->broker->clients->ending, c, end.link);
	client_free(c);
	*budget -= CLIENT_COST;
	return true;
}

void client_on_reap(evutil_socket_t fd, short what, void *data)
{
	struct broker *b = data;
	struct client *c, *stuck = NULL; /* the first one for which there is no memory */
	int budget = clients_turn(b->clients, TURN), left;
	bool gets_on = false;

	(void)fd, (void)what;
	while (budget > 0 && (c = TAILQ_FIRST(&b->clients->ending)) && c != stuck) {
		struct account *account = account_ref(c->account);
		uint64_t begun = turns_begin(&b->clients->turns);

		left = budget;
		take_apart(c, &left);
		turns_count(&b->clients->turns, account_turns(account), begun);
		account_unref(account);
		if (left != BUDGET_NO_MEMORY) {
			budget = left;
			gets_on = true;
			continue;
		}
		/* the end of another client may give memory back */
		TAILQ_REMOVE(&b->clients->ending, c, end.link);
		TAILQ_INSERT_TAIL(&b->clients->ending, c, end.link);
		budget -= STUCK_COST;
		stuck = stuck ? stuck : c;
	}
	/* a timer and not an active event, so that the loop looks at its sockets first */
	if (!TAILQ_EMPTY(&b->clients->ending))
		broker_set_timer(b, b->clients->reaper, gets_on ? 0 : STUCK_MS);
}

void client_end_again(struct client *c)
{
	TAILQ_INSERT_TAIL(&c->broker->clients->ending, c, end.link);
	broker_set_timer(c->broker, c->broker->clients->reaper, 0);
}

/* Begins to end the client, as nobody can touch its memory any more. */
static void start_ending(struct client *c)
{
	if (c->state == CLIENT_ENDING)
		return;
	client_set_state(c, CLIENT_ENDING);
	turn_end(&c->end.death);
	event_del(c->end.timer);
	client_end_again(c);
}

void client_on_death(struct turn *turn, uint32_t events)
{
	struct client *c = (void *)((char *)turn - offsetof(struct client, end.death));
	struct log_client who = client_in_log(c);

	(void)events;
	PROBE(death, c->peer.pid, c->peer.uid, c->holds.leases, c->holds.bytes);
	/* what it said before it died still counts: "publish, then exit" has published */
	c->end.drained = true;
	if (c->connection)
		connection_drain(c->connection);
	client_close_connection(c);
	if (c->logged.quarantine_told)
		log_quarantine_over(&who, &c->holds);
	else if (c->state != CLIENT_ENDING && holdings_any(&c->logged.held))
		log_died(&who, &c->logged.held);
	start_ending(c);
}

/* Goes on with a client whose connection has ended, but perhaps not its process. */
static void outlive_connection(struct client *c)
{
	const struct client_rooms *rooms = c->broker->clients->rooms;
	struct log_client who = client_in_log(c);
	int budget = clients_turn(c->broker->clients, TURN);

	if (!take_steps(c, rooms->at_hang_up, &budget)) {
		broker_set_timer(c->broker, c->end.timer, 0);
		return;
	}
	if (!rooms->may_use_memory(c) || MUTATION(drop_leases_at_hang_up)) {
		if (holdings_any(&c->logged.held))
			log_hung_up(&who, &c->logged.held);
		start_ending(c);
		return;
	}
	if (MUTATION(poison_at_hang_up))
		rooms->die(c);
	client_set_state(c, CLIENT_QUARANTINED);
	c->broker->counters.quarantined++;
	rooms->leave(c);
	broker_set_timer(c->broker, c->end.timer, DYING_MS);
}

/* A dying process hangs up before it is dead, and long before if a driver has to take its work down
 * first. The log says what it holds when it is dead. A process that is not dying by now is logged
 * as quarantined. */
static void tell_of_quarantine(struct client *c)
{
	struct log_client who = client_in_log(c);
	int stat = -1;
	bool exits = process_state(c->peer.pidfd, &stat) == PROCESS_EXITS;

	fd_close(stat);
	if (exits) {
		broker_set_timer(c->broker, c->end.timer, DYING_MS);
		return;
	}
	c->broker->counters.cut_off += c->holds.memberships;
	log_quarantine(&who, &c->holds);
	c->logged.quarantine_told = true;
}

/* A broker that was stopped meanwhile (SIGSTOP, a container that was paused) has not read what the
 * client said, so the client gets its time again. */
static void on_handshake_limit(struct client *c)
{
	if (clock_ms() < c->end.ready_by_ms + LATE_MS || client_limit_handshake(c) < 0)
		client_hang_up(c, SHARE_EPROTO, "the handshake took too long");
}

void client_on_timer(evutil_socket_t fd, short what, void *data)
{
	struct client *c = data;

	(void)fd, (void)what;
	if (c->connection)
		on_handshake_limit(c);
	else if (c->state < CLIENT_QUARANTINED)
		outlive_connection(c);
	else if (c->state == CLIENT_QUARANTINED)
		tell_of_quarantine(c);
}

void clients_look_at_ended(struct broker *b)
{
	for (uint32_t i = 0; i < b->clients->n_slots; i++)
		if (b->clients->by_slot[i] && !b->clients->by_slot[i]->connection &&
		    b->clients->by_slot[i]->state < CLIENT_QUARANTINED)
			outlive_connection(b->clients->by_slot[i]);
}

void client_goodbye(struct client *c, uint32_t serial)
{
	c->requests.goodbye = serial;
	start_ending(c);
}

void client_discard(struct client *c)
{
	int budget;

	client_close_connection(c);
	start_ending(c);
	do
		budget = TURN;
	while (!take_apart(c, &budget));
}
