/* SPDX-License-Identifier: MIT */

/*
 * Deferred requests. As a request is handled again from the start, there is no half-done work that
 * the end of another client could spoil: whatever has changed since is seen as by any new request.
 */

#include <stdlib.h>
#include <string.h>

#include <event2/event.h>
#include <share/share.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/reply/deferred.h"
#include "broker/reply/request.h"

/* How many are handled again in a turn of the loop: some answers are pages of reports, and others
 * are to wait for no more than that. */
#define WAKE_TURN 16

/* What it costs to handle one again, in the bytes that are charged for it. */
#define AGAIN_BYTES 512

/* So much more is charged to an administrator than the limit allows. One who wants to have the
 * configuration read again, so that there is more for all, must not be refused that at the
 * limit. */
#define OPERATORS_BEYOND 65536

/* What was written here, of what had been read, can be read again; whoever waits is answered even
 * if not. */
#define UNREADABLE "the broker cannot read its copy of the request"

struct deferred {
	TAILQ_ENTRY(deferred) link;
	LIST_ENTRY(deferred) of_client;
	struct deferred_list *list; /* NULL: it is being handled again */
	struct client *client;
	const struct wait_kind *kind; /* NULL: it waits for no other client */
	struct event *timer;          /* NULL: it has no time limit */
	struct charge charge;
	uint64_t since_ms; /* when the time began that it may wait for others */
	uint64_t deferred_ms;
	bool for_agent;
	struct timed_request request;
	size_t size;
	unsigned char packet[];
};

static void put_in(struct deferred *p, struct deferred_list *list)
{
	p->list = list;
	TAILQ_INSERT_TAIL(list, p, link);
	LIST_INSERT_HEAD(&p->client->requests.deferred, p, of_client);
}

/* Copies the request's packet, and charges nothing yet. NULL: there is no memory, and the request
 * is answered. */
static struct deferred *deferred_new(struct request *r)
{
	struct broker *b = r->broker;
	size_t size = wire_encode(r->m, b->scratch, sizeof(b->scratch));
	struct deferred *p = size > 0 ? calloc(1, sizeof(*p) + size) : NULL;

	if (!p) {
		request_fail_memory(r);
		return NULL;
	}
	memcpy(p->packet, b->scratch, size);
	p->size = size;
	p->request = r->client->requests.current;
	p->client = r->client;
	p->deferred_ms = clock_ms();
	p->for_agent = r->waits_for_agent;
	p->since_ms = r->deferred_ms ? r->deferred_ms : p->deferred_ms;
	return p;
}

/* Frees one that is in no list. */
static void deferred_free(struct deferred *p)
{
	broker_free_event(p->timer);
	charge_return(&p->charge);
	free(p);
}

bool request_defer(struct request *r, struct deferred_list *list)
{
	struct deferred *p = deferred_new(r);

	if (!p)
		return false;
	if (!charge_take_beyond(&p->charge, r->client->account, LIMIT_UNSENT,
				sizeof(*p) + p->size + AGAIN_BYTES,
				OWN_OF_PRICE(sizeof(*p)) + p->size,
				client_may_operate(r->client) ? OPERATORS_BEYOND : 0)) {
		deferred_free(p);
		return request_fail_quota(r, LIMIT_UNSENT, ", requests that wait among them");
	}
	put_in(p, list);
	return true;
}

static void on_time_limit(evutil_socket_t fd, short what, void *data);

/* False without memory. */
static bool set_time_limit(struct deferred *p, int timeout)
{
	uint64_t waited = clock_ms() - p->since_ms;
	int left = waited < (uint64_t)timeout ? timeout - (int)waited : 1;
	struct timeval limit = {left / 1000, left % 1000 * 1000};

	p->timer = event_new(p->client->broker->base, -1, 0, on_time_limit, p);
	return p->timer && event_add(p->timer, &limit) == 0;
}

/* What a request that waits takes beside its packet, of which the journal has a copy: the name
 * that it waits for may be there for this one alone. */
static uint64_t own_of_wait(const struct deferred *p, int timeout)
{
	return p->size + OWN_OF_PRICE(p->size) + (timeout > 0 ? PRICE_TIMER_OWN : 0);
}

bool request_wait(struct request *r, struct deferred_list *list, const struct wait_kind *kind,
		  int timeout)
{
	struct deferred *p = r->again ? r->again : deferred_new(r);

	if (!p)
		return false;
	if (!r->again) {
		p->kind = kind;
		if (!charge_take_with(&p->charge, r->client->account, LIMIT_WAITS, 1,
				      own_of_wait(p, timeout))) {
			deferred_free(p);
			return request_fail_quota(r, LIMIT_WAITS, "");
		}
		if (timeout > 0 && !set_time_limit(p, timeout)) {
			deferred_free(p);
			return request_fail_memory(r);
		}
	}
	put_in(p, list);
	return true;
}

bool deferred_has(const struct deferred_list *list, const struct client *client)
{
	const struct deferred *p;

	LIST_FOREACH (p, &client->requests.deferred, of_client)
		if (p->list == list)
			return true;
	return false;
}

bool deferred_waits(const struct client *client, const struct wait_kind *kind)
{
	const struct deferred *p;

	LIST_FOREACH (p, &client->requests.deferred, of_client)
		if (p->kind == kind)
			return true;
	return false;
}

static void take_out(struct deferred *p)
{
	struct broker *b = p->client->broker;
	struct deferred_list *list = p->list;

	p->list = NULL;
	TAILQ_REMOVE(list, p, link);
	LIST_REMOVE(p, of_client);
	if (p->kind && p->kind->left && list != &b->clients->woken)
		p->kind->left(b, list);
}

/* The time until a request is answered is counted, but not if it waits for other clients. */
static struct timed_request timed(const struct deferred *p)
{
	return p->kind ? (struct timed_request){.serial = 0} : p->request;
}

/* Since when it has waited for others. The time that an agent takes is not part of that. */
static uint64_t since(const struct deferred *p)
{
	return p->since_ms + (p->for_agent ? clock_ms() - p->deferred_ms : 0);
}

void deferred_wake_first(struct broker *b, struct deferred_list *list)
{
	struct deferred *p = TAILQ_FIRST(list);
	struct wire_message m;
	struct client *client;
	uint64_t since_ms, begun;
	struct timed_request other;

	if (!p)
		return;
	begun = turns_begin(&b->clients->turns);
	client = p->client;
	since_ms = since(p);
	take_out(p);
	if (!p->kind) /* it is paid for again if it is deferred again */
		charge_return(&p->charge);
	other = client->requests.current;
	client->requests.current = timed(p);
	if (wire_decode(&m, WIRE_TO_BROKER, p->packet, p->size, 0) == 0)
		b->clients->rooms->handle_again(client, &m, since_ms, p->kind ? p : NULL);
	else
		request_reply_error(client, p->request.type, p->request.serial, SHARE_EPROTO,
				    UNREADABLE);
	client->requests.current = other;
	if (!p->list)
		deferred_free(p);
	turns_count(&b->clients->turns, account_turns(client->account), begun);
}

/* Handles requests again, up to and with @last. True when it was not reached. */
static bool wake_some(struct broker *b, struct deferred_list *list, const struct deferred *last)
{
	bool more = last;

	/* Clients, and so their deferred requests, never end while a handler runs. Whose list it is
	 * may free it when the last one has left: we look at it only while @last is in it. */
	for (int left = WAKE_TURN; more && (left > 0 || MUTATION(wake_all_at_once)); left--) {
		more = TAILQ_FIRST(list) != last;
		deferred_wake_first(b, list);
	}
	return more;
}

static void wake_rest_later(struct broker *b)
{
	/* a timer and not an active event, so that the loop looks at its sockets first */
	if (!TAILQ_EMPTY(&b->clients->woken))
		broker_set_timer(b, b->clients->waker, 0);
}

bool request_go_on_later(struct request *r)
{
	bool waits = request_defer(r, &r->broker->clients->woken);

	wake_rest_later(r->broker);
	return waits;
}

void deferred_on_waker(evutil_socket_t fd, short what, void *data)
{
	struct broker *b = data;

	(void)fd, (void)what;
	wake_some(b, &b->clients->woken, TAILQ_LAST(&b->clients->woken, deferred_list));
	wake_rest_later(b);
}

/* Moves requests, up to and with @last, to those that are handled again in turns of the loop. */
static void move_to_woken(struct broker *b, struct deferred_list *list, const struct deferred *last)
{
	struct deferred *p;

	do {
		p = TAILQ_FIRST(list);
		TAILQ_REMOVE(list, p, link);
		p->list = &b->clients->woken;
		TAILQ_INSERT_TAIL(&b->clients->woken, p, link);
	} while (p != last);
	wake_rest_later(b);
}

void deferred_wake(struct broker *b, struct deferred_list *list)
{
	const struct deferred *last = TAILQ_LAST(list, deferred_list);

	if (wake_some(b, list, last))
		move_to_woken(b, list, last);
}

void deferred_wake_later(struct broker *b, struct deferred_list *list)
{
	if (!TAILQ_EMPTY(list))
		move_to_woken(b, list, TAILQ_LAST(list, deferred_list));
}

static void fail(struct deferred *p, int error, const char *text)
{
	struct client *client = p->client;
	struct timed_request other = client->requests.current;

	take_out(p);
	client->requests.current = timed(p);
	request_reply_error(client, p->request.type, p->request.serial, error, text);
	client->requests.current = other;
	deferred_free(p);
}

static void on_time_limit(evutil_socket_t fd, short what, void *data)
{
	struct deferred *p = data;
	struct wire_message request;
	struct failure failure;

	(void)fd, (void)what;
	if (wire_decode(&request, WIRE_TO_BROKER, p->packet, p->size, 0) == 0)
		p->kind->fail_late(&request, &failure);
	else
		failure_set(&failure, SHARE_EPROTO, UNREADABLE);
	fail(p, failure.error, failure.text);
}

void deferred_fail_one(struct deferred_list *list, const struct deferred_id *id, int error,
		       const char *text)
{
	struct deferred *p;

	TAILQ_FOREACH (p, list, link)
		if (p->client->id == id->client && p->request.serial == id->serial)
			break;
	if (p)
		fail(p, error, text);
}

/* Whose list it is may free it when the last one has left. */
void deferred_fail_client(struct deferred_list *list, const struct client *client, int error,
			  const char *text)
{
	struct deferred *p, *next;

	for (p = TAILQ_FIRST(list); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (!client || p->client == client)
			fail(p, error, text);
	}
}

void deferred_cancel(struct client *client, uint32_t serial)
{
	struct deferred *p;

	LIST_FOREACH (p, &client->requests.deferred, of_client)
		if ((p->kind || p->request.type == WIRE_ALLOC) && p->request.serial == serial)
			break;
	if (p)
		fail(p, SHARE_ECANCELED, "the request was canceled");
}

void deferred_fail(struct deferred_list *list, int error, const char *text)
{
	deferred_fail_client(list, NULL, error, text);
}

bool client_drop_deferred(struct client *c, int *budget)
{
	struct deferred *p;

	for (; *budget > 0; --*budget) {
		if (LIST_EMPTY(&c->requests.deferred))
			return true;
		p = LIST_FIRST(&c->requests.deferred);
		take_out(p);
		deferred_free(p);
	}
	return false;
}
