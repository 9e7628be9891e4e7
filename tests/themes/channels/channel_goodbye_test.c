/* SPDX-License-Identifier: MIT */

/* A client that is given up before its channel: the memory of messages is not used again before
 * those who have acknowledged them are done with it. */

#include <stdlib.h>
#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

#define BLOCK (1u << 20)

/* With room for one block. */
static const char config[] =
    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"1MiB\", "
    "\"segment_size\": \"1MiB\", \"release_threshold\": 0}]}";

static void start(void)
{
	fixture_start_with(config);
}

TestSuite(channel_goodbye, .init = start, .fini = fixture_stop, .timeout = 60);

Test(channel_goodbye, what_is_still_read_is_not_used_again_when_the_client_is_given_up_first)
{
	share_client *client = connect_as("producer"), *other = connect_as("consumer");
	share_client *third = connect_as("third");
	share_pool *pool = open_pool(client), *theirs = open_pool(third);
	struct gate *gate = gate_new();
	share_host_stream *reading;
	share_channel *p, *c;
	share_buffer *b;
	share_message m = SHARE_MESSAGE_INIT;
	int r;

	check_ok(share_pool_set_cache(pool, BLOCK));
	check_ok(share_host_stream_create(other, &reading));
	p = open_channel(client, SHARE_PRODUCER, NULL);
	c = open_channel(other, SHARE_CONSUMER, NULL);
	b = allocate(pool, BLOCK, NULL);
	memset(share_ptr(b), 5, BLOCK);
	check_ok(share_give(p, b, NULL, 0, NULL));
	check_ok(share_recv(c, HARNESS_LIMIT_MS, reading, &m));
	gate_hold(gate, reading);
	gate_expect(gate, reading, share_ptr(m.buffer), 5, BLOCK, 0);
	check_ok(share_ack(&m, reading));
	check_eq(channel_stats(p).in_flight, 1); /* it is taken back, and waits for the reader */
	share_disconnect(client);
	share_pool_close(pool);
	r = share_alloc(theirs, BLOCK, NULL, &b);
	if (r == 0) /* then the reader has to be done */
		memset(share_ptr(b), 7, BLOCK);
	else
		check_eq(r, SHARE_ENOMEM);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(reading));
	if (r == 0)
		check_ok(share_release(b, NULL));
	share_channel_close(c);
	share_channel_close(p);
	until(share_alloc(theirs, BLOCK, NULL, &b) == 0);
	check_ok(share_release(b, NULL));
	share_host_stream_destroy(reading);
	gate_free(gate);
	share_pool_close(theirs);
	share_disconnect(third);
	share_disconnect(other);
}
