/* SPDX-License-Identifier: MIT */

/*
 * The exporter's HTTP. A request for something of the broker waits until the viewer's thread has
 * it; all requests that come meanwhile get the same bytes, and those of the next moment as well. So
 * how many ask makes no difference to the broker. A request waits for some seconds at most, and
 * then is told that the broker does not answer.
 *
 * What is served is for reading only, and for browsers only from the page itself: there are no
 * headers that would let another site read it.
 * While the exporter listens at the loopback device, names of hosts are refused but for
 * "localhost": else any site could have its name lead here (DNS rebinding).
 */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>

#include "tools/exporter/answer.h"
#include "tools/exporter/connections.h"
#include "tools/exporter/site.h"
#include "tools/exporter/view.h"
#include "tools/metrics.h"

#define WAIT_SECONDS 5   /* for the broker */
#define FRESH_MS     500 /* a view is served again for so long */
#define WAITING_MAX  128 /* requests */
#define HEADERS_MAX  8192
#define BODY_MAX     1024
#define IDLE_SECONDS 30
#define PAUSE_MS     200 /* when there is no descriptor left to accept with */

/* A request that waits for a view. */
struct waiting {
	TAILQ_ENTRY(waiting) link;
	struct site *site;
	struct evhttp_request *request;
	struct event *limit;
	enum view view;
};

struct site {
	struct event_base *base;
	struct evhttp *http;
	struct evconnlistener *listener;
	struct connections *connections;
	struct viewer *viewer;
	int ready; /* an eventfd: the viewer has something */
	struct event *on_ready;
	struct body bodies[VIEWS];
	struct timeval made[VIEWS];
	TAILQ_HEAD(, waiting) waiting;
	unsigned n_waiting;
	bool is_local;
	uint16_t port;
};

static const char *const view_types[VIEWS] = {METRICS_TYPE, "application/json"};

/* ------------------------------------------------------------------------------------------- */
/* Views                                                                                       */

/* Metrics say themselves that the broker is away; that is no error of who serves them. */
static void answer_view(struct evhttp_request *r, enum view view, const struct body *body)
{
	int code = body->up || view == VIEW_METRICS ? HTTP_OK : HTTP_SERVUNAVAIL;

	if (body->bytes)
		answer(r, code, view_types[view], body->bytes, body->size);
	else
		answer_text(r, HTTP_INTERNAL, "the exporter is out of memory\n");
}

static void waiting_free(struct waiting *w)
{
	TAILQ_REMOVE(&w->site->waiting, w, link);
	w->site->n_waiting--;
	event_free(w->limit);
	free(w);
}

static void on_limit(evutil_socket_t fd, short what, void *data)
{
	struct waiting *w = data;
	struct body body = view_without_broker(w->view, "the broker does not answer");

	(void)fd, (void)what;
	evhttp_connection_set_closecb(evhttp_request_get_connection(w->request), NULL, NULL);
	answer_view(w->request, w->view, &body);
	free(body.bytes);
	waiting_free(w);
}

/* Who asked has gone; libevent frees the request. */
static void on_close(struct evhttp_connection *connection, void *data)
{
	(void)connection;
	waiting_free(data);
}

static void answer_all(struct site *s, enum view view)
{
	struct waiting *w, *next;

	for (w = TAILQ_FIRST(&s->waiting); w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (w->view != view)
			continue;
		evhttp_connection_set_closecb(evhttp_request_get_connection(w->request), NULL,
					      NULL);
		answer_view(w->request, view, &s->bodies[view]);
		waiting_free(w);
	}
}

static void on_ready(evutil_socket_t fd, short what, void *data)
{
	struct site *s = data;
	struct body body;
	eventfd_t n;

	(void)what;
	eventfd_read(fd, &n);
	for (int view = 0; view < VIEWS; view++) {
		if (!view_take(s->viewer, (enum view)view, &body))
			continue;
		free(s->bodies[view].bytes);
		s->bodies[view] = body;
		event_base_gettimeofday_cached(s->base, &s->made[view]);
		answer_all(s, (enum view)view);
	}
}

/* From the viewer's thread. */
static void tell(void *data)
{
	const struct site *s = data;

	eventfd_write(s->ready, 1);
}

/* ------------------------------------------------------------------------------------------- */
/* Requests                                                                                    */

static bool is_fresh(const struct site *s, enum view view)
{
	struct timeval now, age;
	static const struct timeval fresh = {0, FRESH_MS * 1000L};

	event_base_gettimeofday_cached(s->base, &now);
	evutil_timersub(&now, &s->made[view], &age);
	/* a clock that was set back makes nothing fresh */
	return s->bodies[view].bytes && age.tv_sec >= 0 && evutil_timercmp(&age, &fresh, <);
}

static struct waiting *wait_for(struct site *s, enum view view, struct evhttp_request *r)
{
	static const struct timeval limit = {WAIT_SECONDS, 0};
	struct waiting *w = s->n_waiting < WAITING_MAX ? calloc(1, sizeof(*w)) : NULL;

	if (!w)
		return NULL;
	w->limit = event_new(s->base, -1, 0, on_limit, w);
	if (!w->limit || event_add(w->limit, &limit) < 0) {
		if (w->limit)
			event_free(w->limit);
		free(w);
		return NULL;
	}
	w->site = s;
	w->request = r;
	w->view = view;
	TAILQ_INSERT_TAIL(&s->waiting, w, link);
	s->n_waiting++;
	return w;
}

static void serve_view(struct site *s, enum view view, struct evhttp_request *r)
{
	struct waiting *w;

	if (is_fresh(s, view)) {
		answer_view(r, view, &s->bodies[view]);
		return;
	}
	w = wait_for(s, view, r);
	if (!w) {
		answer_text(r, HTTP_SERVUNAVAIL, "too many requests wait for the broker\n");
		return;
	}
	evhttp_connection_set_closecb(evhttp_request_get_connection(r), on_close, w);
	view_want(s->viewer, view);
}

/* Whether a browser has the name of this host from who runs the exporter, and not from a site. */
static bool is_for_us(const struct site *s, const struct evhttp_request *r)
{
	const char *host = evhttp_request_get_host((struct evhttp_request *)(uintptr_t)r);
	struct in6_addr address;
	char inside[64];
	size_t n;

	if (!s->is_local || !host)
		return true;
	n = strlen(host);
	if (host[0] != '[')
		return strcmp(host, "localhost") == 0 || inet_pton(AF_INET, host, &address) == 1;
	if (n - 2 >= sizeof(inside) || host[n - 1] != ']')
		return false;
	snprintf(inside, sizeof(inside), "%.*s", (int)n - 2, host + 1);
	return inet_pton(AF_INET6, inside, &address) == 1;
}

static void on_request(struct evhttp_request *r, void *data)
{
	const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(r));
	struct site *s = data;

	connections_asked(s->connections, r);
	if (!is_for_us(s, r))
		answer_text(r, 403, "this is served to 'localhost' and to addresses only\n");
	else if (!path || strcmp(path, "/") == 0)
		answer_page(r);
	else if (strcmp(path, "/metrics") == 0)
		serve_view(s, VIEW_METRICS, r);
	else if (strcmp(path, "/state.json") == 0)
		serve_view(s, VIEW_STATE, r);
	else if (strcmp(path, "/healthz") == 0)
		answer_text(r, HTTP_OK, "ok\n");
	else
		answer_text(r, HTTP_NOTFOUND, "there is /, /metrics, /state.json and /healthz\n");
}

/* ------------------------------------------------------------------------------------------- */
/* Listening                                                                                   */

static void on_accept_again(evutil_socket_t fd, short what, void *data)
{
	(void)fd, (void)what;
	evconnlistener_enable(data);
}

/* Else the loop would try it again and again while there is no descriptor to be had. What libevent
 * hands over beside the listener is its own. */
static void on_accept_error(struct evconnlistener *listener, void *of_libevent)
{
	static const struct timeval pause = {0, PAUSE_MS * 1000L};

	(void)of_libevent;
	evconnlistener_disable(listener);
	if (event_base_once(evconnlistener_get_base(listener), -1, EV_TIMEOUT, on_accept_again,
			    listener, &pause) < 0)
		evconnlistener_enable(listener);
}

/* Returns how long the address is, 0 if @host is none. */
static int read_address(const struct site_options *o, struct sockaddr_storage *out, bool *is_local)
{
	struct sockaddr_in *four = (struct sockaddr_in *)out;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;

	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, o->host, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons(o->port);
		*is_local = ntohl(four->sin_addr.s_addr) >> 24 == 127;
		return sizeof(*four);
	}
	if (inet_pton(AF_INET6, o->host, &six->sin6_addr) == 1) {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(o->port);
		*is_local = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
		return sizeof(*six);
	}
	return 0;
}

static int listen_at(struct site *s, const struct site_options *options)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);
	int length = read_address(options, &address, &s->is_local);

	if (length == 0)
		return -EINVAL;
	s->listener = evconnlistener_new_bind(
	    s->base, NULL, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE,
	    128, (struct sockaddr *)&address, length);
	if (!s->listener)
		return errno ? -errno : -ENOMEM;
	if (getsockname(evconnlistener_get_fd(s->listener), (struct sockaddr *)&address, &size) < 0)
		return -errno;
	/* in both kinds of address the port is at the same place */
	s->port = ntohs(((struct sockaddr_in *)&address)->sin_port);
	if (!evhttp_bind_listener(s->http, s->listener)) {
		evconnlistener_free(s->listener);
		return -ENOMEM;
	}
	evconnlistener_set_error_cb(s->listener, on_accept_error);
	return 0;
}

static int set_up(struct site *s, const struct site_options *options)
{
	s->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->ready < 0)
		return -errno;
	s->http = evhttp_new(s->base);
	s->on_ready = event_new(s->base, s->ready, EV_READ | EV_PERSIST, on_ready, s);
	if (!s->http || !s->on_ready || event_add(s->on_ready, NULL) < 0)
		return -ENOMEM;
	evhttp_set_allowed_methods(s->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
	evhttp_set_max_headers_size(s->http, HEADERS_MAX);
	evhttp_set_max_body_size(s->http, BODY_MAX);
	evhttp_set_timeout(s->http, IDLE_SECONDS);
	evhttp_set_gencb(s->http, on_request, s);
	s->connections = connections_new(s->base, s->http);
	if (!s->connections)
		return -ENOMEM;
	s->viewer = viewer_new(options->address, tell, s);
	return s->viewer ? listen_at(s, options) : -ENOMEM;
}

int site_new(struct event_base *base, const struct site_options *options, struct site **out)
{
	struct site *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->base = base;
	s->ready = -1;
	TAILQ_INIT(&s->waiting);
	r = set_up(s, options);
	if (r == 0)
		*out = s;
	else
		site_free(s);
	return r;
}

uint16_t site_port(const struct site *s)
{
	return s->port;
}

bool site_free(struct site *s)
{
	if (s->viewer && !viewer_free(s->viewer))
		return false;
	while (!TAILQ_EMPTY(&s->waiting))
		on_limit(-1, 0, TAILQ_FIRST(&s->waiting));
	if (s->http)
		evhttp_free(s->http);
	connections_free(s->connections);
	if (s->on_ready)
		event_free(s->on_ready);
	if (s->ready >= 0)
		close(s->ready);
	for (int view = 0; view < VIEWS; view++)
		free(s->bodies[view].bytes);
	free(s);
	return true;
}
