/* SPDX-License-Identifier: MIT */

/*
 * What a broker has seen of a GPU outlives it: work that was known to be done before its process
 * was killed stays done, though the one who knew it is dead as well.
 */

#include "tests/harness/fixture.h"
#include "tests/support/gpu_work.h"

enum { SOON };

static void start(void)
{
	broker_use_program(DYING_BROKER);
	gpu_work_start();
}

TestSuite(gpu_restart, .init = start, .fini = gpu_work_stop, .timeout = 60);

static void gives_and_finishes(struct child *self, void *data)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_client *c = child_connect("giver");
	share_buffer *b;
	void *stream;

	(void)data;
	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	gpu_hold(stream, SOON);
	gpu_fill(stream, b, 8);
	options.flags = SHARE_PUBLISH_PERSISTENT;
	check_ok(share_publish_with(b, "work", &options, stream, NULL));
	child_point(self, "given");
	gpu_wait(stream);
	child_point(self, "done");
}

Test(gpu_restart, rule_6_data_that_a_broker_knew_to_be_done_stays_good)
{
	struct child *giver = child_start(gives_and_finishes, NULL);
	struct gpu_reading *reading;
	share_client *later;
	share_buffer *b, *again;
	void *stream;

	child_wait(giver, "given");
	gpu_open(SOON);
	child_go(giver);
	child_wait(giver, "done");
	/* who asks makes the broker look */
	gpu_use();
	stream = gpu_stream();
	check_ok(share_lookup(gpu_client, "work", SHARE_RDONLY, 0, stream, &b));
	check_eq(gpu_ordered(b), SHARE_ORDERED_NOTHING);
	broker_kill_serving_for_now();
	child_kill(giver);
	broker_let_keeper_go_on();
	settle(gpu_client, s.clients == 1);
	check_ok(share_buffer_status(b));
	/* who comes later knows only what the next broker says */
	later = connect_as("later");
	check_ok(share_lookup(later, "work", SHARE_RDONLY, 0, stream, &again));
	check_ok(share_buffer_status(again));
	check_ok(share_release(again, stream));
	share_disconnect(later);
	reading = gpu_read(stream, b);
	gpu_wait(stream);
	gpu_expect(reading, 8);
	check_ok(share_unpublish(gpu_client, "work"));
	check_ok(share_release(b, stream));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
}
