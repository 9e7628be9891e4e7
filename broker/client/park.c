/* SPDX-License-Identifier: MIT */

/*
 * Parked requests. Handling a request again from the start needs no half-done state that somebody
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
#include "broker/client/park.h"
#include "broker/client/request.h"

/* How many are handled again in a turn of the loop: some answers are reports of many pages. */
#define WAKE_TURN 64

/* What it costs to handle one again, in the bytes that are charged for it. */
#define AGAIN_BYTES 512

struct park {
	TAILQ_ENTRY(park) link;
	LIST_ENTRY(park) of_client;
	struct park_list *list;
	struct client *client;
	struct charge charge;
	uint64_t since_ms; /* 0: it has waited for nobody but agents */
	uint64_t parked_ms;
	bool for_agent;
	uint32_t serial;
	size_t size;
	unsigned char packet[];
};

void request_park(struct request *r, struct park_list *list)
{
	struct broker *b = r->broker;
	size_t size = wire_encode(r->m, b->scratch, sizeof(b->scratch));
	struct park *p = size > 0 ? malloc(sizeof(*p) + size) : NULL;

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
	p->serial = r->m->serial;
	p->list = list;
	p->client = r->client;
	p->parked_ms = clock_ms();
	p->for_agent = r->waits_for_agent;
	p->since_ms = r->parked_ms || p->for_agent ? r->parked_ms : p->parked_ms;
	TAILQ_INSERT_TAIL(list, p, link);
	LIST_INSERT_HEAD(&r->client->requests.parked, p, of_client);
}

bool park_has(const struct park_list *list, const struct client *client)
{
	const struct park *p;

	LIST_FOREACH (p, &client->requests.parked, of_client)
		if (p->list == list)
			return true;
	return false;
}

static void park_free(struct park *p)
{
	TAILQ_REMOVE(p->list, p, link);
	LIST_REMOVE(p, of_client);
	charge_return(&p->charge);
	free(p);
}

/* What an agent takes is not of the time that it may wait for others. */
static uint64_t since(const struct park *p)
{
	if (!p->since_ms || !p->for_agent)
		return p->since_ms;
	return p->since_ms + (clock_ms() - p->parked_ms);
}

void park_wake_first(struct broker *b, struct park_list *list)
{
	struct park *p = TAILQ_FIRST(list);
	struct wire_message m;
	struct client *client;
	uint64_t since_ms, begun;

	if (!p)
		return;
	begun = turns_begin(&b->clients->turns);
	client = p->client;
	since_ms = since(p);
	memcpy(b->packet, p->packet, p->size);
	if (wire_decode(&m, WIRE_TO_BROKER, b->packet, p->size, 0) != 0)
		m.type = WIRE_NOTHING;
	park_free(p);
	if (m.type != WIRE_NOTHING)
		b->clients->rooms->handle_again(client, &m, since_ms);
	turns_count(&b->clients->turns, account_turns(client->account), begun);
}

/* Up to and with @last. True when it was not reached. */
static bool wake_some(struct broker *b, struct park_list *list, const struct park *last)
{
	bool more = last;

	/* clients, and so their parked requests, never end while a handler runs */
	for (int left = WAKE_TURN; more && left > 0; left--) {
		more = TAILQ_FIRST(list) != last;
		park_wake_first(b, list);
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
	request_park(r, &r->broker->clients->woken);
	wake_rest_later(r->broker);
}

void park_on_waker(evutil_socket_t fd, short what, void *data)
{
	struct broker *b = data;

	(void)fd, (void)what;
	wake_some(b, &b->clients->woken, TAILQ_LAST(&b->clients->woken, park_list));
	wake_rest_later(b);
}

void park_wake(struct broker *b, struct park_list *list)
{
	struct park *last = TAILQ_LAST(list, park_list), *p = NULL;

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

static void fail(struct park *p, int error, const char *text)
{
	struct client *client = p->client;
	uint32_t serial = p->serial;

	park_free(p);
	request_reply_error(client, serial, error, text);
}

void park_fail_one(struct park_list *list, const struct park_id *id, int error, const char *text)
{
	struct park *p;

	TAILQ_FOREACH (p, list, link)
		if (p->client->id == id->client && p->serial == id->serial)
			break;
	if (p)
		fail(p, error, text);
}

void park_fail(struct park_list *list, int error, const char *text)
{
	while (!TAILQ_EMPTY(list))
		fail(TAILQ_FIRST(list), error, text);
}

bool client_drop_parked(struct client *c, int *budget)
{
	for (; *budget > 0; --*budget) {
		if (LIST_EMPTY(&c->requests.parked))
			return true;
		park_free(LIST_FIRST(&c->requests.parked));
	}
	return false;
}
