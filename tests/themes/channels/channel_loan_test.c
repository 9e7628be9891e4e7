/* SPDX-License-Identifier: MIT */

/*
 * What a consumer can ask about the buffer of a message, which is on loan: it reads the metadata
 * and the tensor as everybody who has the buffer does, until it acknowledges. What changes or keeps
 * the buffer takes a lease.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <share/admin.h>

#include "libshare/client/client.h"
#include "tests/support/channel_work.h"
#include "tests/support/service_work.h"
#include "wire/wire.h"

static share_channel *producer, *consumer;

static void start(void)
{
	service_start();
	producer = consumer = NULL;
}

static void stop(void)
{
	share_channel_close(consumer);
	share_channel_close(producer);
	service_stop();
}

TestSuite(channel_loan, .init = start, .fini = stop, .timeout = 120);

static void open_both(uint32_t mode, uint32_t flags)
{
	share_channel_options o = options(mode, 0);

	o.flags = flags;
	producer = open_channel(asking, SHARE_PRODUCER, &o);
	consumer = open_channel(working, SHARE_CONSUMER, &o);
}

/* A buffer whose tensor has these rows of 16 numbers. */
static share_buffer *described(share_pool *p, int64_t rows)
{
	share_buffer *b = allocate(p, 4096, NULL);
	share_tensor t = SHARE_TENSOR_INIT;

	check_ok(share_tensor_init(&t, SHARE_FLOAT32, 2, (int64_t[]){rows, 16}));
	check_ok(share_metadata_set(b, "{\"camera\": \"left\"}"));
	check_ok(share_tensor_set(b, &t));
	return b;
}

static void expect_rows(share_buffer *b, int64_t rows)
{
	share_tensor t = SHARE_TENSOR_INIT;
	char *json = NULL;
	void *bytes = NULL;
	size_t size = 0;

	check_ok(share_metadata_get(b, &json));
	check(json && strstr(json, "left"));
	check_ok(share_metadata_get_raw(b, &bytes, &size));
	check(size == strlen(json) && memcmp(bytes, json, size) == 0);
	free(bytes);
	free(json);
	check_ok(share_tensor_get(b, &t));
	check_eq(t.dtype, SHARE_FLOAT32);
	check_eq(t.ndim, 2);
	check_eq(t.shape[0], rows);
	check_eq(t.shape[1], 16);
}

static share_message send_and_receive(share_buffer *b)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_send(producer, b, NULL, 0, NULL));
	check_ok(share_recv(consumer, FOREVER, NULL, &m));
	return m;
}

static void expect_nothing_of(share_buffer *b)
{
	share_tensor t = SHARE_TENSOR_INIT;
	char *json;

	check_given_up(share_metadata_get(b, &json));
	check_given_up(share_tensor_get(b, &t));
}

static void a_consumer_reads_until_it_acknowledges(uint32_t mode)
{
	share_buffer *b, *lent;
	share_message m = SHARE_MESSAGE_INIT;

	open_both(mode, 0);
	b = described(pool, 8);
	m = send_and_receive(b);
	expect_rows(m.buffer, 8);
	lent = m.buffer;
	check_ok(share_ack(&m, NULL));
	expect_nothing_of(lent);
	expect_rows(b, 8);
	check_ok(share_release(b, NULL));
}

Test(channel_loan, is_read_until_it_is_acknowledged_in_a_broadcast)
{
	a_consumer_reads_until_it_acknowledges(SHARE_BROADCAST);
}

Test(channel_loan, is_read_until_it_is_acknowledged_in_a_queue)
{
	a_consumer_reads_until_it_acknowledges(SHARE_QUEUE);
}

/* Requests go through a queue, and each answer to one caller. */
Test(channel_loan, is_read_by_the_worker_and_by_the_caller_of_a_service)
{
	share_buffer *question = described(pool, 3), *reply = described(worker_pool, 5), *lent;
	share_message request = SHARE_MESSAGE_INIT, got = SHARE_MESSAGE_INIT;
	share_pending *p;

	check_ok(share_call_start(caller, question, NULL, 0, FOREVER, NULL, &p));
	check_ok(share_release(question, NULL));
	check_ok(share_next_request(worker, FOREVER, NULL, &request));
	expect_rows(request.buffer, 3);
	lent = request.buffer;
	check_ok(share_reply(&request, reply, NULL, 0, NULL));
	expect_nothing_of(lent);
	check_ok(share_release(reply, NULL));
	check_ok(share_call_finish(p, FOREVER, NULL, &got));
	expect_rows(got.buffer, 5);
	lent = got.buffer;
	check_ok(share_ack(&got, NULL));
	expect_nothing_of(lent);
}

Test(channel_loan, that_was_retained_is_read_by_the_lease)
{
	share_buffer *b, *kept;
	share_message m = SHARE_MESSAGE_INIT;

	open_both(SHARE_BROADCAST, 0);
	b = described(pool, 8);
	m = send_and_receive(b);
	check_ok(share_release(b, NULL));
	kept = share_retain(m.buffer);
	expect_rows(kept, 8);
	check_ok(share_ack(&m, NULL));
	expect_rows(kept, 8);
	share_channel_close(consumer);
	share_channel_close(producer);
	consumer = producer = NULL;
	expect_rows(kept, 8);
	check_ok(share_release(kept, NULL));
	expect_nothing_of(kept);
}

Test(channel_loan, is_read_while_the_message_is_in_hand_whoever_has_left)
{
	share_client *gone = connect_as("producer that leaves");
	share_pool *its = open_pool(gone);
	share_buffer *b;
	share_message m = SHARE_MESSAGE_INIT;

	producer = open_channel(gone, SHARE_PRODUCER, NULL);
	consumer = open_channel(working, SHARE_CONSUMER, NULL);
	b = described(its, 8);
	m = send_and_receive(b);
	check_ok(share_release(b, NULL));
	share_channel_close(producer);
	producer = NULL;
	share_pool_close(its);
	share_disconnect(gone);
	expect_rows(m.buffer, 8);
	share_channel_close(consumer);
	consumer = NULL;
	expect_rows(m.buffer, 8);
	check_ok(share_ack(&m, NULL));
}

Test(channel_loan, tells_what_its_producer_says_now)
{
	share_buffer *b;
	share_message m = SHARE_MESSAGE_INIT;
	char *json;

	open_both(SHARE_BROADCAST, 0);
	b = allocate(pool, 4096, NULL);
	m = send_and_receive(b);
	check_error(share_metadata_get(m.buffer, &json), SHARE_ENOENT);
	check_ok(share_metadata_set(b, "[1, 2]"));
	check_ok(share_metadata_get(m.buffer, &json));
	check_eq(strcmp(json, "[1, 2]"), 0);
	free(json);
	check_ok(share_metadata_set(b, NULL));
	check_error(share_metadata_get(m.buffer, &json), SHARE_ENOENT);
	check_ok(share_ack(&m, NULL));
	check_ok(share_release(b, NULL));
}

Test(channel_loan, is_not_changed_or_kept_by_its_consumer)
{
	share_recipe recipe = SHARE_RECIPE_INIT;
	share_tensor t = SHARE_TENSOR_INIT;
	share_buffer *b, *kept;
	share_token token;
	share_message m = SHARE_MESSAGE_INIT;

	open_both(SHARE_BROADCAST, SHARE_CHANNEL_WRITABLE);
	b = described(pool, 8);
	m = send_and_receive(b);
	check_eq(share_mode(m.buffer), SHARE_RDWR);
	check_ok(share_tensor_get(m.buffer, &t));
	check_error(share_metadata_set(m.buffer, "{}"), SHARE_ESTALE);
	check_detail("share_retain()");
	check_error(share_tensor_set(m.buffer, &t), SHARE_ESTALE);
	check_error(share_get_recipe(m.buffer, &recipe), SHARE_ESTALE);
	check_error(share_publish(m.buffer, "name", NULL), SHARE_ESTALE);
	check_error(share_export(m.buffer, NULL, &token), SHARE_ESTALE);
	check_error(share_reclaim(m.buffer, 0, NULL), SHARE_EINVAL);
	expect_rows(b, 8);

	kept = share_retain(m.buffer);
	check_ok(share_ack(&m, NULL));
	check_ok(share_metadata_set(kept, "{\"camera\": \"left\", \"seen\": true}"));
	check_ok(share_tensor_set(kept, &t));
	expect_rows(b, 8);
	check_ok(share_publish(kept, "name", NULL));
	check_ok(share_release(kept, NULL));
	check_ok(share_release(b, NULL));
}

/* What cannot be sent stays what it was: there is no room, and whoever has the message has a loan.
 */
Test(channel_loan, that_finds_no_room_elsewhere_stays_one)
{
	share_channel_options o = options(SHARE_QUEUE, 0);
	share_channel *full;
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *b;

	open_both(SHARE_BROADCAST, 0);
	b = described(pool, 8);
	m = send_and_receive(b);
	o.depth = 1;
	o.in_flight = 2;
	o.when_full = SHARE_FULL_FAIL;
	check_ok(share_channel_open(working, "full", SHARE_PRODUCER, &o, &full));
	check_ok(share_send(full, NULL, NULL, 0, NULL));
	check_error(share_send(full, m.buffer, NULL, 0, NULL), SHARE_EAGAIN);
	check_error(share_publish(m.buffer, "name", NULL), SHARE_ESTALE);
	share_channel_close(full);
	check_ok(share_end_channel(working, "full"));
	check_ok(share_ack(&m, NULL));
	check_ok(share_release(b, NULL));
}

/* The lease is the connection's, whichever of its handles is named. */
Test(channel_loan, is_as_good_as_the_lease_of_the_same_connection)
{
	share_buffer *b, *found;
	share_message m = SHARE_MESSAGE_INIT;

	producer = open_channel(asking, SHARE_PRODUCER, NULL);
	consumer = open_channel(asking, SHARE_CONSUMER, NULL);
	b = described(pool, 8);
	m = send_and_receive(b);
	check_ok(share_release(b, NULL));
	for (int i = 0; i < 2; i++) {
		expect_rows(m.buffer, 8);
		client_of(asking)->version = WIRE_VERSION_CHANNEL_METADATA - 1;
	}
	check_ok(share_publish(m.buffer, "name", NULL));
	check_ok(share_ack(&m, NULL));
	check_ok(share_lookup(working, "name", SHARE_RDONLY, 0, NULL, &found));
	check_ok(share_release(found, NULL));
	check_ok(share_unpublish(asking, "name"));
}

Test(channel_loan, is_not_asked_about_where_the_broker_is_too_old)
{
	share_tensor t = SHARE_TENSOR_INIT;
	share_buffer *b, *kept;
	share_message m = SHARE_MESSAGE_INIT;
	char *json;

	open_both(SHARE_BROADCAST, 0);
	b = described(pool, 8);
	m = send_and_receive(b);
	check_eq(client_of(working)->version, WIRE_VERSION);
	client_of(working)->version = WIRE_VERSION_CHANNEL_METADATA - 1;
	check_error(share_metadata_get(m.buffer, &json), SHARE_ENOTSUP);
	check_detail("too old");
	check_error(share_tensor_get(m.buffer, &t), SHARE_ENOTSUP);
	check_detail("too old");
	kept = share_retain(m.buffer);
	check_ok(share_ack(&m, NULL));
	expect_rows(kept, 8);
	check_ok(share_release(kept, NULL));
	check_ok(share_release(b, NULL));
}

/* ------------------------------------------------------------------------------------------- */

static void *reads(void *kept)
{
	for (int i = 0; i < 200; i++)
		expect_rows(kept, 8);
	return NULL;
}

/* The lease comes, the acknowledgement goes out and the channel is closed while somebody asks. */
Test(channel_loan, that_becomes_a_lease_meanwhile_is_read_on)
{
	share_buffer *b, *kept;
	pthread_t thread;
	share_message m = SHARE_MESSAGE_INIT;

	open_both(SHARE_BROADCAST, 0);
	b = described(pool, 8);
	for (int i = 0; i < 20; i++) {
		m = send_and_receive(b);
		kept = share_retain(m.buffer);
		check_eq(pthread_create(&thread, NULL, reads, kept), 0);
		check_ok(share_ack(&m, NULL));
		share_channel_close(consumer);
		check_eq(pthread_join(thread, NULL), 0);
		check_ok(share_release(kept, NULL));
		consumer = open_channel(working, SHARE_CONSUMER, NULL);
	}
	check_ok(share_release(b, NULL));
}
