/* SPDX-License-Identifier: MIT */

/* What is easily forgotten about messages: streams that are busy when they come, producers that are
 * gone by then, memory that is not the channel's. */

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <share/private/core.h>

#include "libshare/sender/inside.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

static share_client *client, *other;
static share_pool *pool;
static share_host_stream *stream;
static struct gate *gate;

static void start(void)
{
	fixture_start();
	client = connect_as("producer");
	other = connect_as("consumer");
	pool = open_pool(client);
	check_ok(share_host_stream_create(client, &stream));
	gate = gate_new();
}

static void stop(void)
{
	gate_open(gate);
	share_host_stream_destroy(stream);
	gate_free(gate);
	share_pool_close(pool);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_promises, .init = start, .fini = stop, .timeout = 60);

static bool polls_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, HARNESS_LIMIT_MS) == 1;
}

/* ------------------------------------------------------------------------------------------- */

Test(channel_promises, an_event_loop_is_told_when_a_message_that_came_early_is_ready)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_buffer *b = allocate(pool, 4096, stream);
	int fd = share_channel_get_fd(c), r;
	share_message m = SHARE_MESSAGE_INIT;

	gate_hold(gate, stream);
	gate_fill(gate, stream, share_ptr(b), 5, 4096);
	check_ok(share_give(p, b, NULL, 0, stream));
	expect_nothing(c);
	gate_open(gate);
	while ((r = share_recv(c, 0, NULL, &m)) == SHARE_EAGAIN)
		check(polls_readable(fd));
	check_ok(r);
	expect_filled(share_ptr(m.buffer), 5, 4096);
	check_ok(share_ack(&m, NULL));
	expect_nothing(c);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_promises, an_event_loop_sleeps_until_then)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_buffer *b = allocate(pool, 4096, stream);
	int fd = share_channel_get_fd(c), r;
	share_message m = SHARE_MESSAGE_INIT;

	gate_hold(gate, stream);
	check_ok(share_give(p, b, NULL, 0, stream));
	expect_nothing(c);
	expect_nothing(c);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(stream));
	check(polls_readable(fd));
	r = share_recv(c, 0, NULL, &m);
	check_ok(r);
	check_ok(share_ack(&m, NULL));
	share_channel_close(c);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */

Test(channel_promises, data_alone_come_after_the_work_that_was_enqueued_before)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	uint32_t number = 5;

	gate_hold(gate, stream);
	check_ok(share_send(p, NULL, &number, sizeof(number), stream));
	expect_nothing(c);
	gate_open(gate);
	expect_number(c, 5);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_promises, the_end_of_a_channel_is_told_to_who_receives_many_at_a_time)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m[4] = {SHARE_MESSAGE_INIT};

	send_number(p, 1);
	send_number(p, 2);
	share_channel_close(p);
	check_eq(share_recv_many(c, HARNESS_LIMIT_MS, NULL, m, 4), 2);
	check_ok(share_ack_many(m, 2, NULL));
	check_error(share_recv_many(c, 0, NULL, m, 4), SHARE_EPIPE);
	check_error(share_recv_many(c, 0, NULL, m, 4), SHARE_EAGAIN);
	share_channel_close(c);
}

/* ------------------------------------------------------------------------------------------- */

Test(channel_promises, what_waits_for_a_consumer_outlives_its_producer)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;

	send_number(p, 1);
	share_channel_close(p);
	c = open_channel(other, SHARE_CONSUMER, &o);
	expect_number(c, 1);
	share_channel_close(c);
}

/* ------------------------------------------------------------------------------------------- */

/* A message as only a producer can send that does not go by the rules. */
static void send_forged(share_channel *p, const struct ring_message *m)
{
	struct sender *sender = sender_lock(channel_of(p));
	struct channel_sent *sent = sender->unsent;

	sender->unsent = sent->next;
	sent->buffer = NULL;
	check_eq(ring_producer_send(sender->ring, m, 0, sent), 0);
	members_ring_doorbells(sender->members, ring_producer_wake(sender->ring));
	channel_unlock(channel_of(p));
}

Test(channel_promises, a_message_leads_to_no_memory_of_another_pool)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_pool_options host = SHARE_POOL_OPTIONS_INIT;
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	struct ring_message forged = {.size = 4096};
	share_channel *c;
	share_pool *own;
	share_buffer *b;
	share_message m = SHARE_MESSAGE_INIT;

	o.flags = SHARE_CHANNEL_WRITABLE;
	c = open_channel(other, SHARE_CONSUMER, &o);
	host.kind = "host";
	check_ok(share_pool_create(other, "own", &host, &own));
	b = filled_buffer(own, 7);
	check_ok(share_buffer_get_info(b, &info));
	forged.buffer = share_id(b);
	forged.segment = info.segment;
	forged.offset = info.offset;
	send_forged(p, &forged);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check(m.error < 0 && m.channel && !m.buffer);
	check_ok(share_ack(&m, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(own);
	share_channel_close(c);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */

/* Sends a message whose memory is never filled. */
static void never_fill(struct child *self, void *data)
{
	share_client *c = child_connect("late");
	share_host_stream *s;
	share_channel *ch;
	share_buffer *b;
	share_pool *p;

	check_ok(share_pool_open(c, "default", &p));
	check_ok(share_host_stream_create(c, &s));
	check_ok(share_channel_open(c, "channel", SHARE_PRODUCER, NULL, &ch));
	check_ok(share_alloc(p, 4096, s, &b));
	gate_hold(data, s);
	check_ok(share_give(ch, b, NULL, 0, s));
	child_point(self, "sent");
}

Test(channel_promises, work_of_a_producer_that_died_before_it_was_known_is_not_taken_for_done)
{
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	struct child *child = child_start(never_fill, gate);
	share_message m = SHARE_MESSAGE_INIT;

	child_wait(child, "sent");
	child_kill(child);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_error(m.error, SHARE_EOWNERDEAD);
	check_detail("died before its work was done");
	check(m.channel && !m.buffer && m.n_buffers == 0);
	check_ok(share_ack(&m, NULL));
	share_channel_close(c);
}

Test(channel_promises, a_descriptor_that_is_asked_for_late_tells_all_the_same)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	struct pollfd ready = {.events = POLLIN};
	share_message m = SHARE_MESSAGE_INIT;

	check_error(share_recv(c, 0, NULL, &m), SHARE_EAGAIN);
	ready.fd = share_channel_get_fd(c);
	check(ready.fd >= 0);
	check_ok(share_send(p, NULL, "late", 5, NULL));
	check_eq(poll(&ready, 1, HARNESS_LIMIT_MS), 1);
	check_ok(share_recv(c, 0, NULL, &m));
	check_ok(share_ack(&m, NULL));
	/* and not for ever */
	check_error(share_recv(c, 0, NULL, &m), SHARE_EAGAIN);
	check_eq(poll(&ready, 1, 0), 0);
	share_channel_close(c);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* For those who must not wait                                                                 */

Test(channel_promises, who_must_not_wait_gets_what_is_good_already_and_in_order)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	check_error(share_try_recv(c, &m), SHARE_EAGAIN);
	check(!m.channel);
	check_error(share_try_recv(p, &m), SHARE_EACCES);
	check_error(share_try_recv(c, NULL), SHARE_EINVAL);
	/* its first memory has to be mapped, after that it is there */
	send_filled(p, pool, 1);
	expect_message(c, 1);
	for (int i = 0; i < 100; i++) {
		send_filled(p, pool, i);
		check_ok(share_try_recv(c, &m));
		expect_filled(share_ptr(m.buffer), i, 4096);
		check_ok(share_try_ack(&m));
		check(!m.channel);
		check_error(share_try_ack(&m), SHARE_EINVAL);
	}
	check_eq(in_flight(p), 0);
	/* what is not good yet holds up what was sent after it */
	gate_hold(gate, stream);
	check_ok(share_send(p, NULL, "first", 6, stream));
	check_ok(share_send(p, NULL, "second", 7, NULL));
	check_error(share_try_recv(c, &m), SHARE_EAGAIN);
	check_error(share_try_recv(c, &m), SHARE_EAGAIN);
	check_error(share_recv(c, 0, NULL, &m), SHARE_EAGAIN);
	gate_open(gate);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(strcmp((const char *)m.data, "first"), 0);
	check_ok(share_try_ack(&m));
	check_ok(share_try_recv(c, &m));
	check_eq(strcmp((const char *)m.data, "second"), 0);
	check_ok(share_ack(&m, NULL));
	share_channel_close(c);
	share_channel_close(p);
}

static share_message receive_filled(share_channel *p, share_channel *c)
{
	share_message m = SHARE_MESSAGE_INIT;

	send_filled(p, pool, 1);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	return m;
}

/* Whatever it is, the message stays, and share_ack() does it. */
static void expect_more_than_a_moment(share_message *m)
{
	check_error(share_try_ack(m), SHARE_EAGAIN);
	check(m->channel);
	check_ok(share_ack(m, NULL));
	check(!m->channel);
}

Test(channel_promises, who_must_not_wait_keeps_a_message_that_takes_more)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m = receive_filled(p, c);
	share_host_stream *s;
	share_buffer *kept = share_retain(m.buffer);

	check_error(share_try_ack(NULL), SHARE_EINVAL);
	expect_more_than_a_moment(&m); /* it takes a lease */
	check_ok(share_release(kept, NULL));
	check_ok(share_host_stream_create(other, &s));
	m = receive_filled(p, c);
	gate_hold(gate, s);
	share_retain(m.buffer);
	check_ok(share_release(m.buffer, s)); /* that is still to come */
	check_error(share_try_ack(&m), SHARE_EAGAIN);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(s));
	check_ok(share_try_ack(&m));
	m = receive_filled(p, c);
	share_channel_close(c); /* it ends with the message */
	expect_more_than_a_moment(&m);
	check_eq(in_flight(p), 0);
	share_host_stream_destroy(s);
	share_channel_close(p);
}
