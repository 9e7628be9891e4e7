/* SPDX-License-Identifier: MIT */

/* A consumer of a queue gives messages back: others get them, or it once more, but not for ever. */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <share/fence.h>
#include <share/service.h>

#include "tests/harness/child.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/harness/steps.h"
#include "tests/support/channel_work.h"

static share_client *client, *other, *third;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("producer");
	other = connect_as("who rejects");
	third = connect_as("another");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(third);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_reject, .init = start, .fini = stop, .timeout = 60);

static share_channel_options queue(void)
{
	return options(SHARE_QUEUE, SHARE_FULL_BLOCK);
}

static share_message receive(share_channel *c, uint64_t number, uint32_t deliveries)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(m.number, number);
	check_eq(m.deliveries, deliveries);
	return m;
}

Test(channel_reject, another_consumer_gets_it_marked_though_nothing_more_is_sent)
{
	share_channel_options o = queue();
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *a = open_channel(other, SHARE_CONSUMER, &o), *b;
	share_message m = SHARE_MESSAGE_INIT;

	send_filled(p, pool, 5);
	m = receive(a, 0, 1);
	b = open_channel(third, SHARE_CONSUMER, &o);
	until(channel_stats(p).consumers == 2);
	check_ok(share_reject(&m, NULL));
	check(!m.channel && !m.buffer);
	m = receive(b, 0, 2);
	expect_filled(share_ptr(m.buffer), 5, 4096);
	expect_nothing(a);
	check_error(share_channel_drain(p, 0), SHARE_EAGAIN);
	check_ok(share_ack(&m, NULL));
	check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
	check_eq(channel_stats(p).rejected, 1);
	check_eq(channel_stats(p).redelivered, 1);
	check_eq(channel_stats(p).set_aside, 0);
	check_eq(channel_stats(a).rejected, 1);
	check_eq(channel_stats(a).acknowledged, 0);
	check_eq(channel_stats(b).acknowledged, 1);
	share_channel_close(b);
	share_channel_close(a);
	share_channel_close(p);
}

Test(channel_reject, who_is_alone_gets_it_again_and_then_its_producer_has_it)
{
	share_channel_options o = queue();
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *a = open_channel(other, SHARE_CONSUMER, &o);
	share_message m = SHARE_MESSAGE_INIT;

	send_filled(p, pool, 6);
	for (uint32_t deliveries = 1; deliveries <= 3; deliveries++) {
		m = receive(a, 0, deliveries);
		check_ok(share_reject(&m, NULL));
	}
	check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
	check_eq(channel_stats(p).set_aside, 1);
	check_eq(channel_stats(p).rejected, 3);
	expect_nothing(a);
	check_ok(share_channel_take_back(p, &m));
	check_eq(m.deliveries, 3);
	expect_filled(share_ptr(m.buffer), 6, 4096);
	check_error(share_reject(&m, NULL), SHARE_EACCES);
	check_ok(share_ack(&m, NULL));
	share_channel_close(a);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */

struct rejecter {
	share_channel *ch;
	uint32_t most; /* deliveries of a message */
};

static void *rejects_all(void *data)
{
	struct rejecter *r = data;
	share_message m = SHARE_MESSAGE_INIT;
	int error;

	while ((error = share_recv(r->ch, HARNESS_LIMIT_MS, NULL, &m)) == 0) {
		if (m.deliveries > r->most)
			r->most = m.deliveries;
		check_ok(share_reject(&m, NULL));
	}
	check_eq(error, SHARE_EPIPE);
	return NULL;
}

#define MESSAGES 500

Test(channel_reject, who_rejects_everything_keeps_nobody_waiting)
{
	share_channel_options o = queue();
	struct rejecter r = {.most = 0};
	share_channel *p;
	pthread_t thread;

	o.depth = 4;
	o.in_flight = 8;
	p = open_channel(client, SHARE_PRODUCER, &o);
	r.ch = open_channel(other, SHARE_CONSUMER, &o);
	check(pthread_create(&thread, NULL, rejects_all, &r) == 0);
	for (int i = 0; i < MESSAGES; i++)
		send_filled(p, pool, i);
	check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
	check_eq(channel_stats(p).set_aside, MESSAGES);
	check_eq(channel_stats(p).rejected, 3 * MESSAGES);
	check_eq(channel_stats(p).in_flight, 0);
	check_eq(channel_stats(p).left_behind, 0);
	share_channel_close(p);
	check(pthread_join(thread, NULL) == 0);
	check_eq(r.most, 3);
	check_eq(channel_stats(r.ch).rejected, 3 * MESSAGES);
	share_channel_close(r.ch);
}

static void *receives_all(void *data)
{
	share_message m = SHARE_MESSAGE_INIT;
	int error;

	while ((error = share_recv(data, HARNESS_LIMIT_MS, NULL, &m)) == 0)
		check_ok(share_ack(&m, NULL));
	check_eq(error, SHARE_EPIPE);
	return NULL;
}

/* The other one has room for all that is in flight. */
Test(channel_reject, who_rejects_everything_costs_others_nothing)
{
	share_channel_options o = queue();
	struct rejecter r = {.most = 0};
	share_channel *p, *b;
	pthread_t threads[2];

	o.depth = 8;
	o.in_flight = 8;
	p = open_channel(client, SHARE_PRODUCER, &o);
	r.ch = open_channel(other, SHARE_CONSUMER, &o);
	b = open_channel(third, SHARE_CONSUMER, &o);
	until(channel_stats(p).consumers == 2);
	check(pthread_create(&threads[0], NULL, rejects_all, &r) == 0);
	check(pthread_create(&threads[1], NULL, receives_all, b) == 0);
	for (uint32_t i = 0; i < MESSAGES; i++)
		send_number(p, i);
	check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
	check_eq(channel_stats(p).set_aside, 0);
	check_eq(channel_stats(b).acknowledged, MESSAGES);
	share_channel_close(p);
	for (int i = 0; i < 2; i++)
		check(pthread_join(threads[i], NULL) == 0);
	check(r.most <= 1);
	share_channel_close(r.ch);
	share_channel_close(b);
}

/* ------------------------------------------------------------------------------------------- */

Test(channel_reject, a_message_is_given_up_once)
{
	share_channel_options o = queue();
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *a = open_channel(other, SHARE_CONSUMER, &o);
	share_message m = SHARE_MESSAGE_INIT, copy = SHARE_MESSAGE_INIT;
	share_message none = SHARE_MESSAGE_INIT;

	send_filled(p, pool, 1);
	copy = m = receive(a, 0, 1);
	check_ok(share_reject(&m, NULL));
	check_error(share_reject(&m, NULL), SHARE_EINVAL);
	check_error(share_reject(&copy, NULL), SHARE_EINVAL);
	check_error(share_ack(&copy, NULL), SHARE_EINVAL);
	copy = m = receive(a, 0, 2);
	check_ok(share_ack(&m, NULL));
	check_error(share_reject(&m, NULL), SHARE_EINVAL);
	check_error(share_reject(&copy, NULL), SHARE_EINVAL);
	check_error(share_reject(&none, NULL), SHARE_EINVAL);
	check_error(share_reject(NULL, NULL), SHARE_EINVAL);
	check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
	check_eq(channel_stats(p).set_aside, 0);
	check_eq(channel_stats(p).rejected, 1);
	share_channel_close(a);
	share_channel_close(p);
}

Test(channel_reject, a_message_of_a_broadcast_cannot_be_given_back)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *a = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	send_filled(p, pool, 1);
	m = receive(a, 0, 1);
	check_error(share_reject(&m, NULL), SHARE_ENOTSUP);
	check_detail("only a message of a queue");
	expect_filled(share_ptr(m.buffer), 1, 4096);
	check_ok(share_ack(&m, NULL));
	share_channel_close(a);
	share_channel_close(p);
}

Test(channel_reject, a_request_to_a_service_is_to_be_answered)
{
	share_service *caller, *worker;
	share_pending *pending;
	share_message m = SHARE_MESSAGE_INIT, answer = SHARE_MESSAGE_INIT;

	check_ok(share_service_open(client, "s", SHARE_CALLER, NULL, &caller));
	check_ok(share_service_open(other, "s", SHARE_WORKER, NULL, &worker));
	check_ok(share_call_start(caller, NULL, "?", 1, HARNESS_LIMIT_MS, NULL, &pending));
	check_ok(share_next_request(worker, HARNESS_LIMIT_MS, NULL, &m));
	check_error(share_reject(&m, NULL), SHARE_ENOTSUP);
	check_detail("is to be answered");
	check_ok(share_reply(&m, NULL, "!", 1, NULL));
	check_ok(share_call_finish(pending, HARNESS_LIMIT_MS, NULL, &answer));
	check_error(share_reject(&answer, NULL), SHARE_ENOTSUP);
	check_ok(share_ack(&answer, NULL));
	share_service_close(worker);
	share_service_close(caller);
}

/* ------------------------------------------------------------------------------------------- */
/* Work and memory                                                                             */

struct rejection {
	share_message m;
	share_host_stream *stream;
	atomic_bool begins;
};

static void *reject_behind(void *data)
{
	struct rejection *r = data;

	atomic_store(&r->begins, true);
	check_ok(share_reject(&r->m, r->stream));
	return NULL;
}

/* Nobody else gets the message before its memory is used no more. */
Test(channel_reject, work_that_was_enqueued_before_is_waited_for)
{
	share_channel_options o = queue();
	share_channel *p, *a, *b;
	struct gate *gate = gate_new();
	struct rejection r;
	pthread_t thread;
	share_message m = SHARE_MESSAGE_INIT;

	o.flags = SHARE_CHANNEL_WRITABLE;
	p = open_channel(client, SHARE_PRODUCER, &o);
	a = open_channel(other, SHARE_CONSUMER, &o);
	check_ok(share_host_stream_create(other, &r.stream));
	send_filled(p, pool, 1);
	r.m = receive(a, 0, 1);
	b = open_channel(third, SHARE_CONSUMER, &o);
	gate_hold(gate, r.stream);
	gate_fill(gate, r.stream, share_ptr(r.m.buffer), 2, 4096);
	atomic_init(&r.begins, false);
	check(pthread_create(&thread, NULL, reject_behind, &r) == 0);
	until(atomic_load(&r.begins));
	for (int i = 0; i < 1000; i++) {
		expect_nothing(b);
		sched_yield();
	}
	gate_open(gate);
	check(pthread_join(thread, NULL) == 0);
	m = receive(b, 0, 2);
	expect_filled(share_ptr(m.buffer), 2, 4096);
	check_ok(share_ack(&m, NULL));
	share_host_stream_destroy(r.stream);
	gate_free(gate);
	share_channel_close(b);
	share_channel_close(a);
	share_channel_close(p);
}

Test(channel_reject, what_the_program_keeps_of_it_stays)
{
	share_channel_options o = queue();
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *a = open_channel(other, SHARE_CONSUMER, &o);
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *kept;

	send_filled(p, pool, 3);
	m = receive(a, 0, 1);
	kept = share_retain(m.buffer);
	check_ok(share_reject(&m, NULL));
	check(!m.buffer);
	m = receive(a, 0, 2);
	check_ok(share_ack(&m, NULL));
	until(in_flight(p) == 0);
	for (int i = 0; i < 10; i++) {
		send_filled(p, pool, 4);
		expect_message(a, 4);
	}
	expect_filled(share_ptr(kept), 3, 4096);
	check_ok(share_release(kept, NULL));
	share_channel_close(a);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Who goes                                                                                    */

Test(channel_reject, who_has_closed_the_channel_may_give_back_what_it_has)
{
	share_channel_options o = queue();
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *a = open_channel(other, SHARE_CONSUMER, &o), *b;
	share_message m = SHARE_MESSAGE_INIT;

	send_number(p, 0);
	m = receive(a, 0, 1);
	b = open_channel(third, SHARE_CONSUMER, &o);
	share_channel_close(a);
	check_ok(share_reject(&m, NULL));
	m = receive(b, 0, 2);
	check_ok(share_ack(&m, NULL));
	check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
	share_channel_close(b);
	share_channel_close(p);
}

/* Until it is killed. */
static void reject_for_ever(struct child *self, void *data)
{
	share_channel_options o = queue();
	share_channel *ch = open_channel(child_connect("rejects"), SHARE_CONSUMER, &o);
	atomic_uint *rejected = data;
	share_message m = SHARE_MESSAGE_INIT;

	child_point(self, "joined");
	while (share_recv(ch, -1, NULL, &m) == 0) {
		check_ok(share_reject(&m, NULL));
		atomic_fetch_add(rejected, 1);
	}
}

/* Each is acknowledged or set aside, and nobody gets one more often than that takes. */
Test(channel_reject, who_is_killed_while_it_rejects_takes_nothing_along)
{
	atomic_uint *rejected =
	    mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	share_channel_options o = queue();
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	uint32_t sent = 0;

	check(rejected != MAP_FAILED);
	for (unsigned round = 1; round <= 10; round++) {
		struct child *c = child_start(reject_for_ever, rejected);
		share_channel *b;
		share_message m = SHARE_MESSAGE_INIT;

		child_wait(c, "joined");
		child_go(c);
		for (unsigned i = 0; i < 20; i++)
			send_number(p, sent++);
		until(atomic_load(rejected) >= round * 7);
		child_kill(c);
		b = open_channel(third, SHARE_CONSUMER, &o);
		while (share_channel_drain(p, 0) != 0) {
			int r = share_recv(b, 10, NULL, &m);

			if (r == SHARE_ETIMEDOUT)
				continue;
			check_ok(r);
			check(m.deliveries <= 3);
			check_ok(share_ack(&m, NULL));
		}
		share_channel_close(b);
		until(channel_stats(p).consumers == 0);
	}
	check_eq(channel_stats(p).done, sent);
	check(channel_stats(p).rejected >= 70);
	share_channel_close(p);
	munmap(rejected, 4096);
}

Test(channel_reject, no_broker_is_needed)
{
	share_channel_options o = queue();
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *a = open_channel(other, SHARE_CONSUMER, &o);
	share_channel *b;
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *kept;

	send_filled(p, pool, 1);
	m = receive(a, 0, 1);
	b = open_channel(third, SHARE_CONSUMER, &o);
	until(channel_stats(p).consumers == 2);
	broker_kill();
	check_ok(share_reject(&m, NULL));
	m = receive(b, 0, 2);
	/* nobody can give it a lease, so it is given back with the handle */
	kept = share_retain(m.buffer);
	check_ok(share_reject(&m, NULL));
	expect_nothing(a);
	expect_nothing(b);
	check_ok(share_release(kept, NULL));
	m = receive(a, 0, 3);
	check_ok(share_ack(&m, NULL));
	check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
	check_eq(channel_stats(p).rejected, 2);
	share_channel_close(b);
	share_channel_close(a);
	share_channel_close(p);
	broker_stop();
	broker_start(NULL);
}

/* ------------------------------------------------------------------------------------------- */
/* The producer is gone                                                                        */

Test(channel_reject, another_consumer_gets_it_though_its_producer_is_gone)
{
	share_channel_options o = queue();
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *a = open_channel(other, SHARE_CONSUMER, &o), *b;
	share_message m = SHARE_MESSAGE_INIT;

	send_filled(p, pool, 5);
	m = receive(a, 0, 1);
	share_channel_close(p);
	check_ok(share_reject(&m, NULL));
	share_channel_close(a);
	b = open_channel(third, SHARE_CONSUMER, &o);
	m = receive(b, 0, 2);
	expect_filled(share_ptr(m.buffer), 5, 4096);
	check_ok(share_ack(&m, NULL));
	check_error(share_recv(b, HARNESS_LIMIT_MS, NULL, &m), SHARE_EPIPE);
	share_channel_close(b);
}

struct death {
	uint64_t at; /* which change of what it writes for others it is killed behind; 0: none */
	uint64_t changes;
	bool has_rejected; /* it was killed behind the last one */
};
static volatile struct death *death;
static const unsigned char *ledger;
static unsigned char *as_it_was;
static size_t ledger_size;

static void find_ledger(void)
{
	char line[512];
	unsigned long begin, end;
	FILE *maps = fopen("/proc/self/maps", "re");

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, "share-ledger") && sscanf(line, "%lx-%lx", &begin, &end) == 2) {
			ledger = (const unsigned char *)begin; // NOLINT
			ledger_size = end - begin;
		}
	check(maps && ledger);
	fclose(maps);
	as_it_was = malloc(ledger_size);
	check(as_it_was);
	memcpy(as_it_was, ledger, ledger_size);
}

static void die_if_it_is_time(void)
{
	if (memcmp(as_it_was, ledger, ledger_size) == 0)
		return;
	memcpy(as_it_was, ledger, ledger_size);
	if (++death->changes == death->at)
		kill(getpid(), SIGKILL);
}

static void rejects_and_dies(struct child *self, void *data)
{
	share_channel_options o = queue();
	share_channel *c = open_channel(child_connect("mortal"), SHARE_CONSUMER, &o);
	share_message m = receive(c, 0, 1);

	(void)self, (void)data;
	find_ledger();
	steps_begin(die_if_it_is_time);
	check_ok(share_reject(&m, NULL));
	steps_end();
	death->has_rejected = true;
	kill(getpid(), SIGKILL);
}

/* Wherever that is, it comes once more, and counts as one that was delivered once. */
Test(channel_reject, who_is_killed_at_any_step_of_rejecting_what_is_nobodys_leaves_it_to_others)
{
	share_channel_options o = queue();
	share_channel *p, *c;
	share_message m;

	if (!STEPS_ARE_KNOWN)
		cr_skip("for want of single steps");
	death =
	    mmap(NULL, sizeof(*death), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(death != MAP_FAILED);
	while (!death->has_rejected) {
		death->at++;
		death->changes = 0;
		p = open_channel(client, SHARE_PRODUCER, &o);
		send_number(p, 1);
		share_channel_close(p);
		child_status(child_start(rejects_and_dies, NULL));
		c = open_channel(other, SHARE_CONSUMER, &o);
		m = receive(c, 0, 2);
		check_ok(share_ack(&m, NULL));
		check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), SHARE_EPIPE);
		share_channel_close(c);
	}
	/* how many it has given up, and how many of these rejected, and the word */
	check(death->at > 3);
}

Test(channel_reject, who_is_alone_gets_it_again_though_its_producer_is_gone)
{
	share_channel_options o = queue();
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *a = open_channel(other, SHARE_CONSUMER, &o);
	share_message m = SHARE_MESSAGE_INIT;

	send_filled(p, pool, 6);
	m = receive(a, 0, 1);
	share_channel_close(p);
	for (uint32_t deliveries = 2; deliveries <= 3; deliveries++) {
		check_ok(share_reject(&m, NULL));
		m = receive(a, 0, deliveries);
		expect_filled(share_ptr(m.buffer), 6, 4096);
	}
	check_ok(share_reject(&m, NULL));
	check_error(share_recv(a, HARNESS_LIMIT_MS, NULL, &m), SHARE_EPIPE);
	share_channel_close(a);
}
