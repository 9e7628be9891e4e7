/* SPDX-License-Identifier: MIT */

/* Watches: every change of the names one looks at, in order, or the word that some were lost. */

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/fixture.h"

static share_client *client, *other;
static share_pool *pool;
static share_buffer *buffer;

static void start(void)
{
	fixture_start();
	client = connect_as("watcher");
	other = connect_as("publisher");
	pool = open_pool(other);
	buffer = allocate(pool, 1, NULL);
}

static void stop(void)
{
	if (!check_has_failed())
		check_ok(share_release(buffer, NULL));
	share_pool_close(pool);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(watch, .init = start, .fini = stop, .timeout = 60);

#define EVENTS 16

struct log {
	int n;
	int overflows;
	struct {
		uint32_t change;
		char name[64];
		uint64_t version, buffer;
	} events[EVENTS];
};

static void write_down(const share_name_event *event, void *data)
{
	struct log *log = data;

	if (event->change == SHARE_OVERFLOW) {
		check(event->name[0] == '\0' && event->version == 0 && event->buffer == 0);
		log->overflows++;
		return;
	}
	if (log->n < EVENTS) {
		log->events[log->n].change = event->change;
		snprintf(log->events[log->n].name, 64, "%s", event->name);
		log->events[log->n].version = event->version;
		log->events[log->n].buffer = event->buffer;
	}
	log->n++;
}

static share_watch *watch(const char *prefix, struct log *log)
{
	share_watch *w;

	check_ok(share_watch_names(client, prefix, write_down, log, &w));
	return w;
}

static void expect_event(const struct log *log, int i, uint32_t change, const char *name)
{
	check_eq(log->events[i].change, change);
	if (strcmp(log->events[i].name, name) != 0)
		check_failed(__FILE__, __LINE__, "event %d is of '%s', not '%s'", i,
			     log->events[i].name, name);
}

Test(watch, tells_of_a_name_that_comes_is_replaced_and_goes)
{
	struct log log = {0};
	share_watch *w = watch("", &log);
	uint64_t first, second;

	check_ok(share_publish_with(buffer, "name", NULL, NULL, &first));
	check_ok(share_publish_with(buffer, "name", NULL, NULL, &second));
	check_ok(share_unpublish(other, "name"));
	until((share_dispatch(client), log.n == 3));
	expect_event(&log, 0, SHARE_PUBLISHED, "name");
	expect_event(&log, 1, SHARE_REPLACED, "name");
	expect_event(&log, 2, SHARE_UNPUBLISHED, "name");
	check_eq(log.events[0].version, first);
	check_eq(log.events[1].version, second);
	check_eq(log.events[0].buffer, share_id(buffer));
	check_eq(log.events[2].buffer, 0);
	check_eq(log.overflows, 0);
	share_unwatch(w);
}

Test(watch, tells_of_the_names_with_its_prefix_only)
{
	struct log log = {0}, all = {0};
	share_watch *w = watch("a/", &log), *v = watch("", &all);

	check_ok(share_publish(buffer, "a", NULL));
	check_ok(share_publish(buffer, "a/b", NULL));
	check_ok(share_publish(buffer, "b", NULL));
	check_ok(share_publish(buffer, "a/", NULL));
	check_ok(share_publish(buffer, "A/", NULL));
	until((share_dispatch(client), all.n == 5));
	check_eq(log.n, 2);
	expect_event(&log, 0, SHARE_PUBLISHED, "a/b");
	expect_event(&log, 1, SHARE_PUBLISHED, "a/");
	share_unwatch(w);
	share_unwatch(v);
}

Test(watch, tells_of_changes_of_ones_own_too)
{
	struct log log = {0};
	share_watch *w = watch("", &log);
	share_pool *p = open_pool(client);
	share_buffer *b = allocate(p, 1, NULL);

	check_ok(share_publish(b, "mine", NULL));
	check_ok(share_unpublish(client, "mine"));
	/* both are here already: they came before the answers */
	check_eq(share_dispatch(client), 2);
	check_eq(log.n, 2);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_unwatch(w);
}

static void publishes(struct child *self, void *data)
{
	share_client *c = child_connect("victim");

	(void)data;
	check_ok(share_publish(allocate(open_pool(c), 1, NULL), "name", NULL));
	child_point(self, "published");
}

Test(watch, tells_of_names_that_go_with_their_process)
{
	struct log log = {0};
	share_watch *w = watch("", &log);
	struct child *child = child_start(publishes, NULL);

	child_wait(child, "published");
	child_kill(child);
	until((share_dispatch(client), log.n == 2));
	expect_event(&log, 0, SHARE_PUBLISHED, "name");
	expect_event(&log, 1, SHARE_UNPUBLISHED, "name");
	share_unwatch(w);
}

Test(watch, makes_the_descriptor_readable)
{
	struct pollfd p = {.fd = share_get_fd(client), .events = POLLIN};
	struct log log = {0};
	share_watch *w = watch("", &log);

	check_eq(poll(&p, 1, 0), 0);
	check_ok(share_publish(buffer, "name", NULL));
	check_eq(poll(&p, 1, HARNESS_LIMIT_MS), 1);
	check_eq(share_dispatch(client), 1);
	check_eq(poll(&p, 1, 0), 0);
	check_eq(share_dispatch(client), 0);
	/* read by another call, it is still to be dispatched */
	check_ok(share_publish(buffer, "name", NULL));
	check_ok(share_ping(client));
	check_eq(poll(&p, 1, 0), 1);
	check_eq(share_dispatch(client), 1);
	check_eq(poll(&p, 1, 0), 0);
	share_unwatch(w);
}

/* ------------------------------------------------------------------------------------------- */
/* Nobody dispatches                                                                           */

static void expect_overflow(bool read_on)
{
	struct log log = {0};
	share_watch *w = watch("", &log);
	int n;

	for (int i = 0; i < 20000; i++) {
		check_ok(share_publish(buffer, "name", NULL));
		if (read_on && i % 100 == 0)
			check_ok(share_ping(client));
	}
	until((share_dispatch(client), log.overflows == 1));
	check(log.n < 20000);
	/* once told, everything is told again */
	until(share_dispatch(client) == 0);
	n = log.n;
	check_ok(share_publish(buffer, "afterwards", NULL));
	until((share_dispatch(client), log.n > n));
	check_eq(log.overflows, 1);
	share_unwatch(w);
}

Test(watch, that_nobody_reads_for_tells_that_changes_were_lost)
{
	expect_overflow(false);
}

Test(watch, that_is_read_for_and_not_dispatched_tells_that_changes_were_lost)
{
	expect_overflow(true);
}

/* What is linked here has this for calloc(), with which changes are kept. */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
static bool out_of_memory;

void *__wrap_calloc(size_t n, size_t size)
{
	if (!out_of_memory)
		return __real_calloc(n, size);
	errno = ENOMEM;
	return NULL;
}

Test(watch, that_finds_no_memory_for_changes_tells_that_they_were_lost_each_time)
{
	struct log log = {0};
	share_watch *w = watch("", &log);

	for (int i = 1; i <= 3; i++) {
		check_ok(share_publish(buffer, "name", NULL));
		out_of_memory = true;
		until((share_dispatch(client), log.overflows == i));
		out_of_memory = false;
		check_eq(log.n, 0);
	}
	check_ok(share_publish(buffer, "name", NULL));
	until((share_dispatch(client), log.n == 1));
	check_eq(log.overflows, 3);
	share_unwatch(w);
}

/* ------------------------------------------------------------------------------------------- */
/* Its end                                                                                     */

Test(watch, tells_nothing_after_its_end)
{
	struct log log = {0};
	share_watch *w = watch("", &log);

	check_ok(share_publish(buffer, "name", NULL));
	check_ok(share_ping(client));
	share_unwatch(w);
	check_eq(log.n, 0);
	until(share_dispatch(client) == 0);
	check_ok(share_publish(buffer, "name", NULL));
	check_ok(share_ping(client));
	share_dispatch(client);
	check_eq(log.n, 0);
	share_unwatch(NULL);
}

struct ending {
	share_watch *watch;
	int n;
};

static void end_it(const share_name_event *event, void *data)
{
	struct ending *e = data;

	(void)event;
	e->n++;
	share_unwatch(e->watch);
}

Test(watch, can_be_ended_by_its_own_callback)
{
	struct ending e = {0};

	check_ok(share_watch_names(client, "", end_it, &e, &e.watch));
	for (int i = 0; i < 10; i++)
		check_ok(share_publish(buffer, "name", NULL));
	until((share_dispatch(client), e.n == 1));
	check_ok(share_ping(client));
	share_dispatch(client);
	check_eq(e.n, 1);
}

static void call_the_library(const share_name_event *event, void *data)
{
	share_buffer *b;

	check_ok(share_ping(client));
	if (event->change == SHARE_UNPUBLISHED)
		return;
	check_ok(share_lookup(client, event->name, SHARE_RDONLY, 0, NULL, &b));
	check_eq(share_id(b), event->buffer);
	check_ok(share_release(b, NULL));
	++*(int *)data;
}

Test(watch, callbacks_may_call_the_library)
{
	share_watch *w;
	int n = 0;

	check_ok(share_watch_names(client, "", call_the_library, &n, &w));
	for (int i = 0; i < 100; i++)
		check_ok(share_publish(buffer, "name", NULL));
	until((share_dispatch(client), n == 100));
	share_unwatch(w);
}

Test(watch, keeps_the_connection_of_a_client_that_was_given_up)
{
	share_client *c = connect_as("given up");
	struct log log = {0};
	share_watch *w;

	check_ok(share_watch_names(c, "", write_down, &log, &w));
	share_disconnect(c);
	settle(client, s.clients == 3);
	share_unwatch(w);
	settle(client, s.clients == 2);
}

Test(watch, with_a_prefix_that_is_none_is_refused)
{
	char longest[SHARE_NAME_MAX + 2];
	struct log log = {0};
	share_watch *w = NULL;

	memset(longest, 'x', sizeof(longest) - 1);
	longest[SHARE_NAME_MAX + 1] = '\0';
	check_error(share_watch_names(client, longest, write_down, &log, &w), SHARE_EINVAL);
	check_error(share_watch_names(client, "\xff", write_down, &log, &w), SHARE_EINVAL);
	check_error(share_watch_names(client, "", NULL, &log, &w), SHARE_EINVAL);
	check(w == NULL);
	longest[SHARE_NAME_MAX] = '\0';
	w = watch(longest, &log);
	share_unwatch(w);
}
