/* SPDX-License-Identifier: MIT */

/*
 * How many connections the exporter has, and for how long. libevent limits how long a connection
 * may say nothing, but not how long a request may take: somebody who sends a byte of a header now
 * and then would stay for good, and enough of these would take all descriptors. So a request has to
 * be there, and its answer has to be read, within a time limit; and when there are too many
 * connections the one that has had most of its time makes room for the next.
 *
 * libevent does not say when it is done with a connection. So this has a reference of its own on
 * each, and drops it when the callbacks are gone, as they are once libevent has let go. Until then
 * the descriptor stays open: libevent would take another one with its number for the one it still
 * has.
 */

#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>

#include "tools/exporter/connections.h"

#define CONNECTIONS_MAX 256
#define LOOK_SECONDS    1
#define LOOKS_MAX       30 /* that a request may take, and its answer until it was read */

struct connection {
	TAILQ_ENTRY(connection) link;
	struct bufferevent *stream;
	unsigned since; /* how many looks there had been */
	bool asks;      /* its request has come, and is not answered yet */
	bool ending;    /* it was hung up */
};

struct connections {
	struct event *look;
	TAILQ_HEAD(list, connection) list; /* by @since, the eldest first */
	unsigned n;                        /* which are not ending */
	unsigned looks;
};

static struct connection *find(struct connections *all, const struct bufferevent *stream)
{
	struct connection *c;

	TAILQ_FOREACH (c, &all->list, link)
		if (c->stream == stream)
			return c;
	return NULL;
}

static void begin_anew(struct connections *all, struct connection *c, bool asks)
{
	TAILQ_REMOVE(&all->list, c, link);
	TAILQ_INSERT_TAIL(&all->list, c, link);
	c->since = all->looks;
	c->asks = asks;
}

/* libevent sees the end, and frees it. */
static void hang_up(struct connections *all, struct connection *c)
{
	shutdown(bufferevent_getfd(c->stream), SHUT_RDWR);
	c->ending = true;
	all->n--;
}

static void forget(struct connections *all, struct connection *c)
{
	if (!c->ending)
		all->n--;
	TAILQ_REMOVE(&all->list, c, link);
	bufferevent_decref(c->stream);
	free(c);
}

static bool is_gone(const struct connection *c)
{
	bufferevent_event_cb on_event;

	bufferevent_getcb(c->stream, NULL, NULL, &on_event, NULL);
	return !on_event;
}

static void forget_gone(struct connections *all)
{
	struct connection *c, *next;

	for (c = TAILQ_FIRST(&all->list); c; c = next) {
		next = TAILQ_NEXT(c, link);
		if (is_gone(c))
			forget(all, c);
	}
}

/* As long as there is one. */
static void look_later(struct connections *all)
{
	static const struct timeval later = {LOOK_SECONDS, 0};

	if (!TAILQ_EMPTY(&all->list) && !evtimer_pending(all->look, NULL))
		evtimer_add(all->look, &later);
}

static void on_look(evutil_socket_t fd, short what, void *data)
{
	struct connections *all = data;
	struct connection *c;

	(void)fd, (void)what;
	forget_gone(all);
	all->looks++;
	TAILQ_FOREACH (c, &all->list, link)
		if (!c->ending && all->looks - c->since > LOOKS_MAX)
			hang_up(all, c);
	look_later(all);
}

/* The eldest goes, but whoever waits for an answer goes last. */
static void make_room(struct connections *all)
{
	struct connection *c, *eldest = NULL;

	forget_gone(all);
	if (all->n < CONNECTIONS_MAX)
		return;
	TAILQ_FOREACH (c, &all->list, link) {
		if (c->ending)
			continue;
		if (!eldest)
			eldest = c;
		if (!c->asks)
			break;
	}
	hang_up(all, c ? c : eldest);
}

/* libevent makes a connection. Without memory it has none that is counted, and makes its own. */
static struct bufferevent *make_connection(struct event_base *base, void *data)
{
	struct connections *all = data;
	struct connection *c;

	if (all->n >= CONNECTIONS_MAX)
		make_room(all);
	c = calloc(1, sizeof(*c));
	if (c)
		c->stream = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
	if (!c || !c->stream) {
		free(c);
		return NULL;
	}
	bufferevent_incref(c->stream);
	TAILQ_INSERT_TAIL(&all->list, c, link);
	all->n++;
	begin_anew(all, c, false);
	look_later(all);
	return c->stream;
}

static void on_answered(struct evhttp_request *r, void *data)
{
	struct connections *all = data;
	struct connection *c =
	    find(all, evhttp_connection_get_bufferevent(evhttp_request_get_connection(r)));

	if (c)
		begin_anew(all, c, false);
}

void connections_asked(struct connections *all, struct evhttp_request *r)
{
	struct connection *c =
	    find(all, evhttp_connection_get_bufferevent(evhttp_request_get_connection(r)));

	if (!c)
		return;
	begin_anew(all, c, true);
	evhttp_request_set_on_complete_cb(r, on_answered, all);
}

struct connections *connections_new(struct event_base *base, struct evhttp *http)
{
	struct connections *all = calloc(1, sizeof(*all));

	if (!all)
		return NULL;
	TAILQ_INIT(&all->list);
	all->look = evtimer_new(base, on_look, all);
	if (!all->look) {
		connections_free(all);
		return NULL;
	}
	evhttp_set_bevcb(http, make_connection, all);
	return all;
}

void connections_free(struct connections *all)
{
	struct connection *c;

	if (!all)
		return;
	while ((c = TAILQ_FIRST(&all->list)) != NULL)
		forget(all, c);
	if (all->look)
		event_free(all->look);
	free(all);
}
