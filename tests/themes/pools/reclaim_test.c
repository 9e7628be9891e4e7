/* SPDX-License-Identifier: MIT */

/*
 * Being the last one who has a buffer: who counts, when it is told, and what work comes before.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <share/channel.h>

#include "libshare/channel/inside.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/harness/raw.h"
#include "tests/support/channel_work.h"

#define SIZE 4096

static share_client *client;
static share_pool *pool;
static share_buffer *buffer;
static share_host_stream *stream;
static struct gate *gate;

static void start(void)
{
	fixture_start();
	client = connect_as("owner");
	pool = open_pool(client);
	buffer = allocate(pool, SIZE, NULL);
	gate = gate_new();
	check_ok(share_host_stream_create(client, &stream));
}

static void stop(void)
{
	gate_open(gate);
	if (!check_has_failed()) {
		if (buffer)
			check_ok(share_release(buffer, NULL));
		share_host_stream_destroy(stream);
	}
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
	gate_free(gate);
}

TestSuite(reclaim, .init = start, .fini = stop, .timeout = 60);

struct told {
	int times, status;
};

static void tell(int status, void *data)
{
	struct told *t = data;

	t->times++;
	t->status = status;
}

static share_operation *ask(struct told *t)
{
	share_operation *o;

	*t = (struct told){0, 1};
	check_ok(share_reclaim_async(buffer, NULL, tell, t, &o));
	return o;
}

/* The broker has seen all that was said before, and everybody was told. */
static void expect_not_told(const struct told *t)
{
	check_ok(share_ping(client));
	check(share_dispatch(client) >= 0);
	check_ok(share_ping(client));
	check(share_dispatch(client) >= 0);
	check_eq(t->times, 0);
}

static void expect_told(const struct told *t)
{
	until((share_dispatch(client), t->times > 0));
	check_eq(t->times, 1);
	check_ok(t->status);
}

static void end(struct child *c)
{
	child_go(c);
	child_finish(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Who counts                                                                                  */

Test(reclaim, who_has_it_alone_is_told_at_once)
{
	struct told t;
	share_operation *o;

	check_ok(share_reclaim(buffer, 0, NULL));
	share_retain(buffer); /* the same handle */
	check_ok(share_reclaim(buffer, -1, NULL));
	check_ok(share_release(buffer, NULL));
	o = ask(&t);
	expect_told(&t);
	share_cancel(o);
	check_ok(share_reclaim(buffer, 0, stream));
}

Test(reclaim, waits_for_names_and_tokens)
{
	share_token token;
	struct told t;

	check_ok(share_publish(buffer, "first", NULL));
	check_ok(share_publish(buffer, "second", NULL));
	check_ok(share_export(buffer, NULL, &token));
	check_error(share_reclaim(buffer, 0, NULL), SHARE_EBUSY);
	check_detail("3 names");
	check_error(share_reclaim(buffer, 1, NULL), SHARE_ETIMEDOUT);
	share_cancel(ask(&t));
	check_ok(share_reclaim_async(buffer, NULL, tell, &t, NULL));
	check_ok(share_unpublish(client, "first"));
	check_ok(share_revoke(client, &token));
	expect_not_told(&t);
	check_error(share_reclaim(buffer, 0, NULL), SHARE_EBUSY);
	check_ok(share_unpublish(client, "second"));
	expect_told(&t);
	check_ok(share_reclaim(buffer, 0, NULL));
}

Test(reclaim, waits_for_a_token_to_time_out_and_for_its_last_use)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_token token;
	share_buffer *b;

	options.timeout_ms = 1;
	check_ok(share_export_with(buffer, &options, NULL, &token));
	check_ok(share_reclaim(buffer, -1, NULL));
	check_ok(share_export(buffer, NULL, &token));
	check_ok(share_import(client, &token, 0, NULL, &b));
	check_error(share_reclaim(buffer, 0, NULL), SHARE_EBUSY);
	check_ok(share_release(b, NULL));
	check_ok(share_reclaim(buffer, 0, NULL));
}

/* It may be in use by a part of the program that knows nothing of this one. */
Test(reclaim, waits_for_other_handles_of_this_process)
{
	share_client *second = connect_as("second connection");
	share_buffer *here, *there;
	struct told t;

	check_ok(share_publish(buffer, "name", NULL));
	check_ok(share_lookup(client, "name", SHARE_RDONLY, 0, NULL, &here));
	check_ok(share_lookup(second, "name", SHARE_RDONLY, 0, NULL, &there));
	check_ok(share_unpublish(client, "name"));
	check_error(share_reclaim(buffer, 0, NULL), SHARE_EBUSY);
	check_ok(share_reclaim_async(buffer, NULL, tell, &t, NULL));
	t = (struct told){0, 1};
	check_ok(share_release(there, NULL));
	check_ok(share_ping(second));
	expect_not_told(&t);
	check_error(share_reclaim(here, 0, NULL), SHARE_EBUSY);
	check_ok(share_release(here, NULL));
	expect_told(&t);
	share_disconnect(second);
}

/* Whichever is the last. */
Test(reclaim, is_for_every_holder)
{
	share_client *second = connect_as("second connection");
	share_buffer *there;

	check_ok(share_publish(buffer, "name", NULL));
	check_ok(share_lookup(second, "name", SHARE_RDWR, 0, NULL, &there));
	check_ok(share_unpublish(client, "name"));
	check_error(share_reclaim(there, 0, NULL), SHARE_EBUSY);
	check_ok(share_release(buffer, NULL));
	buffer = NULL;
	check_ok(share_ping(client));
	check_ok(share_reclaim(there, 0, NULL));
	check_ok(share_release(there, NULL));
	share_disconnect(second);
}

/* ------------------------------------------------------------------------------------------- */
/* What comes before                                                                           */

static void reads_behind_the_gate(struct child *self, void *data)
{
	share_client *c = child_connect("reader");
	share_host_stream *s;
	share_buffer *b;

	(void)data;
	check_ok(share_host_stream_create(c, &s));
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b));
	child_point(self, "has it");
	gate_hold(gate, s);
	gate_expect(gate, s, share_ptr(b), 7, SIZE, 0);
	check_ok(share_release(b, s));
	check_ok(share_ping(c));
	child_point(self, "released");
	share_host_stream_destroy(s);
	share_disconnect(c);
}

static void reads_at_once(struct child *self, void *data)
{
	share_client *c = child_connect("quick reader");
	share_buffer *b;

	(void)data;
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b));
	child_point(self, "has it");
	check_ok(share_release(b, NULL));
	check_ok(share_ping(c));
	child_point(self, "released");
	share_disconnect(c);
}

static void publish_filled(int value)
{
	memset(share_ptr(buffer), value, SIZE);
	check_ok(share_publish(buffer, "name", NULL));
}

static void expect_busy_until_released(struct child *c)
{
	check_error(share_reclaim(buffer, 0, NULL), SHARE_EBUSY);
	child_go(c);
	child_wait(c, "released");
}

/* Who lets go first has the work that lasts longest: it counts for as long as the buffer lives. */
Test(reclaim, comes_after_the_work_of_all_who_have_let_go)
{
	struct child *slow, *quick;
	struct told t = {0, 1};

	publish_filled(7);
	slow = child_start(reads_behind_the_gate, NULL);
	quick = child_start(reads_at_once, NULL);
	child_wait(slow, "has it");
	child_wait(quick, "has it");
	check_ok(share_unpublish(client, "name"));
	expect_busy_until_released(slow);
	expect_busy_until_released(quick);
	/* nobody has it, but the work goes on: a stream is made to wait, the thread would have to
	 */
	check_error(share_reclaim(buffer, 1, NULL), SHARE_ETIMEDOUT);
	check_ok(share_reclaim(buffer, 0, stream));
	gate_fill(gate, stream, share_ptr(buffer), 8, SIZE);
	check_ok(share_reclaim_async(buffer, NULL, tell, &t, NULL));
	expect_not_told(&t);
	expect_filled(share_ptr(buffer), 7, SIZE);
	gate_open(gate);
	expect_told(&t);
	check_ok(share_host_stream_synchronize(stream));
	expect_filled(share_ptr(buffer), 8, SIZE);
	end(slow);
	end(quick);
}

Test(reclaim, comes_after_that_on_the_stream_of_the_operation)
{
	struct child *slow;
	struct told t = {0, 1};

	publish_filled(7);
	slow = child_start(reads_behind_the_gate, NULL);
	child_wait(slow, "has it");
	check_ok(share_reclaim_async(buffer, stream, tell, &t, NULL));
	check_ok(share_unpublish(client, "name"));
	expect_not_told(&t);
	child_go(slow);
	child_wait(slow, "released");
	expect_told(&t); /* the gate is closed: it is the stream that waits */
	gate_fill(gate, stream, share_ptr(buffer), 8, SIZE);
	expect_filled(share_ptr(buffer), 7, SIZE);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(stream));
	expect_filled(share_ptr(buffer), 8, SIZE);
	end(slow);
}

/* The dead do nothing any more: neither do they have it, nor does their work count. */
Test(reclaim, does_not_wait_for_the_dead)
{
	struct child *holder, *worker;
	struct told t = {0, 1};

	publish_filled(7);
	worker = child_start(reads_behind_the_gate, NULL);
	holder = child_start(reads_at_once, NULL);
	child_wait(worker, "has it");
	child_wait(holder, "has it");
	check_ok(share_unpublish(client, "name"));
	child_go(worker);
	child_wait(worker, "released"); /* but its work goes on, and never ends */
	check_ok(share_reclaim_async(buffer, NULL, tell, &t, NULL));
	expect_not_told(&t);
	child_kill(holder);
	expect_not_told(&t);
	child_kill(worker);
	expect_told(&t);
	check_ok(share_reclaim(buffer, -1, NULL));
}

static void hangs_up_with_it(struct child *self, void *data)
{
	static struct raw r;
	struct wire_message m = {.type = WIRE_LOOKUP};

	(void)data;
	raw_open(&r, "rude one");
	m.lookup.mode = SHARE_RDONLY;
	m.lookup.name = raw_text("name");
	raw_ask(&r, &m, WIRE_GRANT);
	raw_hang_up(&r);
	child_point(self, "hung up");
}

/* Who hangs up may go on reading. */
Test(reclaim, waits_until_who_hung_up_is_dead)
{
	struct child *rude;
	struct told t = {0, 1};

	publish_filled(7);
	rude = child_start(hangs_up_with_it, NULL);
	child_wait(rude, "hung up");
	check_ok(share_unpublish(client, "name"));
	settle(client, s.quarantined == 1);
	check_ok(share_reclaim_async(buffer, NULL, tell, &t, NULL));
	expect_not_told(&t);
	child_kill(rude);
	expect_told(&t);
}

/* ------------------------------------------------------------------------------------------- */
/* Messages                                                                                    */

static void receives(struct child *self, void *data)
{
	share_client *c = child_connect("consumer");
	share_channel *ch = open_channel(c, SHARE_CONSUMER, NULL);
	const char *how = data;
	share_host_stream *s;
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *kept = NULL;

	check_ok(share_host_stream_create(c, &s));
	child_point(self, "ready");
	check_ok(share_recv(ch, HARNESS_LIMIT_MS, NULL, &m));
	child_point(self, "has it");
	if (strcmp(how, "retains") == 0)
		kept = share_retain(m.buffer);
	else
		gate_hold(gate, s);
	check_ok(share_ack(&m, strcmp(how, "retains") == 0 ? NULL : s));
	if (strcmp(how, "drains") == 0) /* which tells the broker that it has nothing left */
		check_error(share_recv(ch, HARNESS_LIMIT_MS, NULL, &m), SHARE_EPIPE);
	check_ok(share_ping(c));
	child_point(self, "acknowledged");
	if (kept)
		check_ok(share_release(kept, NULL));
	share_channel_close(ch);
	share_host_stream_destroy(s);
	share_disconnect(c);
}

static struct child *send_to(const char *how, share_channel *producer)
{
	static char copy[16];
	struct child *c;

	strcpy(copy, how);
	c = child_start(receives, copy);
	child_wait(c, "ready");
	child_go(c);
	check_ok(share_send(producer, buffer, NULL, 0, NULL));
	child_wait(c, "has it");
	return c;
}

Test(reclaim, waits_for_messages_and_comes_after_their_consumers)
{
	share_channel *producer = open_channel(client, SHARE_PRODUCER, NULL);
	struct told t = {0, 1}, on_stream = {0, 1};
	struct child *c;

	memset(share_ptr(buffer), 7, SIZE);
	c = send_to("acknowledges", producer);
	check_error(share_reclaim(buffer, 0, NULL), SHARE_EBUSY);
	check_detail("1 message");
	check_error(share_reclaim(buffer, 1, NULL), SHARE_ETIMEDOUT);
	check_ok(share_reclaim_async(buffer, NULL, tell, &t, NULL));
	check_ok(share_reclaim_async(buffer, stream, tell, &on_stream, NULL));
	expect_not_told(&t);
	expect_not_told(&on_stream);
	child_go(c);
	child_wait(c, "acknowledged");
	expect_told(&on_stream);
	gate_fill(gate, stream, share_ptr(buffer), 8, SIZE);
	expect_not_told(&t);
	expect_filled(share_ptr(buffer), 7, SIZE);
	gate_open(gate);
	expect_told(&t);
	check_ok(share_host_stream_synchronize(stream));
	end(c);
	share_channel_close(producer);
}

Test(reclaim, in_a_call_that_waits_for_messages)
{
	share_channel *producer = open_channel(client, SHARE_PRODUCER, NULL);
	struct child *c = send_to("acknowledges", producer);

	gate_open(gate);
	child_go(c);
	check_ok(share_reclaim(buffer, -1, NULL));
	check_eq(channel_stats(producer).in_flight, 0);
	child_wait(c, "acknowledged");
	end(c);
	share_channel_close(producer);
}

static void *reclaims(void *data)
{
	int *r = data;

	*r = share_reclaim(buffer, SHARE_WAIT_FOREVER, NULL);
	return NULL;
}

static share_message receive_from(share_channel *producer, share_channel *consumer)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_send(producer, buffer, NULL, 0, NULL));
	check_ok(share_recv(consumer, HARNESS_LIMIT_MS, NULL, &m));
	return m;
}

/* Though nothing has told this process so: it looks. Of several channels, too. */
Test(reclaim, knows_of_what_was_acknowledged_before_it)
{
	share_channel *producer = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *consumer = open_channel(client, SHARE_CONSUMER, NULL);
	share_channel *idle = open_channel(client, SHARE_PRODUCER, NULL);

	for (int i = 0; i < 100; i++) {
		share_message m = receive_from(producer, consumer);

		check_error(share_reclaim(buffer, 0, NULL), SHARE_EBUSY);
		check_ok(share_ack(&m, NULL));
		check_ok(share_reclaim(buffer, 0, NULL));
	}
	share_channel_close(idle);
	share_channel_close(consumer);
	share_channel_close(producer);
}

/* What consumers are told: to ring when they have acknowledged something. */
static bool wants_to_be_rung_for(share_channel *producer)
{
	const struct channel_ring *ring = channel_of(producer)->own;

	return (atomic_load(&ring->waiting) & CHANNEL_SLEEP_STATE) == CHANNEL_ON_DOORBELL;
}

Test(reclaim, is_woken_by_the_acknowledgement)
{
	share_channel *producer = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *consumer = open_channel(client, SHARE_CONSUMER, NULL);
	pthread_t thread;
	struct told t;
	int r = 1;

	for (int i = 0; i < 100; i++) {
		share_message m = receive_from(producer, consumer);

		if (i % 2) {
			check_eq(pthread_create(&thread, NULL, reclaims, &r), 0);
		} else {
			t = (struct told){0, 1};
			check_ok(share_reclaim_async(buffer, NULL, tell, &t, NULL));
		}
		until(wants_to_be_rung_for(producer));
		check_ok(share_ack(&m, NULL));
		if (i % 2)
			pthread_join(thread, NULL);
		else
			expect_told(&t);
		check_ok(i % 2 ? r : t.status);
	}
	/* nobody waits any more */
	until(!wants_to_be_rung_for(producer));
	share_channel_close(consumer);
	share_channel_close(producer);
}

Test(reclaim, waits_for_who_keeps_a_buffer_beyond_its_message)
{
	share_channel *producer = open_channel(client, SHARE_PRODUCER, NULL);
	struct child *c = send_to("retains", producer);
	struct told t = {0, 1};

	check_ok(share_reclaim_async(buffer, NULL, tell, &t, NULL));
	child_go(c);
	child_wait(c, "acknowledged");
	/* the message is over, but it has a lease of its own now */
	until(in_flight(producer) == 0);
	expect_not_told(&t);
	end(c);
	expect_told(&t);
	share_channel_close(producer);
}

Test(reclaim, waits_for_messages_of_a_channel_that_was_closed)
{
	share_channel *producer = open_channel(client, SHARE_PRODUCER, NULL);
	struct child *c = send_to("drains", producer);
	struct told t = {0, 1};

	check_ok(share_reclaim_async(buffer, NULL, tell, &t, NULL));
	share_channel_close(producer);
	expect_not_told(&t);
	check_error(share_reclaim(buffer, 0, NULL), SHARE_EBUSY);
	child_go(c);
	child_wait(c, "acknowledged");
	expect_not_told(&t); /* its work goes on */
	gate_open(gate);
	expect_told(&t);
	end(c);
}

Test(reclaim, does_not_wait_for_the_messages_of_the_dead)
{
	share_channel *producer = open_channel(client, SHARE_PRODUCER, NULL);
	struct child *c = send_to("acknowledges", producer);
	struct told t = {0, 1};

	check_ok(share_reclaim_async(buffer, NULL, tell, &t, NULL));
	expect_not_told(&t);
	child_kill(c);
	expect_told(&t);
	share_channel_close(producer);
}

Test(reclaim, is_not_for_who_has_it_on_loan)
{
	share_channel *producer = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *consumer = open_channel(client, SHARE_CONSUMER, NULL);
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *kept;

	check_ok(share_send(producer, buffer, NULL, 0, NULL));
	check_ok(share_recv(consumer, HARNESS_LIMIT_MS, NULL, &m));
	check_error(share_reclaim(m.buffer, 0, NULL), SHARE_EINVAL);
	check_detail("loan");
	kept = share_retain(m.buffer);
	check_ok(share_ack(&m, NULL));
	check_error(share_reclaim(kept, 0, NULL), SHARE_EBUSY);
	check_ok(share_release(buffer, NULL));
	buffer = NULL;
	check_ok(share_reclaim(kept, -1, NULL));
	check_ok(share_release(kept, NULL));
	share_channel_close(consumer);
	share_channel_close(producer);
}

/* ------------------------------------------------------------------------------------------- */
/* Operations                                                                                  */

Test(reclaim, that_is_canceled_tells_nothing_and_leaves_nothing)
{
	share_channel *producer;
	struct child *c;
	struct told t;
	share_operation *o;

	check_ok(share_publish(buffer, "name", NULL));
	o = ask(&t);
	expect_not_told(&t);
	share_cancel(o);
	check_ok(share_unpublish(client, "name"));
	expect_not_told(&t);
	/* when it is due already */
	o = ask(&t);
	check_ok(share_ping(client));
	share_cancel(o);
	expect_not_told(&t);
	/* and while it waits for messages */
	producer = open_channel(client, SHARE_PRODUCER, NULL);
	c = send_to("acknowledges", producer);
	o = ask(&t);
	share_cancel(o);
	gate_open(gate);
	child_go(c);
	child_wait(c, "acknowledged");
	end(c);
	until(in_flight(producer) == 0);
	expect_not_told(&t);
	check_ok(share_reclaim(buffer, -1, NULL));
	share_channel_close(producer);
}

/* Whoever wants the memory to go when nobody needs it any more need not keep a handle. */
Test(reclaim, has_a_reference_of_its_own)
{
	struct told t = {0, 1};

	check_ok(share_publish(buffer, "name", NULL));
	check_ok(share_reclaim_async(buffer, NULL, tell, &t, NULL));
	check_ok(share_release(buffer, NULL));
	buffer = NULL;
	expect_not_told(&t);
	settle(client, s.buffers == 1 && s.leases == 1);
	check_ok(share_unpublish(client, "name"));
	expect_told(&t);
	settle(client, s.buffers == 0);
}

static void release_it(int status, void *data)
{
	tell(status, data);
	check_ok(share_release(buffer, NULL));
	buffer = NULL;
}

Test(reclaim, may_release_the_buffer_when_it_is_told)
{
	struct told t = {0, 1};

	check_ok(share_reclaim_async(buffer, NULL, release_it, &t, NULL));
	expect_told(&t);
	settle(client, s.buffers == 0);
}

/* What is handed out again before it is due is not its holder's alone. */
Test(reclaim, counts_what_was_handed_out_meanwhile)
{
	struct told t = {0, 1};

	check_ok(share_publish(buffer, "name", NULL));
	check_ok(share_reclaim_async(buffer, NULL, tell, &t, NULL));
	check_ok(share_publish(buffer, "second", NULL));
	check_ok(share_unpublish(client, "name"));
	expect_not_told(&t);
	check_ok(share_unpublish(client, "second"));
	expect_told(&t);
}

/* It was due, with work of others to come after; and before that was told it was sent. */
Test(reclaim, that_is_asked_for_again_leaves_nothing_of_the_answer_before)
{
	share_channel *producer = open_channel(client, SHARE_PRODUCER, NULL);
	struct child *slow, *c;
	struct told t = {0, 1};

	publish_filled(7);
	slow = child_start(reads_behind_the_gate, NULL);
	child_wait(slow, "has it");
	check_ok(share_unpublish(client, "name"));
	expect_busy_until_released(slow);
	check_ok(share_reclaim_async(buffer, NULL, tell, &t, NULL));
	check_ok(share_ping(client)); /* the answer is here */
	c = send_to("acknowledges", producer);
	expect_not_told(&t);
	child_go(c);
	child_wait(c, "acknowledged");
	expect_not_told(&t);
	gate_open(gate);
	expect_told(&t);
	end(c);
	end(slow);
	share_channel_close(producer);
}

/* The call has a reference of its own: the handle may go meanwhile. */
Test(reclaim, goes_on_when_another_thread_releases_the_handle)
{
	pthread_t thread;
	int r = 1;

	check_ok(share_publish(buffer, "name", NULL));
	check_eq(pthread_create(&thread, NULL, reclaims, &r), 0);
	until(used_of(client, "waits") == 1);
	check_ok(share_release(buffer, NULL));
	buffer = NULL;
	check_ok(share_unpublish(client, "name"));
	pthread_join(thread, NULL);
	check_ok(r);
	settle(client, s.buffers == 0);
}

Test(reclaim, of_many_at_a_time_are_told_each)
{
	enum { MANY = 200 };
	share_buffer *all[MANY];
	struct told told[MANY] = {{0, 0}};
	char name[16];

	for (int i = 0; i < MANY; i++) {
		all[i] = allocate(pool, 512, NULL);
		snprintf(name, sizeof(name), "name/%d", i);
		check_ok(share_publish(all[i], name, NULL));
		for (int k = 0; k < 2; k++)
			check_ok(share_reclaim_async(all[i], NULL, tell, &told[i], NULL));
	}
	for (int i = 0; i < MANY; i += 2) {
		snprintf(name, sizeof(name), "name/%d", i);
		check_ok(share_unpublish(client, name));
	}
	for (int i = 0; i < MANY; i += 2)
		until((share_dispatch(client), told[i].times == 2));
	for (int i = 1; i < MANY; i += 2)
		check_eq(told[i].times, 0);
	for (int i = 0; i < MANY; i++)
		check_ok(share_release(all[i], NULL));
	/* the others go with the client */
}

/* ------------------------------------------------------------------------------------------- */
/* When it cannot be                                                                           */

Test(reclaim, needs_good_arguments)
{
	struct told t = {0, 1};
	share_operation *o = NULL;

	check_error(share_reclaim(NULL, 0, NULL), SHARE_EINVAL);
	check_error(share_reclaim(buffer, -2, NULL), SHARE_EINVAL);
	check_error(share_reclaim(buffer, 0, &t), SHARE_EINVAL);
	check_error(share_reclaim_async(NULL, NULL, tell, &t, &o), SHARE_EINVAL);
	check_error(share_reclaim_async(buffer, NULL, NULL, &t, &o), SHARE_EINVAL);
	check_error(share_reclaim_async(buffer, &t, tell, &t, &o), SHARE_EINVAL);
	check(o == NULL);
	check_eq(t.times, 0);
}

Test(reclaim, of_what_one_does_not_have_is_refused)
{
	struct wire_message m = {.type = WIRE_RECLAIM};
	static struct raw r;
	uint64_t own;

	raw_open(&r, "raw");
	m.reclaim.buffer = share_id(buffer);
	raw_ask_error(&r, &m, SHARE_ESTALE);
	own = raw_alloc(&r, raw_pool(&r, "default"), SIZE);
	m.reclaim.buffer = own;
	m.reclaim.timeout = -2;
	raw_ask_error(&r, &m, SHARE_EINVAL);
	m.reclaim.timeout = 0;
	raw_ask(&r, &m, WIRE_GRANT);
	check_eq(r.m.grant.buffer, own);
	raw_ask_error(&r, &m, SHARE_EBUSY); /* that was another reference */
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
}

/* A client that gives up what it waits for is told so, and one that dies leaves nothing. */
Test(reclaim, ends_with_the_lease)
{
	struct wire_message publish = {.type = WIRE_PUBLISH}, reclaim = {.type = WIRE_RECLAIM},
			    release = {.type = WIRE_RELEASE};
	static struct raw r;
	uint64_t own;

	raw_open(&r, "raw");
	own = raw_alloc(&r, raw_pool(&r, "default"), SIZE);
	publish.publish.buffer = reclaim.reclaim.buffer = release.release.buffer = own;
	publish.publish.name = raw_text("name");
	raw_ask(&r, &publish, WIRE_PUBLISHED);
	reclaim.serial = 1000;
	reclaim.reclaim.timeout = -1;
	check_eq(raw_send(&r, &reclaim), 0);
	release.release.count = 1;
	check_eq(raw_send(&r, &release), 0);
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_ERROR);
	check_eq(r.m.serial, 1000);
	check_eq(r.m.error.error, SHARE_ESTALE);
	own = raw_alloc(&r, raw_pool(&r, "default"), SIZE);
	publish.publish.buffer = reclaim.reclaim.buffer = own;
	raw_ask(&r, &publish, WIRE_PUBLISHED);
	check_eq(raw_send(&r, &reclaim), 0);
	raw_ask(&r, &(struct wire_message){.type = WIRE_PING}, WIRE_DONE);
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
}
