/* SPDX-License-Identifier: MIT */

/* Channels over memory of every kind: the consumer in a process of its own, as GPU memory is used.
 */

#include <share/channel.h>

#include "tests/support/drivers.h"
#include "tests/themes/pools/conformance.h"

TestSuite(conformance, .timeout = 120);

#define SIZE    10000
#define ROUNDS  20
#define FOREVER 30000 /* only so that a test which hangs ends */

static share_channel *open_channel(share_client *c, int role)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.pool = "test";
	options.depth = 4;
	check_ok(share_channel_open(c, "channel", role, &options, &ch));
	return ch;
}

/* Keeps every fourth for a while. */
static void receive(struct child *self, void *data)
{
	share_client *c = child_connect("consumer");
	share_channel *ch = open_channel(c, SHARE_CONSUMER);
	share_buffer *kept = NULL;
	share_message m = SHARE_MESSAGE_INIT;
	int n = 0, r;

	(void)data;
	child_point(self, "ready");
	while ((r = share_recv(ch, FOREVER, NULL, &m)) == 0) {
		check_eq(share_size(m.buffer), SIZE);
		buffer_expect(m.buffer, n);
		if (kept) {
			buffer_expect(kept, n - 1);
			check_ok(share_release(kept, NULL));
			kept = NULL;
		}
		if (n++ % 4 == 0) {
			kept = m.buffer;
			share_retain(kept);
		}
		check_ok(share_ack(&m, NULL));
	}
	check_eq(r, SHARE_EPIPE);
	check_eq(n, ROUNDS);
	share_channel_close(ch);
	share_disconnect(c);
}

ConformanceTest(a_channel_carries_memory)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_channel *ch = open_channel(c, SHARE_PRODUCER);
	struct child *child = child_start(receive, NULL);

	child_wait(child, "ready");
	child_go(child);
	for (int i = 0; i < ROUNDS; i++) {
		share_buffer *b = allocate(p, SIZE, NULL);

		buffer_fill(b, i);
		check_ok(share_give(ch, b, NULL, 0, NULL));
	}
	share_channel_close(ch);
	child_finish(child);
	check_ok(share_pool_set_cache(p, 0));
	settle(c, s.buffers == 0);
	share_pool_close(p);
	share_disconnect(c);
}

/* Never anywhere but asleep in share_recv(), until there is a message. */
static void sleep_in_channel(struct child *self, void *data)
{
	share_client *c = child_connect("consumer");
	share_channel *ch = open_channel(c, SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	child_point(self, "ready");
	check_ok(share_recv(ch, FOREVER, NULL, &m));
	check_ok(share_ack(&m, NULL));
	share_channel_close(ch);
	share_disconnect(c);
}

ConformanceTest(consumers_that_sleep_keep_no_memory_of_the_pool)
{
	share_client *c = connect_as("test");
	share_pool_options options = OPTIONS;
	struct child *child;
	share_channel *ch;
	share_buffer *b;
	share_pool *p;

	options.release_threshold = SHARE_KEEP_NONE;
	p = conformance_pool(c, kind, options);
	check_ok(share_pool_set_cache(p, 0));
	ch = open_channel(c, SHARE_PRODUCER);
	child = child_start(sleep_in_channel, NULL);
	child_wait(child, "ready");
	child_go(child);
	for (int i = 0; i < 3; i++) {
		b = allocate(p, SIZE, NULL);
		check_ok(share_release(b, NULL));
		settle(c, s.segment_bytes == 0);
	}
	check_ok(share_send(ch, NULL, NULL, 0, NULL));
	child_finish(child);
	share_channel_close(ch);
	share_pool_close(p);
	share_disconnect(c);
}

/* An error of the device says that nothing runs on it any more, and everything is let go of. */
ConformanceTest(what_is_kept_of_messages_outlives_them_on_a_broken_device)
{
	share_client *c = connect_as("test"), *consumer;
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_channel *ch = open_channel(c, SHARE_PRODUCER), *r;
	share_message m[2] = {SHARE_MESSAGE_INIT, SHARE_MESSAGE_INIT};
	int broken = strcmp(kind, "host") == 0 ? SHARE_OK : SHARE_EDEVICE;
	share_buffer *kept[2];

	skip_unless_standin();
	drivers_prepare();
	consumer = connect_as("consumer");
	r = open_channel(consumer, SHARE_CONSUMER);
	for (int i = 0; i < 2; i++) {
		share_buffer *b = allocate(p, SIZE, NULL);

		check_ok(share_send(ch, b, NULL, 0, NULL));
		check_ok(share_release(b, NULL));
		check_ok(share_recv(r, FOREVER, NULL, &m[i]));
		kept[i] = share_retain(m[i].buffer);
	}
	drivers_do(
	    "cuStreamWriteValue64 fail 700\ncuLaunchHostFunc fail 700\n"
	    "cuEventRecord fail 700\ncuStreamSynchronize fail 700\n");
	check_eq(share_ack_many(m, 2, NULL), broken);
	for (int i = 0; i < 2; i++) {
		check(!m[i].channel);
		check_eq(share_release(kept[i], NULL), broken);
	}
	drivers_do("");
	share_channel_close(r);
	share_channel_close(ch);
	share_disconnect(consumer);
	share_pool_close(p);
	share_disconnect(c);
	drivers_done();
}
