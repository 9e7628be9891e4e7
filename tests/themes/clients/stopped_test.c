/* SPDX-License-Identifier: MIT */

/*
 * A process is stopped (SIGSTOP, a debugger, a container that is paused), for however long: it
 * holds what it has, nobody waits for it beyond a limit of their own, and when it goes on it has
 * lost nothing.
 */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/harness/fixture.h"
#include "tests/harness/memory.h"
#include "tests/support/channel_work.h"

#define MIB (1u << 20)

/* One segment, which one buffer of a mebibyte takes. */
static const char config[] =
    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"1MiB\", "
    "\"segment_size\": \"1MiB\", \"release_threshold\": 0, \"access\": [{\"user\": \"*\", "
    "\"mode\": \"rw\"}]}, {\"name\": \"other\", \"kind\": \"host\", \"limit\": \"1MiB\"}]}";

static share_client *client;
static share_pool *pool;

static void start(void)
{
	broker_drain("100");
	fixture_start_with(config);
	client = connect_as("test");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(stopped, .init = start, .fini = stop, .timeout = 60);

/* Stopped when it returns. */
static void freeze(const struct child *c)
{
	int status;

	check(kill(c->pid, SIGSTOP) == 0);
	check(waitpid(c->pid, &status, WUNTRACED) == c->pid && WIFSTOPPED(status));
}

static void thaw(const struct child *c)
{
	check(kill(c->pid, SIGCONT) == 0);
}

static void expect_served(void)
{
	share_buffer *b;
	share_pool *p;

	check_ok(share_pool_open(client, "other", &p));
	b = allocate(p, 4096, NULL);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

/* ------------------------------------------------------------------------------------------- */

static void holds(struct child *self, void *data)
{
	share_client *c = child_connect("stopped");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, MIB / 2, NULL);

	(void)data;
	buffer_fill(b, 0x5a);
	check_ok(share_publish(b, "held", NULL));
	child_point(self, "holds");
	buffer_expect(b, 0x5a);
	check_ok(share_ping(c));
	check_ok(share_unpublish(c, "held"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(stopped, what_it_holds_and_gives_is_as_if_it_went_on)
{
	struct child *child = child_start(holds, NULL);
	share_buffer *b, *none;

	child_wait(child, "holds");
	freeze(child);
	check_ok(share_lookup(client, "held", SHARE_RDONLY, 0, NULL, &b));
	buffer_expect(b, 0x5a);
	check_ok(share_release(b, NULL));
	check_error(share_alloc(pool, MIB, NULL, &none), SHARE_ENOMEM);
	check(client_state_is(client, "stopped", "ready"));
	expect_served();
	thaw(child);
	child_go(child);
	child_finish(child);
}

/* ------------------------------------------------------------------------------------------- */

static void keeps(struct child *self, void *data)
{
	share_client *c = child_connect("stopped");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 4096, NULL);

	(void)data;
	check_ok(share_release(b, NULL)); /* to its magazine */
	child_point(self, "keeps");
	check(share_dispatch(c) >= 0); /* does what it was asked for meanwhile */
	child_point(self, "was asked");
	b = allocate(p, 4096, NULL);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* It does not answer when memory is short. Who needs that memory does not wait for good, nobody
 * else waits at all, and what it keeps comes back when it goes on. */
Test(stopped, what_it_keeps_is_asked_for_and_comes_back_when_it_goes_on)
{
	struct child *child = child_start(keeps, NULL);
	share_buffer *b;

	child_wait(child, "keeps");
	settle(client, s.leases > 0);
	freeze(child);
	check_error(share_alloc(pool, MIB, NULL, &b), SHARE_ENOMEM);
	expect_served();
	thaw(child);
	child_go(child);
	child_wait(child, "was asked");
	until(share_alloc(pool, MIB, NULL, &b) == 0);
	check_ok(share_release(b, NULL));
	settle(client, s.leases == 0);
	child_go(child);
	child_finish(child);
}

/* ------------------------------------------------------------------------------------------- */

static void maps(struct child *self, void *data)
{
	share_client *c = child_connect("stopped");
	share_pool *p = open_pool(c);
	share_buffer *b;

	(void)data;
	check_ok(share_lookup(c, "whole", SHARE_RDONLY, 0, NULL, &b));
	buffer_expect(b, 0x11);
	check_ok(share_release(b, NULL));
	child_point(self, "maps");
	b = allocate(p, 4096, NULL);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* It has an empty segment mapped, is asked to unmap it, and does not. The memory is the system's
 * again at once, and others get new one. */
Test(stopped, what_it_has_mapped_is_not_missed)
{
	share_buffer *b = allocate(pool, MIB, NULL);
	struct child *child;

	buffer_fill(b, 0x11);
	check_ok(share_publish(b, "whole", NULL));
	child = child_start(maps, NULL);
	child_wait(child, "maps");
	freeze(child);
	check_ok(share_unpublish(client, "whole"));
	check_ok(share_release(b, NULL));
	share_pool_set_cache(pool, 0);
	for (int i = 0; i < 3; i++) {
		until(share_alloc(pool, MIB, NULL, &b) == 0);
		buffer_fill(b, 0x22);
		check_ok(share_release(b, NULL));
	}
	check(client_state_is(client, "stopped", "ready"));
	thaw(child);
	child_go(child);
	child_finish(child);
}

/* ------------------------------------------------------------------------------------------- */

static void receives(struct child *self, void *data)
{
	share_client *c = child_connect("stopped");
	share_channel *ch = open_channel(c, SHARE_CONSUMER, NULL);

	(void)data;
	child_point(self, "receives");
	expect_number(ch, 1);
	expect_number(ch, 2);
	share_channel_close(ch);
	share_disconnect(c);
}

Test(stopped, what_it_was_sent_is_there_when_it_goes_on)
{
	struct child *child = child_start(receives, NULL);
	share_channel *p;

	child_wait(child, "receives");
	p = open_channel(client, SHARE_PRODUCER, NULL);
	freeze(child);
	child_go(child);
	send_number(p, 1);
	send_number(p, 2);
	thaw(child);
	child_finish(child);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */

static void loses_its_broker(struct child *self, void *data)
{
	share_client *c = child_connect("stopped");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 4096, NULL);

	(void)data;
	buffer_fill(b, 0x33);
	child_point(self, "holds");
	check_error(share_ping(c), SHARE_EDISCONNECTED);
	check_error(share_ending(c), SHARE_EDISCONNECTED);
	buffer_expect(b, 0x33);
	share_release(b, NULL);
	share_pool_close(p);
	share_disconnect(c);
}

Test(stopped, a_broker_that_ends_does_not_wait_for_it_for_good)
{
	struct child *child = child_start(loses_its_broker, NULL);

	child_wait(child, "holds");
	freeze(child);
	check(kill(broker_pid(), SIGTERM) == 0);
	check_eq(broker_wait(), 0);
	check(broker_said("'stopped') still holds") == 1);
	thaw(child);
	child_go(child);
	child_finish(child);
}
