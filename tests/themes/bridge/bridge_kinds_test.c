/* SPDX-License-Identifier: MIT */

/* Memory of every kind passes, by names and by channels, also where UCX does not reach it. */

#include <stdlib.h>
#include <string.h>

#include <share/channel.h>

#include "tests/themes/pools/conformance.h"

#include "tests/themes/bridge/bridge_rig.h"

TestSuite(conformance, .timeout = 120);

#define SIZE     300000
#define MESSAGES 20

static unsigned char bytes[SIZE];

static void fill(share_buffer *b, int seed)
{
	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 256 + (unsigned)seed);
	check_ok(share_copy_from_host(b, 0, bytes, SIZE, NULL));
}

static void expect(share_buffer *b, int seed)
{
	check_eq(share_size(b), SIZE);
	memset(bytes, 0, SIZE);
	check_ok(share_copy_to_host(b, 0, bytes, SIZE, NULL));
	for (size_t i = 0; i < SIZE; i++)
		if (bytes[i] != (unsigned char)(i * 7 + i / 256 + (unsigned)seed))
			check_failed(__FILE__, __LINE__, "byte %zu is wrong", i);
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
