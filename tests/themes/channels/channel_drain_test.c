/* SPDX-License-Identifier: MIT */

/* A producer waits until all that it has sent was acknowledged. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include <share/fence.h>

#include "tests/harness/child.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

static share_client *client, *other;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("producer");
	other = connect_as("consumer");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_drain, .init = start, .fini = stop, .timeout = 60);

struct drain {
	share_channel *ch;
	pthread_t thread;
	atomic_bool over;
};

static void *drains(void *p)
{
	struct drain *d = p;

	check_ok(share_channel_drain(d->ch, HARNESS_LIMIT_MS));
	atomic_store(&d->over, true);
	return NULL;
}

static void start_to_drain(struct drain *d, share_channel *ch)
{
	d->ch = ch;
	atomic_init(&d->over, false);
	check(pthread_create(&d->thread, NULL, drains, d) == 0);
}

static share_message receive(share_channel *c)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	return m;
}

static void waits_for_the_last(uint32_t mode)
{
	share_channel_options o = options(mode, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;
	share_message m[3] = {SHARE_MESSAGE_INIT};
	struct drain d[2];
	char who[64];

	check_ok(share_channel_drain(p, 0));
	for (int i = 0; i < 3; i++)
		send_filled(p, pool, i);
	check_error(share_channel_drain(p, 0), SHARE_EAGAIN);
	check_detail("messages wait for a consumer, and the channel has none");
	start_to_drain(&d[0], p);
	c = open_channel(other, SHARE_CONSUMER, &o);
	for (int i = 0; i < 3; i++)
		m[i] = receive(c);
	/* the last first */
	check_ok(share_ack(&m[2], NULL));
	check_ok(share_ack(&m[1], NULL));
	check_error(share_channel_drain(p, 0), SHARE_EAGAIN);
	check_error(share_channel_drain(p, 1), SHARE_ETIMEDOUT);
	snprintf(who, sizeof(who), "pid %d has yet to acknowledge messages", getpid());
	check_detail(who);
	start_to_drain(&d[1], p);
	check(!atomic_load(&d[0].over) && !atomic_load(&d[1].over));
	check_ok(share_ack(&m[0], NULL));
	for (int i = 0; i < 2; i++)
		check(pthread_join(d[i].thread, NULL) == 0);
	check_eq(channel_stats(p).done, 3);
	check_ok(share_channel_drain(p, 0));
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_drain, in_a_queue_it_ends_with_the_last_acknowledgement)
{
	waits_for_the_last(SHARE_QUEUE);
}

Test(channel_drain, in_a_broadcast_it_ends_with_the_last_acknowledgement)
{
	waits_for_the_last(SHARE_BROADCAST);
}

/* At no time is everything acknowledged. */
Test(channel_drain, what_is_sent_meanwhile_is_not_waited_for)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o);
	share_message held = SHARE_MESSAGE_INIT;
	struct drain d;
	uint32_t n = 0;

	send_number(p, n++);
	held = receive(c);
	start_to_drain(&d, p);
	while (!atomic_load(&d.over)) {
		share_message next = SHARE_MESSAGE_INIT;

		send_number(p, n++);
		next = receive(c);
		check_ok(share_ack(&held, NULL));
		held = next;
	}
	check(pthread_join(d.thread, NULL) == 0);
	check_error(share_channel_drain(p, 0), SHARE_EAGAIN);
	check_ok(share_ack(&held, NULL));
	check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
	share_channel_close(c);
	share_channel_close(p);
}

/* Has the first message until it is killed. */
static void hold_one(struct child *self, void *data)
{
	share_channel *ch = open_channel(child_connect("holder"), SHARE_CONSUMER, NULL);
	share_message m = receive(ch);

	(void)data;
	child_point(self, "holds");
	check_ok(share_ack(&m, NULL));
}

Test(channel_drain, all_consumers_of_a_broadcast_are_waited_for_but_not_one_that_is_gone)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;
	struct child *holder = child_start(hold_one, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	until(channel_stats(p).consumers == 1);
	c = open_channel(other, SHARE_CONSUMER, &o);
	send_filled(p, pool, 1);
	m = receive(c);
	child_wait(holder, "holds");
	check_error(share_channel_drain(p, 0), SHARE_EAGAIN);
	check_detail(" and 1 other have yet to acknowledge messages");
	check_ok(share_ack(&m, NULL));
	check_error(share_channel_drain(p, 0), SHARE_EAGAIN);
	check_detail(" has yet to acknowledge messages");
	child_kill(holder);
	check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_drain, what_a_queue_has_set_aside_or_dropped_is_done_with)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_DROP);
	struct child *holder;
	share_channel *p, *c;

	o.depth = 2;
	o.deliveries = 1;
	p = open_channel(client, SHARE_PRODUCER, &o);
	for (uint32_t i = 0; i < 3; i++)
		send_number(p, i);
	check_eq(channel_stats(p).dropped, 1);
	holder = child_start(hold_one, NULL);
	child_wait(holder, "holds");
	check_error(share_channel_drain(p, 0), SHARE_EAGAIN);
	child_kill(holder);
	until(channel_stats(p).set_aside == 1);
	check_error(share_channel_drain(p, 0), SHARE_EAGAIN); /* the last one waits */
	check_detail("messages wait for a consumer, and the channel has none");
	c = open_channel(other, SHARE_CONSUMER, &o);
	expect_number(c, 2);
	check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_drain, work_that_was_enqueued_before_the_acknowledgement_is_not_waited_for)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o);
	struct gate *gate = gate_new();
	share_host_stream *stream;
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_host_stream_create(other, &stream));
	send_filled(p, pool, 1);
	m = receive(c);
	gate_hold(gate, stream);
	check_ok(share_ack(&m, stream));
	check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
	check_eq(in_flight(p), 1);
	gate_open(gate);
	until(in_flight(p) == 0);
	check_ok(share_host_stream_synchronize(stream));
	share_host_stream_destroy(stream);
	gate_free(gate);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_drain, it_is_for_producers_and_has_a_time_limit)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);

	check_error(share_channel_drain(c, 0), SHARE_EACCES);
	check_error(share_channel_drain(p, -2), SHARE_EINVAL);
	check_error(share_channel_drain(NULL, 0), SHARE_EINVAL);
	share_channel_close(c);
	share_channel_close(p);
}
