/* SPDX-License-Identifier: MIT */

/*
 * Members of a channel that are out of memory, or descriptors, when somebody joins: that is an
 * error of the call in which they would have taken note of it, and once there is memory again
 * nobody is missing. The broker hands out the descriptors of a member once.
 */

#include <errno.h>

#include "tests/harness/fixture.h"
#include "tests/support/channel_work.h"
#include "tests/themes/failure/failing.h"

TestSuite(channel_meeting, .init = fixture_start, .fini = fixture_stop, .timeout = 300);

/* Joins when it is told to, in a process of its own, where nothing fails. */
static void late_consumer(struct child *self, void *data)
{
	share_client *c = child_connect("late");
	share_channel *ch;

	(void)data;
	child_point(self, "ready");
	ch = open_channel(c, SHARE_CONSUMER, NULL);
	child_point(self, "joined");
	expect_message(ch, 2);
	share_channel_close(ch);
	share_disconnect(c);
}

static void late_producer(struct child *self, void *data)
{
	share_client *c = child_connect("late");
	share_pool *p = open_pool(c);
	share_channel *ch;

	(void)data;
	child_point(self, "ready");
	ch = open_channel(c, SHARE_PRODUCER, NULL);
	child_point(self, "joined");
	send_filled(ch, p, 3);
	child_point(self, "sent");
	share_channel_close(ch);
	share_pool_close(p);
	share_disconnect(c);
}

struct members {
	struct child *late;
	share_client *client;
	share_pool *pool;
	share_channel *producer, *consumer;
};

static void start(struct members *m, child_function late)
{
	m->late = child_start(late, NULL);
	child_wait(m->late, "ready");
	m->client = connect_as("first");
	m->pool = open_pool(m->client);
	m->producer = open_channel(m->client, SHARE_PRODUCER, NULL);
	m->consumer = open_channel(m->client, SHARE_CONSUMER, NULL);
	send_filled(m->producer, m->pool, 1);
	expect_message(m->consumer, 1);
}

static void join(struct members *m)
{
	child_go(m->late);
	child_wait(m->late, "joined");
}

static void end(struct members *m)
{
	child_go(m->late);
	child_finish(m->late);
	share_channel_close(m->consumer);
	share_channel_close(m->producer);
	share_pool_close(m->pool);
	share_disconnect(m->client);
}

/*
 * Fails in the @nth call, if there are as many, of those that this process makes from before
 * somebody joins until it has sent. Some may be the library's threads'.
 */
static bool producer_meets(unsigned what, int error, unsigned long nth)
{
	struct members m;
	share_buffer *b;
	unsigned long calls;
	int r;

	start(&m, late_consumer);
	b = filled_buffer(m.pool, 2);
	failing_set(what, nth, error, false);
	join(&m);
	r = share_send(m.producer, b, NULL, 0, NULL);
	calls = failing_count();
	failing_set(FAILING_NOTHING, 0, 0, false);
	check(r == 0 || r == SHARE_ENOMEM || r == SHARE_ESYSTEM);
	if (r != 0)
		check_ok(share_send(m.producer, b, NULL, 0, NULL));
	check_ok(share_release(b, NULL));
	expect_message(m.consumer, 2);
	end(&m);
	return calls >= nth;
}

static bool consumer_meets(unsigned what, int error, unsigned long nth)
{
	share_message none = SHARE_MESSAGE_INIT;
	struct members m;
	unsigned long calls;
	int r;

	start(&m, late_producer);
	failing_set(what, nth, error, false);
	join(&m);
	r = share_recv(m.consumer, 0, NULL, &none);
	calls = failing_count();
	failing_set(FAILING_NOTHING, 0, 0, false);
	check(r == SHARE_EAGAIN || r == SHARE_ENOMEM || r == SHARE_ESYSTEM);
	child_go(m.late);
	child_wait(m.late, "sent");
	expect_message(m.consumer, 3);
	end(&m);
	return calls >= nth;
}

Test(channel_meeting, a_producer_without_memory_does_not_miss_a_consumer)
{
	unsigned long nth = 0;

	while (producer_meets(FAILING_MEMORY | FAILING_MMAP, ENOMEM, ++nth))
		;
	check(nth > 1);
}

Test(channel_meeting, a_producer_without_descriptors_does_not_miss_a_consumer)
{
	unsigned long nth = 0;

	while (producer_meets(FAILING_EPOLL, ENOSPC, ++nth))
		;
	check(nth > 1);
}

Test(channel_meeting, a_consumer_without_memory_does_not_miss_a_producer)
{
	unsigned long nth = 0;

	while (consumer_meets(FAILING_MEMORY | FAILING_MMAP, ENOMEM, ++nth))
		;
	check(nth > 1);
}

Test(channel_meeting, a_consumer_without_descriptors_does_not_miss_a_producer)
{
	unsigned long nth = 0;

	while (consumer_meets(FAILING_EPOLL, ENOSPC, ++nth))
		;
	check(nth > 1);
}
