/* SPDX-License-Identifier: MIT */

/* How the connection to a peer begins and ends, and begins again. */

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <event2/buffer.h>
#include <event2/listener.h>

#include "base/clock.h"
#include "bridge/bridge.h"
#include "bridge/channels/channels.h"
#include "bridge/link/inside.h"
#include "bridge/link/tls.h"
#include "bridge/names/names.h"
#include "bridge/services/services.h"

#define OUT_MAX       (64u << 20) /* what a peer that does not read is sent at most */
#define AGAIN_MAX     5000
#define PEERS_MAX     64 /* that have connected and have the key */
#define STRANGERS_MAX 64 /* that have connected, and have not shown yet that they have it */
#define ANEW          "it has connected anew, or another bridge has the same --site"

struct bridge *link_bridge(const struct link *l)
{
	return l->inside->bridge;
}

const unsigned char *link_own_secret(const struct link *l)
{
	return l->inside->own_secret;
}

const unsigned char *link_secret_of_peer(const struct link *l)
{
	return l->inside->peers_secret;
}

const char *link_why(const struct link *l)
{
	return !l->up && *l->inside->last ? l->inside->last : NULL;
}

void link_fail(struct link *l, const char *why)
{
	struct link_inside *i = l->inside;

	if (!i->tls || *i->why)
		return;
	snprintf(i->why, sizeof(i->why), "%s", why);
	event_active(i->failing, 0, 0);
}

void link_say(struct link *l, json_t *object)
{
	struct link_inside *i = l->inside;
	char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
	struct evbuffer *out = i->tls ? bufferevent_get_output(i->tls) : NULL;

	json_decref(object);
	if (text && out && !*i->why) { /* who is lost is told nothing */
		if (evbuffer_get_length(out) > OUT_MAX)
			link_fail(l, "it does not read what it is told");
		else
			evbuffer_add_printf(out, "%s\n", text);
	}
	free(text);
}

/* ------------------------------------------------------------------------------------------- */
/* The end of a connection                                                                     */

static void forget(struct link *l)
{
	struct link_inside *i = l->inside;

	TAILQ_REMOVE(&i->bridge->links, l, in_bridge);
	names_in_free(l);
	event_free(i->again);
	event_free(i->beat);
	event_free(i->failing);
	free(i);
	free(l);
}

/* Who connects tries again and again, and says why it failed once for each reason. */
static void tell_end(struct link *l)
{
	struct link_inside *i = l->inside;

	if (l->up)
		say("the link to %s at %s is lost: %s", l->site, l->address, i->why);
	else if (!i->host_and_port)
		say("no link to %s%s%s: %s", l->site, *l->site ? " at " : "", l->address, i->why);
	else if (strcmp(i->why, i->last) != 0)
		say("no link to %s: %s; it is tried again", l->address, i->why);
	snprintf(i->last, sizeof(i->last), "%s", i->why);
}

static void drop(struct link *l)
{
	struct link_inside *i = l->inside;
	bool was_up = l->up;

	if (!i->tls)
		return;
	tell_end(l);
	l->up = false;
	bufferevent_free(i->tls);
	i->tls = NULL;
	*i->why = 0;
	i->greeted = i->proven = false;
	event_del(i->beat);
	event_del(i->failing);
	if (was_up) {
		channels_down(l);
		services_down(l);
		names_out_down(l);
		names_in_down(l);
	}
	data_end(l);
	l->traffic.rtt_us = 0;
}

void link_take_over(struct link *l)
{
	struct link *other, *next;

	for (other = TAILQ_FIRST(&l->inside->bridge->links); other; other = next) {
		next = TAILQ_NEXT(other, in_bridge);
		if (other == l || strcmp(other->site, l->site) != 0)
			continue;
		if (other->inside->host_and_port) {
			link_fail(other, ANEW);
			continue;
		}
		snprintf(other->inside->why, sizeof(other->inside->why), ANEW);
		drop(other);
		names_in_move(other, l);
		forget(other);
	}
}

static void on_failing(evutil_socket_t fd, short what, void *arg)
{
	struct link *l = arg;
	struct link_inside *i = l->inside;
	bool was_up = l->up;

	(void)fd, (void)what;
	drop(l);
	if (i->host_and_port) {
		timer_in(i->again, i->again_ms);
		i->again_ms = i->again_ms * 2 < AGAIN_MAX ? i->again_ms * 2 : AGAIN_MAX;
	} else if (!was_up && names_in_is_empty(l)) {
		forget(l);
	} else { /* what it had is kept for the time of grace, as the peer may come back */
		timer_in(i->again, i->bridge->settings->grace_ms + 1000);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* The beginning of a connection                                                               */

static void on_tls(struct bufferevent *tls, short what, void *arg)
{
	struct link *l = arg;
	char why[160];

	if (what & BEV_EVENT_CONNECTED) {
		l->inside->proven = true;
		l->inside->heard_ms = clock_ms();
		talk_begin(l);
	} else if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT)) {
		tls_describe(tls, what, why, sizeof(why));
		link_fail(l, why);
	}
}

static void prepare_socket(evutil_socket_t fd, uint32_t timeout_ms)
{
	unsigned ms = timeout_ms;
	int on = 1;

	if (fd < 0)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

static void converse(struct link *l, struct bufferevent *tls)
{
	struct link_inside *i = l->inside;

	i->tls = tls;
	i->heard_ms = clock_ms();
	bufferevent_setcb(tls, talk_on_input, NULL, on_tls, l);
	bufferevent_setwatermark(tls, EV_READ, 0, (size_t)2 * LINE_LONG);
	bufferevent_enable(tls, EV_READ | EV_WRITE);
	timer_in(i->beat, i->bridge->settings->timeout_ms / 4 + 1);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	struct link *l = arg;
	struct link_inside *i = l->inside;
	struct bufferevent *tls;
	const char *colon;
	char host[128];

	(void)fd, (void)what;
	if (!i->host_and_port) {
		if (!i->tls)
			forget(l);
		return;
	}
	colon = strrchr(i->host_and_port, ':');
	snprintf(host, sizeof(host), "%.*s", (int)(colon - i->host_and_port), i->host_and_port);
	tls = tls_client(i->bridge);
	if (!tls) {
		timer_in(i->again, AGAIN_MAX);
		return;
	}
	converse(l, tls);
	if (bufferevent_socket_connect_hostname(tls, NULL, AF_UNSPEC, host, atoi(colon + 1)) != 0)
		link_fail(l, "its address is not known");
	prepare_socket(bufferevent_getfd(tls), i->bridge->settings->timeout_ms);
}

static struct link *make(struct bridge *b, const char *address)
{
	struct link *l = calloc(1, sizeof(*l));
	struct link_inside *i = l ? calloc(1, sizeof(*i)) : NULL;

	if (!i) {
		free(l);
		return NULL;
	}
	*i = (struct link_inside){.bridge = b, .again_ms = AGAIN_MIN};
	l->inside = i;
	snprintf(l->address, sizeof(l->address), "%s", address);
	i->again = evtimer_new(b->base, on_again, l);
	i->beat = evtimer_new(b->base, talk_on_beat, l);
	i->failing = event_new(b->base, -1, 0, on_failing, l);
	if (!i->again || !i->beat || !i->failing || names_in_make(l) != 0) {
		say("no memory");
		exit(EXIT_FAILURE);
	}
	TAILQ_INSERT_TAIL(&b->links, l, in_bridge);
	return l;
}

/* Strangers keep nobody out: the eldest of them gives its place to the next. */
static bool make_room(struct bridge *b)
{
	struct link *l, *eldest = NULL;
	size_t peers = 0, strangers = 0;

	TAILQ_FOREACH (l, &b->links, in_bridge) {
		struct link_inside *i = l->inside;

		if (i->host_and_port || *i->why)
			continue;
		if (!i->tls || i->proven) {
			peers++;
			continue;
		}
		strangers++;
		if (!eldest)
			eldest = l;
	}
	if (strangers >= STRANGERS_MAX)
		link_fail(eldest,
			  "others have connected since, and it has not shown that it has the key");
	return peers < PEERS_MAX;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from,
		      int n, void *arg)
{
	struct bridge *b = arg;
	struct bufferevent *tls;
	struct link *l;
	char host[96] = "?", port[16] = "?", address[128];

	(void)listener;
	tls = make_room(b) ? tls_server(b, fd) : NULL;
	if (!tls) {
		evutil_closesocket(fd);
		return;
	}
	prepare_socket(fd, b->settings->timeout_ms);
	getnameinfo(from, (socklen_t)n, host, sizeof(host), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(address, sizeof(address), "%s:%s", host, port);
	l = make(b, address);
	if (l)
		converse(l, tls);
	else
		bufferevent_free(tls);
}

/* For who has left the port to the system. */
static void tell_port(const struct bridge *b, const char *host)
{
	struct sockaddr_storage at;
	socklen_t size = sizeof(at);
	char port[16] = "?";

	if (getsockname(evconnlistener_get_fd(b->listener), (struct sockaddr *)&at, &size) == 0)
		getnameinfo((struct sockaddr *)&at, size, NULL, 0, port, sizeof(port),
			    NI_NUMERICSERV);
	say("listens at %s:%s", host, port);
}

static int listen_at(struct bridge *b, const char *where)
{
	const char *colon = strrchr(where, ':');
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
	char host[128];

	snprintf(host, sizeof(host), "%.*s", (int)(colon - where), where);
	if (getaddrinfo(*host ? host : NULL, colon + 1, &hints, &found) != 0) {
		say("cannot listen at %s: the address is not known", where);
		return -1;
	}
	b->listener = evconnlistener_new_bind(b->base, on_accept, b,
					      LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_FREE |
						  LEV_OPT_CLOSE_ON_EXEC,
					      16, found->ai_addr, (int)found->ai_addrlen);
	freeaddrinfo(found);
	if (!b->listener) {
		say("cannot listen at %s: %s", where, strerror(errno));
		return -1;
	}
	tell_port(b, host);
	return 0;
}

int links_start(struct bridge *b)
{
	if (tls_open(b) != 0 || (b->settings->listen && listen_at(b, b->settings->listen) != 0))
		return -1;
	for (size_t k = 0; k < b->settings->peers.n; k++) {
		struct link *l = make(b, b->settings->peers.all[k].text);

		if (!l)
			return -1;
		l->inside->host_and_port = b->settings->peers.all[k].text;
		timer_in(l->inside->again, 0);
	}
	return 0;
}

void links_stop(struct bridge *b)
{
	struct link *l;

	if (b->listener)
		evconnlistener_free(b->listener);
	while ((l = TAILQ_FIRST(&b->links)) != NULL) {
		snprintf(l->inside->why, sizeof(l->inside->why), "this bridge ends");
		drop(l);
		forget(l);
	}
	tls_close(b);
}
