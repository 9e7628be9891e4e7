/* SPDX-License-Identifier: MIT */

/*
 * service: answers requests from the event loop of another library, here libevent.
 *
 * A request is a buffer of int32 numbers; the answer is a buffer with the same numbers, sorted. The
 * loop needs two descriptors of the library. share_service_get_fd() is readable when there may be a
 * request; a program arms it by taking requests until there is none. share_get_fd() is readable
 * when share_dispatch() has something to do, which here is to find that the broker is gone. Nothing
 * in the loop waits for another process.
 *
 * Any number of these may run. Each request goes to one of them, and to another one if that is
 * killed. SIGTERM and SIGINT end it. service_client is the other side.
 *
 *   share-run -- sh -c 'service & service_client; kill $!; wait'
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>
#include <share/service.h>

#define NAME "sort" /* name of the service, and of its pool */

struct server {
	struct event_base *base;
	share_client *client;
	share_pool *pool;
	share_service *service;
	int done;
	int failed;
};

static void check(int fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "service: %s (%s)\n", what, share_error_detail());
	exit(1);
}

static int compare(const void *one, const void *other)
{
	const int32_t *a = one, *b = other;

	return (*a > *b) - (*a < *b);
}

/* The caller decides what is in a request, so nothing that is wrong with it may end this program. A
 * caller whose request is acknowledged without an answer gets SHARE_ECANCELED. */
static void answer(struct server *s, share_message *request)
{
	share_buffer *sorted;
	uint64_t size;
	int r;

	size = request->buffer ? share_size(request->buffer) : 0;
	r = size == 0 || size % sizeof(int32_t) != 0 ? SHARE_EINVAL
						     : share_alloc(s->pool, size, NULL, &sorted);
	if (r != 0) {
		fprintf(stderr, "service: a request of %llu bytes: %s\n", (unsigned long long)size,
			share_strerror(r));
		share_ack(request, NULL);
		return;
	}
	memcpy(share_ptr(sorted), share_ptr(request->buffer), size);
	qsort(share_ptr(sorted), size / sizeof(int32_t), sizeof(int32_t), compare);
	/* This fails if nobody waits for the answer any more, which does not matter here. */
	if (share_reply(request, sorted, NULL, 0, NULL) == 0)
		s->done++;
	share_release(sorted, NULL);
}

static void stop_serving(struct server *s)
{
	fprintf(stderr, "service: %s\n", share_error_detail());
	s->failed = 1;
	event_base_loopbreak(s->base);
}

static void on_requests(evutil_socket_t fd, short what, void *data)
{
	struct server *s = data;
	share_message request = SHARE_MESSAGE_INIT;
	int r;

	(void)fd, (void)what;
	/* Takes requests until there is none, because that arms the descriptor. */
	while ((r = share_next_request(s->service, 0, NULL, &request)) != SHARE_EAGAIN) {
		if (r == 0 && request.error == 0) {
			answer(s, &request);
		} else if (r == 0) { /* its memory cannot be reached */
			share_ack(&request, NULL);
		} else if (r != SHARE_EPIPE) { /* SHARE_EPIPE: there are no callers now */
			stop_serving(s);
			return;
		}
	}
}

static void on_news(evutil_socket_t fd, short what, void *data)
{
	struct server *s = data;

	(void)fd, (void)what;
	if (share_dispatch(s->client) >= 0)
		return;
	/* Callers could be served as long as they stay. But the memory for answers comes from the
	 * broker, and from now on the descriptor is always readable. */
	stop_serving(s);
}

static void on_signal(evutil_socket_t number, short what, void *data)
{
	struct server *s = data;

	(void)number, (void)what;
	event_base_loopbreak(s->base);
}

/* Opens the pool, or creates it: services and clients may start in any order. It is host memory,
 * because both read and write it. */
static share_pool *open_pool(share_client *client)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *pool;

	options.kind = "host";
	options.flags = SHARE_POOL_PERSISTENT | SHARE_POOL_OPEN_OR_CREATE;
	check(share_pool_create(client, NAME, &options, &pool) == 0, "share_pool_create");
	return pool;
}

int main(int argc, char **argv)
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	struct event *events[4];
	struct server s = {.done = 0};

	if (argc > 1) {
		int help = strcmp(argv[1], "--help") == 0;

		fprintf(help ? stdout : stderr, "usage: service\n");
		return !help;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	check(share_connect(NULL, &s.client) == 0, "share_connect");
	s.pool = open_pool(s.client);
	options.pool = NAME;
	check(share_service_open(s.client, NAME, SHARE_WORKER, &options, &s.service) == 0,
	      "share_service_open");

	s.base = event_base_new();
	check(s.base != NULL, "event_base_new");
	events[0] = event_new(s.base, share_service_get_fd(s.service), EV_READ | EV_PERSIST,
			      on_requests, &s);
	events[1] = event_new(s.base, share_get_fd(s.client), EV_READ | EV_PERSIST, on_news, &s);
	events[2] = evsignal_new(s.base, SIGTERM, on_signal, &s);
	events[3] = evsignal_new(s.base, SIGINT, on_signal, &s);
	for (int i = 0; i < 4; i++)
		check(events[i] && event_add(events[i], NULL) == 0, "event_add");
	printf("service: ready\n");
	on_requests(-1, 0, &s);
	check(event_base_dispatch(s.base) == 0, "event_base_dispatch");

	for (int i = 0; i < 4; i++)
		event_free(events[i]);
	event_base_free(s.base);
	share_service_close(s.service);
	share_pool_close(s.pool);
	share_disconnect(s.client);
	printf("service: ended jobs=%d\n", s.done);
	return s.failed;
}
