/* SPDX-License-Identifier: MIT */

/*
 * The rules that users rely on ("Fences, and what stream-ordered means here" in the design) on CUDA
 * streams: 1 to 4 are here, 5 is in gpu_signal_test.c, 6 in gpu_death_test.c, 7 in
 * gpu_budget_test.c, 8 in gpu_host_fences_test.c. tests/themes/order/fence_rules_test.c has them
 * for host memory.
 */

#include "tests/harness/fixture.h"
#include "tests/support/gpu_work.h"

TestSuite(gpu_rules, .init = gpu_work_start, .fini = gpu_work_stop, .timeout = 60);

enum { FIRST, SECOND }; /* gates */

/* ------------------------------------------------------------------------------------------- */
/* Rules 1 and 2                                                                               */

/* Another process, whose stream is busy until the first gate opens. */
static void releases_while_busy(struct child *self, void *data)
{
	share_client *c = child_connect("busy one");
	share_buffer *b;
	void *s;

	(void)data;
	gpu_use();
	s = gpu_stream();
	b = gpu_allocate(c, s);
	gpu_hold(s, FIRST);
	gpu_fill(s, b, 1);
	check_ok(share_release(b, s));
	/* rule 2: it has returned though the work is still to be done */
	check(gpu_is_busy(s));
	check_eq(gpu_stats(c).signals, 1);
	check_eq(gpu_stats(c).host_signals, 0);
	child_point(self, "released");
	gpu_wait(s);
	gpu_stream_destroy(s);
	share_disconnect(c);
}

Test(gpu_rules, rule_1_an_allocation_returns_at_once_and_its_stream_waits_for_the_last_user)
{
	struct child *busy = child_start(releases_while_busy, NULL);
	struct gpu_reading *before, *after;
	share_buffer *b;
	void *s;

	child_wait(busy, "released");
	gpu_use();
	s = gpu_stream();
	b = gpu_allocate(gpu_client, s);
	check(!gpu_is_open(FIRST));
	check_eq(gpu_ordered(b), SHARE_ORDERED_ON_STREAM);
	check_eq(gpu_stats(gpu_client).waits, 1);
	check_eq(gpu_stats(gpu_client).host_waits, 0);
	check_eq(gpu_stats(gpu_client).parked, 1);
	before = gpu_read(s, b);
	gpu_fill(s, b, 2);
	after = gpu_read(s, b);
	gpu_expect_held(s, FIRST);
	gpu_open(FIRST);
	gpu_wait(s);
	gpu_expect(before, 1);
	gpu_expect(after, 2);
	check_eq(gpu_stats(gpu_client).parked, 0);
	check_ok(share_release(b, s));
	child_go(busy);
	child_finish(busy);
	gpu_wait(s);
	gpu_stream_destroy(s);
}

Test(gpu_rules, rule_1_the_stream_that_used_a_block_last_waits_for_nothing)
{
	struct gpu_reading *reading;
	share_buffer *b;
	void *s;

	gpu_use();
	s = gpu_stream();
	b = gpu_allocate(gpu_client, s);
	gpu_hold(s, FIRST);
	gpu_fill(s, b, 3);
	check_ok(share_release(b, s));
	b = gpu_allocate(gpu_client, s);
	check_eq(gpu_ordered(b), SHARE_ORDERED_NOTHING);
	check_eq(gpu_stats(gpu_client).waits, 0);
	check_eq(gpu_stats(gpu_client).waits_saved, 1);
	check_eq(gpu_stats(gpu_client).parked, 0);
	reading = gpu_read(s, b);
	gpu_expect_held(s, FIRST);
	gpu_open(FIRST);
	gpu_wait(s);
	gpu_expect(reading, 3);
	check_ok(share_release(b, s));
	gpu_wait(s);
	gpu_stream_destroy(s);
}

Test(gpu_rules, rule_1_a_block_whose_last_user_is_done_costs_no_wait)
{
	share_buffer *b;
	void *s, *t;

	gpu_use();
	s = gpu_stream();
	t = gpu_stream();
	b = gpu_allocate(gpu_client, s);
	gpu_fill(s, b, 3);
	check_ok(share_release(b, s));
	gpu_wait(s);
	b = gpu_allocate(gpu_client, t);
	check_eq(gpu_ordered(b), SHARE_ORDERED_NOTHING);
	check_eq(gpu_stats(gpu_client).waits, 0);
	check_ok(share_release(b, t));
	gpu_wait(t);
	gpu_stream_destroy(s);
	gpu_stream_destroy(t);
}

/* ------------------------------------------------------------------------------------------- */
/* Rule 3: hand-over                                                                           */

struct given {
	share_token token;
	share_fence fence;
};

static void gives_while_busy(struct child *self, void *data)
{
	share_client *c = child_connect("giver");
	struct given given;
	share_buffer *b;
	void *s;

	(void)data;
	gpu_use();
	s = gpu_stream();
	b = gpu_allocate(c, s);
	gpu_hold(s, FIRST);
	gpu_fill(s, b, 3);
	check_ok(share_publish(b, "work", s));
	check_ok(share_export(b, s, &given.token));
	check_ok(share_fence_record(c, 0, s, &given.fence));
	check_ok(share_release(b, s));
	check(gpu_is_busy(s));
	child_point_with(self, "given", &given, sizeof(given));
	gpu_wait(s);
	gpu_stream_destroy(s);
	share_disconnect(c);
}

/* What @acquire gets on a stream comes after the giver's work. */
static void expect_ordered(share_buffer *(*acquire)(const struct given *given, void *stream))
{
	struct child *giver = child_start(gives_while_busy, NULL);
	struct gpu_reading *reading;
	struct given given;
	share_buffer *b;
	void *s;

	child_wait_with(giver, "given", &given, sizeof(given));
	gpu_use();
	s = gpu_stream();
	b = acquire(&given, s);
	check_eq(gpu_ordered(b), SHARE_ORDERED_ON_STREAM);
	check_error(share_buffer_status(b), SHARE_EAGAIN);
	reading = gpu_read(s, b);
	gpu_expect_held(s, FIRST);
	check_error(share_buffer_status(b), SHARE_EAGAIN);
	gpu_open(FIRST);
	gpu_wait(s);
	gpu_expect(reading, 3);
	check_ok(share_buffer_status(b));
	check_eq(gpu_stats(gpu_client).host_waits, 0);
	check_ok(share_release(b, s));
	child_go(giver);
	child_finish(giver);
	gpu_wait(s);
	gpu_stream_destroy(s);
}

static share_buffer *by_name(const struct given *given, void *stream)
{
	share_buffer *b;

	(void)given;
	check_ok(share_lookup(gpu_client, "work", SHARE_RDONLY, 0, stream, &b));
	return b;
}

static share_buffer *by_token(const struct given *given, void *stream)
{
	share_buffer *b;

	check_ok(share_import(gpu_client, &given->token, 0, stream, &b));
	return b;
}

struct answer {
	share_buffer *buffer;
	int calls;
};

static void take(share_buffer *b, int error, void *data)
{
	struct answer *answer = data;

	check_ok(error);
	answer->buffer = b;
	answer->calls++;
}

static share_buffer *by_dispatch(const struct given *given, void *stream)
{
	struct answer answer = {.buffer = NULL};

	(void)given;
	check_ok(
	    share_lookup_async(gpu_client, "work", SHARE_RDONLY, 0, stream, take, &answer, NULL));
	until((share_dispatch(gpu_client), answer.calls));
	return answer.buffer;
}

Test(gpu_rules, rule_3_a_stream_that_looks_a_name_up_comes_after_the_publisher)
{
	expect_ordered(by_name);
}

Test(gpu_rules, rule_3_a_stream_that_imports_a_token_comes_after_the_exporter)
{
	expect_ordered(by_token);
}

Test(gpu_rules, rule_3_an_asynchronous_look_up_answers_before_the_publisher_is_done)
{
	expect_ordered(by_dispatch);
}

Test(gpu_rules, rule_3_a_stream_that_waits_for_a_fence_of_another_process_comes_after_it)
{
	struct child *giver = child_start(gives_while_busy, NULL);
	struct gpu_reading *reading;
	share_buffer *b;
	struct given given;
	void *s, *t;

	child_wait_with(giver, "given", &given, sizeof(given));
	gpu_use();
	s = gpu_stream();
	t = gpu_stream();
	b = by_name(&given, s);
	/* to which the look-up meant nothing */
	check_error(share_fence_query(gpu_client, &given.fence), SHARE_EAGAIN);
	check_ok(share_fence_wait(gpu_client, &given.fence, 0, t));
	reading = gpu_read(t, b);
	gpu_expect_held(t, FIRST);
	check_eq(gpu_stats(gpu_client).parked, 2);
	gpu_open(FIRST);
	check_ok(share_fence_synchronize(gpu_client, &given.fence, -1));
	check_ok(share_fence_query(gpu_client, &given.fence));
	gpu_wait(t);
	gpu_expect(reading, 3);
	gpu_wait(s);
	check_ok(share_release(b, t));
	child_go(giver);
	child_finish(giver);
	gpu_wait(t);
	gpu_stream_destroy(s);
	gpu_stream_destroy(t);
}

/* ------------------------------------------------------------------------------------------- */
/* Rule 4                                                                                      */

Test(gpu_rules, rule_4_every_stream_that_released_a_buffer_gates_its_block)
{
	share_buffer *b, *again;
	void *s[3];

	gpu_use();
	for (int i = 0; i < 3; i++)
		s[i] = gpu_stream();
	b = gpu_allocate(gpu_client, s[0]);
	check_ok(share_publish(b, "work", s[0]));
	gpu_wait(s[0]);
	check_ok(share_lookup(gpu_client, "work", SHARE_RDWR, 0, s[1], &again));
	check_ok(share_unpublish(gpu_client, "work"));
	gpu_hold(s[0], FIRST);
	gpu_hold(s[1], SECOND);
	check_ok(share_release(b, s[0]));
	check_ok(share_release(again, s[1]));
	b = gpu_allocate(gpu_client, s[2]);
	check_eq(gpu_ordered(b), SHARE_ORDERED_ON_STREAM);
	check_eq(gpu_stats(gpu_client).waits, 2);
	check_eq(gpu_stats(gpu_client).parked, 1);
	gpu_fill(s[2], b, 4);
	gpu_expect_held(s[2], FIRST);
	gpu_open(FIRST);
	gpu_wait(s[0]);
	gpu_expect_held(s[2], SECOND);
	gpu_open(SECOND);
	gpu_wait(s[2]);
	check_ok(share_release(b, s[2]));
	for (int i = 0; i < 3; i++) {
		gpu_wait(s[i]);
		gpu_stream_destroy(s[i]);
	}
}

/* The giver's own work is done, but a reader it had before is not. */
Test(gpu_rules, rule_2_who_acquires_a_buffer_to_write_waits_for_those_who_still_read_it)
{
	share_buffer *b, *readers, *writers;
	struct gpu_reading *before;
	void *reader, *writer;

	gpu_use();
	reader = gpu_stream();
	writer = gpu_stream();
	b = gpu_allocate(gpu_client, writer);
	gpu_fill(writer, b, 5);
	gpu_wait(writer);
	check_ok(share_publish(b, "work", writer));
	check_ok(share_lookup(gpu_client, "work", SHARE_RDONLY, 0, reader, &readers));
	gpu_hold(reader, FIRST);
	before = gpu_read(reader, readers);
	check_ok(share_release(readers, reader));
	check_ok(share_lookup(gpu_client, "work", SHARE_RDWR, 0, writer, &writers));
	check_eq(gpu_ordered(writers), SHARE_ORDERED_ON_STREAM);
	gpu_fill(writer, writers, 6);
	gpu_expect_held(writer, FIRST);
	gpu_open(FIRST);
	gpu_wait(reader);
	gpu_expect(before, 5);
	check_ok(share_unpublish(gpu_client, "work"));
	check_ok(share_release(b, writer));
	check_ok(share_release(writers, writer));
	gpu_wait(writer);
	gpu_stream_destroy(reader);
	gpu_stream_destroy(writer);
}
