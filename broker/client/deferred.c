/* SPDX-License-Identifier: MIT */

/*
 * Deferred requests. Handling a request again from the start needs no half-done state that somebody
 * else's end could pull the ground from: whatever has changed since is seen like anything else.
 */

#include <stdlib.h>
#include <string.h>

#include <event2/event.h>
#include <share/share.h>

#include "base/clock.h"
#include "broker/broker.h"
#include "broker/client/account.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/deferred.h"
#include "broker/client/request.h"

/* How many are handled again in a turn of the loop: some answers are reports of many pages. */
#define WAKE_TURN 64

/* What it costs to handle one again, in the bytes that are charged for it. */
#define AGAIN_BYTES 512

struct deferred {
	TAILQ_ENTRY(deferred) link;
	LIST_ENTRY(deferred) of_client;
	struct deferred_list *list;
	struct client *client;
	struct charge charge;
	uint64_t since_ms; /* 0: it has waited for nobody but agents */
	uint64_t deferred_ms;
	bool for_agent;
	struct timed_request asked;
	size_t size;
	unsigned char packet[];
};

void request_defer(struct request *r, struct deferred_list *list)
{
	struct broker *b = r->broker;
	size_t size = wire_encode(r->m, b->scratch, sizeof(b->scratch));
	struct deferred *p = size > 0 ? malloc(sizeof(*p) + size) : NULL;

	if (!p) {
		request_fail_memory(r);
		return;
	}
	p->charge = (struct charge){0};
	if (!charge_take(&p->charge, r->client->account, LIMIT_UNSENT,
			 sizeof(*p) + size + AGAIN_BYTES)) {
		free(p);
		request_fail_quota(r, LIMIT_UNSENT, ", requests that wait among them");
		return;
	}
	memcpy(p->packet, b->scratch, size);
	p->size = size;
	p->asked = r->client->requests.asked;
	p->list = list;
	p->client = r->client;
	p->deferred_ms = clock_ms();
	p->for_agent = r->waits_for_agent;
	p->since_ms = r->deferred_ms || p->for_agent ? r->deferred_ms : p->deferred_ms;
	TAILQ_INSERT_TAIL(list, p, link);
	LIST_INSERT_HEAD(&r->client->requests.deferred, p, of_client);
}

bool deferred_has(const struct deferred_list *list, const struct client *client)
{
	const struct deferred *p;

	LIST_FOREACH (p, &client->requests.deferred, of_client)
		if (p->list == list)
			return true;
	return false;
}

static void take_out(struct deferred *p)
{
	TAILQ_REMOVE(p->list, p, link);
	LIST_REMOVE(p, of_client);
	charge_return(&p->charge);
}

static void deferred_free(struct deferred *p)
{
	take_out(p);
	free(p);
}

/* What an agent takes is not of the time that it may wait for others. */
static uint64_t since(const struct deferred *p)
{
	if (!p->since_ms || !p->for_agent)
		return p->since_ms;
	return p->since_ms + (clock_ms() - p->deferred_ms);
}

void deferred_wake_first(struct broker *b, struct deferred_list *list)
{
	struct deferred *p = TAILQ_FIRST(list);
	struct wire_message m;
	struct client *client;
	uint64_t since_ms, begun;
	struct timed_request asked, other;

	if (!p)
		return;
	begun = turns_begin(&b->clients->turns);
	client = p->client;
	since_ms = since(p);
	asked = p->asked;
	if (wire_decode(&m, WIRE_TO_BROKER, p->packet, p->size, 0) != 0)
		m.type = WIRE_NOTHING;
	take_out(p);
	other = client->requests.asked;
	client->requests.asked = asked;
	if (m.type != WIRE_NOTHING)
		b->clients->rooms->handle_again(client, &m, since_ms);
	client->requests.asked = other;
	free(p);
	turns_count(&b->clients->turns, account_turns(client->account), begun);
}

/* Up to and with @last. True when it was not reached. */
static bool wake_some(struct broker *b, struct deferred_list *list, const struct deferred *last)
{
	bool more = last;

	/* clients, and so their deferred requests, never end while a handler runs */
	for (int left = WAKE_TURN; more && left > 0; left--) {
		more = TAILQ_FIRST(list) != last;
		deferred_wake_first(b, list);
	}
	return more;
}

static void wake_rest_later(struct broker *b)
{
	static const struct timeval at_once = {0, 0};

	/* a timer, not an active event: the loop looks at its sockets first */
	if (!TAILQ_EMPTY(&b->clients->woken))
		broker_set_timer(b, b->clients->waker, &at_once);
}

void request_go_on_later(struct request *r)
{
	request_defer(r, &r->broker->clients->woken);
	wake_rest_later(r->broker);
}

void deferred_on_waker(evutil_socket_t fd, short what, void *data)
{
	struct broker *b = data;

	(void)fd, (void)what;
	wake_some(b, &b->clients->woken, TAILQ_LAST(&b->clients->woken, deferred_list));
	wake_rest_later(b);
}

void deferred_wake(struct broker *b, struct deferred_list *list)
{
	struct deferred *last = TAILQ_LAST(list, deferred_list), *p = NULL;

	if (!wake_some(b, list, last))
		return;
	do {
		p = TAILQ_FIRST(list);
		TAILQ_REMOVE(list, p, link);
		p->list = &b->clients->woken;
		TAILQ_INSERT_TAIL(&b->clients->woken, p, link);
	} while (p != last);
	wake_rest_later(b);
}

static void fail(struct deferred *p, int error, const char *text)
{
	struct client *client = p->client;
	struct timed_request asked = p->asked, other = client->requests.asked;

	deferred_free(p);
	client->requests.asked = asked;
	request_reply_error(client, asked.type, asked.serial, error, text);
	client->requests.asked = other;
}

void deferred_fail_one(struct deferred_list *list, const struct deferred_id *id, int error,
		       const char *text)
{
	struct deferred *p;

	TAILQ_FOREACH (p, list, link)
		if (p->client->id == id->client && p->asked.serial == id->serial)
			break;
	if (p)
		fail(p, error, text);
}

void deferred_fail(struct deferred_list *list, int error, const char *text)
{
	while (!TAILQ_EMPTY(list))
		fail(TAILQ_FIRST(list), error, text);
}

bool client_drop_deferred(struct client *c, int *budget)
{
	for (; *budget > 0; --*budget) {
		if (LIST_EMPTY(&c->requests.deferred))
			return true;
		deferred_free(LIST_FIRST(&c->requests.deferred));
	}
	return false;
}
