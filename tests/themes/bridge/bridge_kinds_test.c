/* SPDX-License-Identifier: MIT */

/* Memory of every kind passes, by names, channels and services, also where UCX does not reach it;
 * and messages that have several pieces of it. */

#include <stdlib.h>
#include <string.h>

#include <share/channel.h>
#include <share/service.h>

#include "tests/themes/pools/conformance.h"

#include "tests/harness/fresh.h"
#include "tests/themes/bridge/bridge_rig.h"

TestSuite(conformance, .timeout = 120);

#define SIZE     300000
#define MESSAGES 20

static unsigned char bytes[(1 << 20) + 1];

/* Small, at the limit of what goes by itself, and in pieces; in each order. */
static const uint64_t sizes[] = {1, 65536, 4096, 65537, SIZE, (1 << 20) + 1};
#define BUFFERS 6
#define DATA    5000

static void fill(share_buffer *b, int seed)
{
	for (size_t i = 0; i < share_size(b); i++)
		bytes[i] = (unsigned char)(i * 7 + i / 256 + (unsigned)seed);
	check_ok(share_copy_from_host(b, 0, bytes, share_size(b), NULL));
}

static void expect_sized(share_buffer *b, uint64_t size, int seed)
{
	check_eq(share_size(b), size);
	memset(bytes, 0, size);
	check_ok(share_copy_to_host(b, 0, bytes, size, NULL));
	for (size_t i = 0; i < size; i++)
		if (bytes[i] != (unsigned char)(i * 7 + i / 256 + (unsigned)seed))
			check_failed(__FILE__, __LINE__, "byte %zu is wrong", i);
}

static void expect(share_buffer *b, int seed)
{
	expect_sized(b, SIZE, seed);
}

/* Six buffers and some data, which go by @seed; the buffers are to be given. */
static share_outgoing make_message(share_pool *pool, int seed, share_buffer **buffers)
{
	static unsigned char data[DATA];
	share_outgoing out = SHARE_OUTGOING_INIT;

	for (int i = 0; i < BUFFERS; i++) {
		buffers[i] = allocate(pool, sizes[(i + seed) % BUFFERS], NULL);
		fill(buffers[i], 10 * seed + i);
	}
	memset(data, seed, sizeof(data));
	out.buffers = buffers;
	out.n_buffers = BUFFERS;
	out.data = data;
	out.data_size = sizeof(data);
	out.flags = SHARE_OUTGOING_GIVE;
	return out;
}

static void expect_message(const share_message *m, int seed)
{
	check_ok(m->error);
	check_eq(m->n_buffers, BUFFERS);
	for (int i = 0; i < BUFFERS; i++)
		expect_sized(m->buffers[i], sizes[(i + seed) % BUFFERS], 10 * seed + i);
	check_eq(m->data_size, DATA);
	for (size_t i = 0; i < DATA; i++)
		check_eq(m->data[i], seed);
}

ConformanceTest(a_name_and_a_channel_pass)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *out, *in = NULL;
	share_pool *far, *near;
	share_message m = SHARE_MESSAGE_INIT;
	struct sides s;
	share_buffer *b;

	sides_begin(&s);
	far = conformance_pool(s.far, kind, OPTIONS);
	near = conformance_pool(s.near, kind, OPTIONS);
	options.pool = "test";
	options.mode = SHARE_QUEUE;
	check_ok(share_channel_open(s.far, "q", SHARE_PRODUCER, &options, &out));
	far_start(&s, (const char *const[]){"--export", "*", "--export-channel", "*", NULL});
	near_start(&s, (const char *const[]){"--pool", "test", "--import", "*", "--import-channel",
					     "q", NULL});
	b = allocate(far, SIZE, NULL);
	fill(b, 1);
	check_ok(share_publish(b, "w", NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_lookup(s.near, "w", SHARE_RDONLY, HARNESS_LIMIT_MS, NULL, &b));
	expect(b, 1);
	check_ok(share_release(b, NULL));
	options.flags = SHARE_CHANNEL_EXISTING;
	until(share_channel_open(s.near, "q", SHARE_CONSUMER, &options, &in) == 0);
	for (int i = 0; i < MESSAGES; i++) {
		b = allocate(far, SIZE, NULL);
		fill(b, i);
		check_ok(share_give(out, b, NULL, 0, NULL));
		check_ok(share_recv(in, HARNESS_LIMIT_MS, NULL, &m));
		expect(m.buffer, i);
		check_ok(share_ack(&m, NULL));
	}
	share_channel_close(out);
	share_channel_close(in);
	share_pool_close(far);
	share_pool_close(near);
	sides_end(&s);
}

static void send_message(share_channel *ch, share_pool *pool, int seed)
{
	share_buffer *buffers[BUFFERS];
	share_outgoing out = make_message(pool, seed, buffers);

	check_eq(share_send_many(ch, &out, 1, NULL), 1);
}

ConformanceTest(messages_of_several_buffers_pass)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *out, *in = NULL;
	share_pool *far, *near;
	struct sides s;

	sides_begin(&s);
	far = conformance_pool(s.far, kind, OPTIONS);
	near = conformance_pool(s.near, kind, OPTIONS);
	options.pool = "test";
	options.mode = SHARE_QUEUE;
	options.depth = 4;
	options.in_flight = 64;
	options.buffers = BUFFERS;
	options.data_max = DATA;
	options.send_timeout_ms = HARNESS_LIMIT_MS;
	check_ok(share_channel_open(s.far, "q", SHARE_PRODUCER, &options, &out));
	far_start(&s, (const char *const[]){"--pool", "test", "--export-channel", "*", NULL});
	near_start(&s, (const char *const[]){"--pool", "test", "--import-channel", "q", NULL});
	options.flags = SHARE_CHANNEL_EXISTING;
	until(share_channel_open(s.near, "q", SHARE_CONSUMER, &options, &in) == 0);
	for (int seed = 0; seed < 4 * 4; seed += 4) {
		for (int i = 0; i < 4; i++)
			send_message(out, far, seed + i);
		for (int i = 0; i < 4; i++) {
			check_ok(share_recv(in, HARNESS_LIMIT_MS, NULL, fresh(&m)));
			expect_message(&m, seed + i);
			check_ok(share_ack(&m, NULL));
		}
	}
	share_channel_close(out);
	share_channel_close(in);
	share_pool_close(far);
	share_pool_close(near);
	sides_end(&s);
}

static share_service *open_service(share_client *c, int role)
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_service *s;

	options.pool = "test";
	options.buffers = BUFFERS;
	options.data_max = DATA;
	check_ok(share_service_open(c, "s", role, &options, &s));
	return s;
}

ConformanceTest(a_question_of_several_buffers_gets_such_an_answer)
{
	share_message m = SHARE_MESSAGE_INIT, answer = SHARE_MESSAGE_INIT;
	share_service *worker, *caller;
	share_pool *far, *near;
	struct sides s;

	sides_begin(&s);
	far = conformance_pool(s.far, kind, OPTIONS);
	near = conformance_pool(s.near, kind, OPTIONS);
	worker = open_service(s.far, SHARE_WORKER);
	far_start(&s, (const char *const[]){"--pool", "test", "--export-service", "*", NULL});
	near_start(&s, (const char *const[]){"--pool", "test", "--import-service", "s", NULL});
	caller = open_service(s.near, SHARE_CALLER);
	for (int seed = 0; seed < 6; seed++) {
		share_buffer *buffers[BUFFERS];
		share_outgoing out = make_message(near, seed, buffers);
		share_pending *p;

		check_ok(share_call_start_with(caller, &out, HARNESS_LIMIT_MS, NULL, &p));
		check_ok(share_next_request(worker, HARNESS_LIMIT_MS, NULL, fresh(&m)));
		expect_message(&m, seed);
		out = make_message(far, 100 + seed, buffers);
		check_ok(share_reply_with(&m, &out, NULL));
		check_ok(share_call_finish(p, HARNESS_LIMIT_MS, NULL, fresh(&answer)));
		expect_message(&answer, 100 + seed);
		check_ok(share_ack(&answer, NULL));
	}
	share_service_close(caller);
	share_service_close(worker);
	share_pool_close(far);
	share_pool_close(near);
	sides_end(&s);
}
