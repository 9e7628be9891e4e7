/* SPDX-License-Identifier: MIT */

/*
 * The broker is killed, and the next one goes on: who is connected notices nothing but a pause, and
 * who dies while there is none is noticed afterwards. The broker of these tests also dies when it
 * handles a request with a certain name in it (dying_broker.c).
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/admin.h>
#include <share/channel.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"

#define SIZE 4096

static void start(void)
{
	broker_use_program(DYING_BROKER);
	fixture_start();
}

TestSuite(restart, .init = start, .fini = fixture_stop, .timeout = 120);

Test(restart, a_connection_lives_on)
{
	share_client *c = connect_as("one");
	share_pool *p = open_pool(c);

	for (int i = 0; i < 5; i++) {
		broker_kill_serving();
		share_release(allocate(p, SIZE, NULL), NULL);
	}
	share_pool_close(p);
	share_disconnect(c);
}

Test(restart, buffers_names_tokens_and_metadata_are_there)
{
	share_client *c = connect_as("one"), *other;
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 1000, NULL), *found;
	share_token token;
	char *json;

	memset(share_ptr(b), 0x5a, 1000);
	check_ok(share_metadata_set(b, "{\"a\": 1}"));
	check_ok(share_publish(b, "thing", NULL));
	check_ok(share_export(b, NULL, &token));
	broker_kill_serving();
	other = connect_as("two");
	check_ok(share_lookup(other, "thing", SHARE_RDONLY, 0, NULL, &found));
	check_eq(share_size(found), 1000);
	check_eq(share_name_version(found), 1);
	check_eq(((const unsigned char *)share_ptr(found))[999], 0x5a);
	check_ok(share_metadata_get(found, &json));
	check(strcmp(json, "{\"a\": 1}") == 0);
	free(json);
	share_release(found, NULL);
	broker_kill_serving();
	check_ok(share_import(other, &token, SHARE_RDONLY, NULL, &found));
	check_eq(share_id(found), share_id(b));
	broker_kill_serving();
	check_error(share_import(other, &token, SHARE_RDONLY, NULL, &found), SHARE_ENOENT);
	share_release(found, NULL);
	share_release(b, NULL);
	check_ok(share_unpublish(c, "thing"));
	/* its identifier does not come again */
	b = allocate(p, 1000, NULL);
	check(share_id(b) != share_id(found));
	share_release(b, NULL);
	share_pool_close(p);
	share_disconnect(other);
	share_disconnect(c);
}

#define SOME 300

static void fill(share_buffer *b, int number)
{
	memset(share_ptr(b), number & 0xff, share_size(b));
}

static void check_filled(share_buffer *b, int number)
{
	const unsigned char *bytes = share_ptr(b);

	check_eq(bytes[0], number & 0xff);
	check_eq(bytes[share_size(b) - 1], number & 0xff);
}

/* Of many sizes, some in the place of others that were there before: so they lie in another order
 * than the journal has them. */
static void allocate_some(share_pool *p, share_buffer **buffers)
{
	for (int i = 0; i < SOME; i++)
		buffers[i] = allocate(p, 1 + (size_t)i * 37, NULL);
	for (int i = 0; i < SOME; i += 3)
		share_release(buffers[i], NULL);
	for (int i = SOME - SOME % 3; i > 0; i -= 3)
		buffers[i - 3] = allocate(p, 1 + (size_t)i * 11, NULL);
	for (int i = 0; i < SOME; i++)
		fill(buffers[i], i);
}

Test(restart, new_buffers_lie_where_nothing_else_does)
{
	share_buffer *buffers[SOME], *more[SOME];
	share_client *c = connect_as("one");
	share_pool *p = open_pool(c);

	allocate_some(p, buffers);
	broker_kill_serving();
	allocate_some(p, more);
	broker_kill_serving();
	for (int i = 0; i < SOME; i++) {
		check_filled(buffers[i], i);
		check_filled(more[i], i);
		share_release(buffers[i], NULL);
		share_release(more[i], NULL);
	}
	settle(c, s.buffers == 0);
	broker_kill_serving();
	settle(c, s.buffers == 0);
	share_pool_close(p);
	share_disconnect(c);
}

#define MANY 1100

/* The record of a lease that counts more than a thousand has another form. */
Test(restart, a_buffer_that_was_found_a_thousand_times_is_given_back_as_often)
{
	share_client *c = connect_as("one");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, SIZE, NULL), *found[MANY];

	check_ok(share_publish(b, "often", NULL));
	for (int i = 0; i < MANY; i++) {
		check_ok(share_lookup(c, "often", SHARE_RDONLY, 0, NULL, &found[i]));
		if (i == MANY / 2)
			broker_kill_serving();
	}
	check_ok(share_unpublish(c, "often"));
	share_release(b, NULL);
	broker_kill_serving();
	for (int i = 1; i < MANY; i++)
		share_release(found[i], NULL);
	broker_kill_serving();
	settle(c, s.buffers == 1);
	share_release(found[0], NULL);
	settle(c, s.buffers == 0);
	share_pool_close(p);
	share_disconnect(c);
}

static void on_lookup(share_buffer *b, int error, void *data)
{
	check_ok(error);
	*(share_buffer **)data = b;
}

Test(restart, a_request_that_waits_goes_on_waiting)
{
	share_client *c = connect_as("one"), *other = connect_as("two");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, SIZE, NULL), *found = NULL;
	share_operation *o;

	check_ok(share_lookup_async(other, "later", SHARE_RDONLY, -1, NULL, on_lookup, &found, &o));
	/* the broker has heard of it: what comes after it is answered */
	check_ok(share_ping(other));
	broker_kill_serving();
	check_ok(share_ping(other));
	broker_kill_serving();
	check_ok(share_publish(b, "later", NULL));
	until((share_dispatch(other), found));
	check_eq(share_id(found), share_id(b));
	share_cancel(o);
	share_release(found, NULL);
	share_release(b, NULL);
	share_pool_close(p);
	share_disconnect(other);
	share_disconnect(c);
}

static void wait_for_it(struct child *self, void *data)
{
	share_client *c = child_connect("child");
	share_pool *p = open_pool(c);
	share_host_stream *s;
	share_buffer *b;

	check_ok(share_host_stream_create(c, &s));
	b = allocate(p, SIZE, NULL);
	gate_hold(data, s);
	check_ok(share_publish(b, "from-child", s));
	child_point(self, "published");
}

/* Its work will never be done, and there is no broker to say so when it dies. */
Test(restart, who_waits_for_a_process_that_dies_meanwhile_is_set_free)
{
	struct gate *gate = gate_new();
	struct child *child = child_start(wait_for_it, gate);
	share_client *c = connect_as("one");
	share_host_stream *s;
	share_buffer *b;

	child_wait(child, "published");
	check_ok(share_host_stream_create(c, &s));
	check_ok(share_lookup(c, "from-child", SHARE_RDONLY, 0, s, &b));
	broker_kill_serving_for_now();
	child_kill(child);
	broker_let_keeper_go_on();
	check_ok(share_host_stream_synchronize(s));
	until(share_buffer_status(b) == SHARE_EOWNERDEAD);
	share_release(b, NULL);
	share_host_stream_destroy(s);
	share_disconnect(c);
	gate_free(gate);
}

static void hold(struct child *self, void *data)
{
	share_client *c = child_connect("child");
	share_pool *p = open_pool(c);

	(void)data;
	allocate(p, SIZE, NULL);
	check_ok(share_publish(allocate(p, SIZE, NULL), "held", NULL));
	child_point(self, "holds");
}

Test(restart, what_the_dead_held_comes_back)
{
	struct child *child = child_start(hold, NULL);
	share_client *c = connect_as("one");
	share_buffer *b;

	child_wait(child, "holds");
	settle(c, s.buffers == 2);
	broker_kill_serving_for_now();
	child_kill(child);
	broker_let_keeper_go_on();
	settle(c, s.buffers == 0 && s.clients == 1);
	check_error(share_lookup(c, "held", SHARE_RDONLY, 0, NULL, &b), SHARE_ENOENT);
	share_disconnect(c);
}

/* Nobody tells the broker when work is done, and nobody asks for the memory. */
Test(restart, memory_that_work_still_ran_on_goes_back_when_it_is_done)
{
	struct gate *gate = gate_new();
	share_client *c = connect_as("one");
	share_pool *p = open_pool(c);
	share_host_stream *stream;
	share_buffer *b = allocate(p, SIZE, NULL);

	check_ok(share_host_stream_create(c, &stream));
	gate_hold(gate, stream);
	check_ok(share_release(b, stream));
	settle(c, s.buffers == 0);
	broker_kill_serving();
	gate_open(gate);
	settle(c, s.segments == 0);
	share_host_stream_destroy(stream);
	share_pool_close(p);
	share_disconnect(c);
	gate_free(gate);
}

static void pass_on(share_channel *from, share_channel *to, int number)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_send(from, NULL, &number, sizeof(number), NULL));
	check_ok(share_recv(to, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(*(const int *)m.data, number);
	check_ok(share_ack(&m, NULL));
}

Test(restart, channels_go_on_and_members_come_and_go)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_client *c = connect_as("one"), *other = connect_as("two");
	share_channel *from, *to, *second;
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_channel_open(c, "channel", SHARE_PRODUCER, &options, &from));
	check_ok(share_channel_open(other, "channel", SHARE_CONSUMER, &options, &to));
	/* so that each knows all that it has to ask the broker for */
	pass_on(from, to, 6);
	pass_on(from, to, 7);
	broker_kill_serving_for_now();
	pass_on(from, to, 8);
	broker_let_keeper_go_on();
	check_ok(share_channel_open(other, "channel", SHARE_CONSUMER, &options, &second));
	pass_on(from, second, 9);
	broker_kill_serving();
	check_ok(share_recv(to, HARNESS_LIMIT_MS, NULL, &m));
	check_ok(share_ack(&m, NULL));
	share_channel_close(from);
	share_channel_close(to);
	share_channel_close(second);
	share_disconnect(other);
	share_disconnect(c);
}

static int ignore_change(const char *json, void *data)
{
	(void)json, (void)data;
	return 0;
}

/* The keeper has the configuration as it was at the start. */
/* What could not be sent comes to nobody later. */
Test(restart, who_waits_for_room_waits_for_the_next_broker_too)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_client *c = connect_as("producer"), *other = connect_as("consumer");
	share_channel *out, *in;
	share_message m = SHARE_MESSAGE_INIT;
	int n;

	options.mode = SHARE_QUEUE;
	options.depth = 4;
	options.send_timeout_ms = 1;
	check_ok(share_channel_open(c, "q", SHARE_PRODUCER, &options, &out));
	for (n = 0; n < 4; n++)
		check_ok(share_send(out, NULL, &n, sizeof(n), NULL));
	broker_kill_serving_for_now();
	check_error(share_send(out, NULL, &n, sizeof(n), NULL), SHARE_ETIMEDOUT);
	check_error(share_channel_flush(out, 1), SHARE_ETIMEDOUT);
	broker_let_keeper_go_on();
	check_ok(share_channel_open(other, "q", SHARE_CONSUMER, &options, &in));
	for (n = 0; n < 4; n++) {
		check_ok(share_recv(in, HARNESS_LIMIT_MS, NULL, &m));
		check(m.data_size == sizeof(n) && memcmp(m.data, &n, sizeof(n)) == 0);
		check_ok(share_ack(&m, NULL));
	}
	check_ok(share_channel_flush(out, HARNESS_LIMIT_MS));
	check_error(share_recv(in, 0, NULL, &m), SHARE_EAGAIN);
	share_channel_close(in);
	share_channel_close(out);
	share_disconnect(other);
	share_disconnect(c);
}

Test(restart, a_configuration_that_was_read_again_stays_in_force)
{
	share_client *c = connect_as("one");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, SIZE, NULL);
	char config[1024];
	share_token token;

	check_ok(share_export(b, NULL, &token));
	check_ok(share_export(b, NULL, &token));
	snprintf(config, sizeof(config), "{\"limits\": {\"tokens\": 2}, %s",
		 broker_default_config + 1);
	broker_write_config(config);
	check_ok(share_reload(c, ignore_change, NULL));
	check_error(share_export(b, NULL, &token), SHARE_EQUOTA);
	broker_kill_serving();
	until(share_export(b, NULL, &token) == SHARE_EQUOTA);
	share_release(b, NULL);
	share_pool_close(p);
	share_disconnect(c);
}

/* Each broker that handles it crashes; the third does not try. */
Test(restart, a_request_that_kills_brokers_costs_its_client)
{
	share_client *c = connect_as("one"), *deadly = connect_as("its client");
	share_pool *p = open_pool(c);
	share_buffer *b;

	check_error(share_lookup(deadly, "deadly", SHARE_RDONLY, 0, NULL, &b), SHARE_EDISCONNECTED);
	check_detail("brokers have crashed");
	share_release(allocate(p, SIZE, NULL), NULL);
	share_pool_close(p);
	share_disconnect(deadly);
	share_disconnect(c);
}

/* Who is no administrator, as this test is. */
static void asks_again_and_again(struct child *self, void *data)
{
	share_buffer *b, *own;
	share_client *c;
	share_pool *p;

	(void)data;
	child_become(4712, 0);
	c = child_connect("its client");
	check_error(share_lookup(c, "deadly", SHARE_RDONLY, 0, NULL, &b), SHARE_EDISCONNECTED);
	check_detail("brokers have crashed");
	share_disconnect(c);
	for (int i = 0; i < 10; i++) {
		c = child_connect("its client");
		p = open_pool(c);
		own = allocate(p, SIZE, NULL);
		check_error(share_lookup(c, "deadly", SHARE_RDONLY, 0, NULL, &b), SHARE_ESYSTEM);
		check_detail("brokers have crashed over requests of this type");
		check_error(share_lookup(c, "other", SHARE_RDONLY, 0, NULL, &b), SHARE_ESYSTEM);
		check_ok(share_inspect(c, "status", ignore_change, NULL));
		share_release(own, NULL);
		share_pool_close(p);
		share_disconnect(c);
		child_point(self, "again");
	}
}

Test(restart, a_request_that_crashes_brokers_is_not_tried_again_when_its_user_comes_again)
{
	share_client *c;
	struct child *child;
	share_buffer *b;

	skip_unless_root();
	c = connect_as("one");
	child = child_start(asks_again_and_again, NULL);
	for (int i = 0; i < 10; i++) {
		child_wait(child, "again");
		/* others are not refused what this user is, nor does another broker forget it */
		check_error(share_lookup(c, "other", SHARE_RDONLY, 0, NULL, &b), SHARE_ENOENT);
		if (i % 3 == 0)
			broker_kill_serving();
		child_go(child);
	}
	child_finish(child);
	check_eq(broker_said("has died (signal 6, Aborted)"), 2);
	check_eq(broker_said("it was handling a request LOOKUP of user"), 2);
	share_disconnect(c);
}
