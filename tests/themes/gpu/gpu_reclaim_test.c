/* SPDX-License-Identifier: MIT */

/*
 * Being the last one who has GPU memory: the stream comes after the work of those who had it, and
 * no call waits for that. tests/themes/pools/reclaim_test.c has the rest.
 */

#include <share/channel.h>

#include "tests/harness/fixture.h"
#include "tests/support/gpu_work.h"

TestSuite(gpu_reclaim, .init = gpu_work_start, .fini = gpu_work_stop, .timeout = 60);

enum { READER }; /* gates */

static void tell(int status, void *data)
{
	*(int *)data = status;
}

/* Reads on a stream that is held up until the gate opens, and lets go of it at once. */
static void reads_by_name(struct child *self, void *data)
{
	share_client *c = child_connect("reader");
	struct gpu_reading *reading;
	share_buffer *b;
	void *s;

	(void)data;
	gpu_use();
	s = gpu_stream();
	child_point(self, "ready");
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, s, &b));
	gpu_hold(s, READER);
	reading = gpu_read(s, b);
	check_ok(share_release(b, s));
	check_ok(share_ping(c));
	child_point(self, "released");
	gpu_wait(s);
	gpu_expect(reading, 5);
	gpu_stream_destroy(s);
	share_disconnect(c);
}

static void receives(struct child *self, void *data)
{
	share_client *c = child_connect("consumer");
	struct gpu_reading *reading;
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;
	void *s;

	(void)data;
	gpu_use();
	s = gpu_stream();
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &ch));
	child_point(self, "ready");
	check_ok(share_recv(ch, HARNESS_LIMIT_MS, s, &m));
	gpu_hold(s, READER);
	reading = gpu_read(s, m.buffer);
	check_ok(share_ack(&m, s));
	child_point(self, "released");
	gpu_wait(s);
	gpu_expect(reading, 5);
	gpu_stream_destroy(s);
	share_channel_close(ch);
	share_disconnect(c);
}

static struct child *start_child(child_function function)
{
	struct child *c = child_start(function, NULL);

	child_wait(c, "ready");
	return c;
}

static void let_it_read(struct child *c)
{
	child_go(c);
	child_wait(c, "released");
}

/* The buffer is ours alone, but for what the reader's stream has still to do. */
static void expect_ours_behind_the_reader(share_buffer *b, void *s)
{
	struct gpu_reading *reading;

	gpu_fill(s, b, 6);
	reading = gpu_read(s, b);
	gpu_expect_held(s, READER);
	check_eq(gpu_stats(gpu_client).host_waits, 0);
	gpu_open(READER);
	gpu_wait(s);
	gpu_expect(reading, 6);
}

static void done(struct child *c, share_buffer *b, void *s)
{
	check_ok(share_release(b, s));
	gpu_wait(s);
	gpu_stream_destroy(s);
	child_go(c);
	child_finish(c);
}

static share_buffer *filled(void *s)
{
	share_buffer *b = gpu_allocate(gpu_client, s);

	gpu_fill(s, b, 5);
	return b;
}

Test(gpu_reclaim, of_what_was_published)
{
	struct child *reader = start_child(reads_by_name);
	share_buffer *b;
	void *s;

	gpu_use();
	s = gpu_stream();
	b = filled(s);
	check_ok(share_publish(b, "name", s));
	check_error(share_reclaim(b, 0, s), SHARE_EBUSY);
	let_it_read(reader);
	check_ok(share_unpublish(gpu_client, "name"));
	check_ok(share_reclaim(b, 0, s));
	check_eq(gpu_stats(gpu_client).parked, 1);
	expect_ours_behind_the_reader(b, s);
	done(reader, b, s);
}

Test(gpu_reclaim, is_told_while_the_work_of_others_still_runs)
{
	struct child *reader = start_child(reads_by_name);
	int status = 1;
	share_buffer *b;
	void *s;

	gpu_use();
	s = gpu_stream();
	b = filled(s);
	check_ok(share_publish(b, "name", s));
	check_ok(share_reclaim_async(b, s, tell, &status, NULL));
	let_it_read(reader);
	check_ok(share_ping(gpu_client));
	check_eq(share_dispatch(gpu_client), 0);
	check_ok(share_unpublish(gpu_client, "name"));
	until((share_dispatch(gpu_client), status != 1));
	check_ok(status);
	expect_ours_behind_the_reader(b, s);
	done(reader, b, s);
}

Test(gpu_reclaim, of_what_was_sent)
{
	struct child *consumer = start_child(receives);
	int status = 1;
	share_channel *ch;
	share_buffer *b;
	void *s;

	gpu_use();
	s = gpu_stream();
	b = filled(s);
	check_ok(share_channel_open(gpu_client, "channel", SHARE_PRODUCER, NULL, &ch));
	check_ok(share_send(ch, b, NULL, 0, s));
	check_error(share_reclaim(b, 0, s), SHARE_EBUSY);
	check_ok(share_reclaim_async(b, s, tell, &status, NULL));
	let_it_read(consumer);
	until((share_dispatch(gpu_client), status != 1));
	check_ok(status);
	expect_ours_behind_the_reader(b, s);
	done(consumer, b, s);
	share_channel_close(ch);
}

Test(gpu_reclaim, does_not_wait_for_a_stream_of_the_dead)
{
	struct child *reader = start_child(reads_by_name);
	struct gpu_reading *reading;
	share_buffer *b;
	void *s;

	gpu_use();
	s = gpu_stream();
	b = filled(s);
	check_ok(share_publish(b, "name", s));
	let_it_read(reader);
	check_ok(share_unpublish(gpu_client, "name"));
	check_ok(share_reclaim(b, 0, s));
	reading = gpu_read(s, b);
	gpu_expect_held(s, READER);
	child_kill(reader);
	gpu_wait(s); /* the gate is closed for ever */
	gpu_expect(reading, 5);
	check_ok(share_reclaim(b, 0, s));
	check_ok(share_release(b, s));
	gpu_wait(s);
	gpu_stream_destroy(s);
}
