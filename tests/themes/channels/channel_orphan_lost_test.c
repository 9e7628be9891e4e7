/* SPDX-License-Identifier: MIT */

/* Messages of a queue whose producer is gone that nobody gets: for how long they wait and how many
 * of them, what they give way to, who may end them, and how it is told that they are lost. */

#include <stdatomic.h>

#include <share/admin.h>

#include "broker/accounts/price.h"
#include "tests/harness/fixture.h"
#include "tests/harness/plan.h"
#include "tests/support/channel_work.h"
#include "tests/support/raw_channel.h"
#include "tests/themes/channels/later_broker.h"

#define HOUR_MS (60 * 60 * 1000)
#define ALICE   4711

static struct later_plan *plan;
static share_client *client, *other;

static void start_with_limits(const char *limits)
{
	char config[512];

	plan = plan_new(LATER_PLAN_VARIABLE, sizeof(*plan));
	broker_use_program(LATER_BROKER);
	snprintf(
	    config, sizeof(config),
	    "{\"limits\": {%s}, \"create_pools\": [\"*\"], \"pools\": [{\"name\": "
	    "\"default\", \"kind\": \"host\", \"limit\": \"64MiB\", \"segment_size\": \"1MiB\", "
	    "\"release_threshold\": 0, \"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]}]}",
	    limits);
	fixture_start_with(config);
	client = connect_as("one");
	other = connect_as("other");
}

static void start(void)
{
	start_with_limits("\"channels\": 200");
}

static void start_with_few_bytes(void)
{
	start_with_limits("\"channels\": 1000, \"bytes\": \"16MiB\"");
}

static void stop(void)
{
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_orphan_lost, .init = start, .fini = stop, .timeout = 60);
TestSuite(channel_orphan_few_bytes, .init = start_with_few_bytes, .fini = stop, .timeout = 60);

static share_channel *open_queue(share_client *c, const char *name, int role)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *ch;

	check_ok(share_channel_open(c, name, role, &o, &ch));
	return ch;
}

/* From @from on, by a producer that is gone then. */
static void leave(const char *name, uint32_t from, uint32_t n)
{
	share_channel *p = open_queue(client, name, SHARE_PRODUCER);

	for (uint32_t i = 0; i < n; i++)
		send_number(p, from + i);
	share_channel_close(p);
}

/* -1: there is no such channel. */
static int64_t channel_number(const char *name, const char *key)
{
	json_t *rows = report(other, "channels");
	const json_t *row = row_named(rows, "channel", name);
	int64_t n = row ? number_of(row, key) : -1;

	json_decref(rows);
	return n;
}

static int64_t messages_lost(void)
{
	json_t *rows = report(other, "status");
	int64_t n = number_of(json_array_get(rows, 0), "messages_lost");

	json_decref(rows);
	return n;
}

static void expect(share_channel *c, uint32_t number, uint64_t lost)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(*(const uint32_t *)(const void *)m.data, number);
	check_eq(m.lost, lost);
	check_ok(share_ack(&m, NULL));
}

static bool hours_later(const char *name)
{
	atomic_fetch_add(&plan->ahead_ms, HOUR_MS);
	return channel_number(name, "waiting") < 0;
}

/* ------------------------------------------------------------------------------------------- */

Test(channel_orphan_lost, they_wait_for_an_hour_without_a_consumer)
{
	share_pool *pool = open_pool(client);
	share_channel *p = open_queue(client, "q", SHARE_PRODUCER);

	for (int i = 0; i < 3; i++) {
		share_buffer *b = filled_buffer(pool, i);

		check_ok(share_give(p, b, NULL, 0, NULL));
	}
	share_channel_close(p);
	check_eq(channel_number("q", "waiting"), 3);
	check_eq(channel_number("q", "kept_buffers"), 3);
	check_eq(channel_number("q", "kept_bytes"), 3 * 4096);
	settle(client, s.buffers == 3 && s.leases == 0);
	until(hours_later("q"));
	settle(client, s.buffers == 0);
	check_eq(messages_lost(), 3);
	check_eq(broker_said("channel 'q' loses 3 messages of producers that are gone: no consumer "
			     "has come for an hour"),
		 1);
	share_pool_close(pool);
}

/* The hours of another channel say that the broker has looked. */
Test(channel_orphan_lost, they_wait_as_long_as_a_consumer_is_there)
{
	share_channel *c = open_queue(client, "with", SHARE_CONSUMER);

	leave("with", 1, 2);
	leave("without", 1, 1);
	until(hours_later("without"));
	leave("without", 1, 1);
	until(hours_later("without"));
	expect(c, 1, 0);
	expect(c, 2, 0);
	share_channel_close(c);
	check_eq(messages_lost(), 2);
}

static bool hours_later_lost(int64_t n)
{
	atomic_fetch_add(&plan->ahead_ms, HOUR_MS);
	return messages_lost() == n;
}

/* It is in the channel, and its library does not know what it could ask for. */
Test(channel_orphan_lost, they_wait_for_no_consumer_of_an_older_version)
{
	struct party old;
	struct raw r;

	leave("q", 1, 2);
	raw_connect(&r);
	r.version = WIRE_VERSION_ORPHANS - 1;
	raw_greet(&r, "old");
	party_join(&old, &r, "q", SHARE_CONSUMER);
	check_eq(channel_number("q", "waiting"), 2);
	until(hours_later_lost(2));
	check_eq(channel_number("q", "waiting"), 0);
	party_close(&old);
	raw_close(&r);
}

Test(channel_orphan_lost, they_go_with_a_pool_that_is_destroyed_and_that_nobody_receives_from)
{
	share_pool_options of_pool = SHARE_POOL_OPTIONS_INIT;
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *p, *c;
	share_pool *pool;

	o.pool = "mine";
	of_pool.kind = "host";
	check_ok(share_pool_create(client, "mine", &of_pool, &pool));
	check_ok(share_channel_open(other, "q", SHARE_CONSUMER, &o, &c));
	check_ok(share_channel_open(client, "q", SHARE_PRODUCER, &o, &p));
	check_ok(share_give(p, filled_buffer(pool, 1), NULL, 0, NULL));
	check_ok(share_give(p, filled_buffer(pool, 2), NULL, 0, NULL));
	share_channel_close(p);
	share_pool_close(pool);
	check_ok(share_pool_destroy(client, "mine"));
	/* who is there gets them all the same */
	expect_message(c, 1);
	share_channel_close(c);
	/* both are asked to unmap it, and read that when they say something */
	settle(client, share_ping(other) == 0 && s.pools == 1);
	check_eq(messages_lost(), 1);
	check_eq(
	    broker_said("channel 'q' loses 1 message of producers that are gone: their pool was "
			"destroyed"),
	    1);
}

Test(channel_orphan_lost, a_channel_keeps_those_of_64_producers)
{
	share_channel *c;

	for (uint32_t i = 0; i < 70; i++)
		leave("q", i, 1);
	check_eq(channel_number("q", "waiting"), 64);
	check_eq(channel_number("q", "lost"), 6);
	check_eq(messages_lost(), 6);
	check(broker_said("channel 'q' loses 1 message of producers that are gone: more than 64 "
			  "producers have left some") == 6);
	c = open_queue(other, "q", SHARE_CONSUMER);
	expect(c, 6, 6);
	for (uint32_t i = 7; i < 70; i++)
		expect(c, i, 0);
	share_channel_close(c);
}

/* They count as their producers' user's, and lock nobody out. */
Test(channel_orphan_lost, they_give_way_when_their_user_has_no_room_for_memberships)
{
	share_channel *c;
	char name[16];

	for (uint32_t i = 0; i < 250; i++) {
		snprintf(name, sizeof(name), "q%u", i);
		leave(name, i, 1);
	}
	/* the oldest are lost, and no others */
	check_eq(channel_number("q49", "waiting"), -1);
	check_eq(channel_number("q50", "waiting"), 1);
	check_eq(channel_number("q249", "waiting"), 1);
	check_eq(messages_lost(), 50);
	c = open_queue(client, "q249", SHARE_CONSUMER); /* of the same user */
	expect(c, 249, 0);
	check_eq(messages_lost(), 51);
	share_channel_close(c);
}

Test(channel_orphan_few_bytes, they_do_not_give_way_to_what_there_is_no_room_for_anyhow)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *ch;

	for (uint32_t i = 0; i < 10; i++)
		leave("q", 2 * i, 2);
	o.depth = 4096;
	o.in_flight = 8192;
	o.consumers = 64;
	check_error(share_channel_open(client, "large", SHARE_PRODUCER, &o, &ch), SHARE_EQUOTA);
	check_eq(channel_number("q", "waiting"), 20);
	check_eq(messages_lost(), 0);
}

Test(channel_orphan_few_bytes, they_give_way_when_their_user_has_no_room_for_a_ring)
{
	char name[16];
	uint32_t n = 0;

	for (; messages_lost() == 0; n++) {
		snprintf(name, sizeof(name), "q%u", n);
		leave(name, n, 1);
	}
	check_eq(messages_lost(), 1);
	check_eq(channel_number("q0", "waiting"), -1);
	check_eq(channel_number("q1", "waiting"), 1);
}

Test(channel_orphan_lost, what_is_ended_is_told_to_the_next_consumer_once)
{
	share_channel *p = open_queue(client, "q", SHARE_PRODUCER), *c, *later;

	check_error(share_end_channel(client, "q"), SHARE_ENOENT);
	leave("q", 1, 3);
	check_eq(channel_number("q", "waiting"), 3);
	check_ok(share_end_channel(client, "q"));
	check_eq(channel_number("q", "waiting"), 0);
	check_error(share_end_channel(client, "q"), SHARE_ENOENT);
	check_detail("there is nothing to end in a channel 'q'");
	check_error(share_end_channel(client, "none"), SHARE_ENOENT);
	check_error(share_end_channel(client, NULL), SHARE_ENOENT);
	check_eq(messages_lost(), 3);
	c = open_queue(other, "q", SHARE_CONSUMER);
	send_number(p, 10);
	expect(c, 10, 3);
	later = open_queue(other, "q", SHARE_CONSUMER);
	share_channel_close(c);
	send_number(p, 11);
	expect(later, 11, 0);
	share_channel_close(later);
	share_channel_close(p);
}

Test(channel_orphan_lost, what_somebody_has_is_not_ended)
{
	share_channel *c;
	share_message m = SHARE_MESSAGE_INIT;

	leave("q", 1, 3);
	c = open_queue(other, "q", SHARE_CONSUMER);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_ok(share_end_channel(client, "q"));
	check_eq(*(const uint32_t *)(const void *)m.data, 1);
	check_ok(share_ack(&m, NULL));
	check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), SHARE_EPIPE);
	share_channel_close(c);
	until(channel_number("q", "waiting") == -1);
}

static void ends_messages_of_others(struct child *self, void *data)
{
	share_client *c;

	(void)self, (void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	check_error(share_end_channel(c, "q"), SHARE_ENOENT);
	share_disconnect(c);
}

Test(channel_orphan_lost, whose_they_are_and_administrators_may_end_them)
{
	struct child *child;

	skip_unless_root();
	leave("q", 1, 1);
	child = child_start(ends_messages_of_others, NULL);
	child_finish(child);
	check_eq(channel_number("q", "waiting"), 1);
	check_ok(share_end_channel(client, "q"));
	check_eq(channel_number("q", "waiting"), -1);
}

static void reject(struct party *c, const struct listing *l)
{
	const struct party p = {.id = l->said.producer, .row = l->members[0].row};

	party_acknowledge(c, &p, l->said.ticket, l->said.version,
			  CHANNEL_ACK_REJECTED | l->said.deliveries, 0);
	until(channel_number("q", "waiting") == 1);
}

/* For a second, if there is another one; who is alone gets it at once. */
Test(channel_orphan_lost, who_has_given_one_back_leaves_it_to_others)
{
	struct party bad, good;
	struct listing l;
	struct raw r;

	leave("q", 1, 1);
	raw_open(&r, "raw");
	atomic_store(&plan->stopped_ms, HOUR_MS);
	party_join(&bad, &r, "q", SHARE_CONSUMER);
	check(party_fetch(&bad, &l));
	reject(&bad, &l);
	check(party_fetch(&bad, &l));
	check_eq(l.said.deliveries, 2);
	party_join(&good, &r, "q", SHARE_CONSUMER);
	reject(&bad, &l);
	check(!party_fetch(&bad, &l));
	atomic_fetch_add(&plan->stopped_ms, 999);
	check(!party_fetch(&bad, &l));
	atomic_fetch_add(&plan->stopped_ms, 1);
	check(party_fetch(&bad, &l));
	check_eq(l.said.deliveries, 3);
	party_close(&bad);
	party_close(&good);
	raw_close(&r);
	atomic_store(&plan->stopped_ms, 0);
}

static void leaves_too_many(struct child *self, void *data)
{
	share_client *c;

	(void)self, (void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	for (uint32_t i = 0; i < 70; i++) {
		share_channel *p = open_queue(c, "q", SHARE_PRODUCER);

		send_number(p, i);
		share_channel_close(p);
	}
	share_disconnect(c);
}

Test(channel_orphan_lost, who_leaves_too_many_loses_none_of_other_users)
{
	share_channel *c;

	skip_unless_root();
	leave("q", 1000, 1);
	child_finish(child_start(leaves_too_many, NULL));
	check_eq(channel_number("q", "waiting"), 64);
	check_eq(channel_number("q", "lost"), 7);
	c = open_queue(other, "q", SHARE_CONSUMER);
	expect(c, 1000, 7);
	for (uint32_t i = 7; i < 70; i++)
		expect(c, i, 0);
	share_channel_close(c);
}

/* Who opens it otherwise cannot ask anybody. */
Test(channel_orphan_lost, who_opens_it_otherwise_is_told_what_waits)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *ch;

	leave("q", 1, 3);
	o.depth = 2;
	check_error(share_channel_open(other, "q", SHARE_CONSUMER, &o, &ch), SHARE_EEXIST);
	check_detail(
	    "3 messages of producers that are gone wait in it for a consumer: receive what "
	    "waits, or end it (sharectl end-channel)");
	check_ok(share_end_channel(client, "q"));
	check_ok(share_channel_open(other, "q", SHARE_CONSUMER, &o, &ch));
	share_channel_close(ch);
}

static void receive_and_die(struct child *self, void *data)
{
	share_channel *c = open_queue(child_connect("consumer"), "q", SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	check_ok(share_recv(c, -1, NULL, &m));
	child_point(self, "received");
}

/* Three times, if nothing else is said. */
Test(channel_orphan_lost, what_is_delivered_too_often_is_logged_and_told)
{
	struct child *child;
	share_channel *c;

	leave("q", 1, 2);
	for (int i = 0; i < 3; i++) {
		child = child_start(receive_and_die, NULL);
		child_wait(child, "received");
		child_kill(child);
		until(channel_number("q", "owned") == 0);
	}
	check_eq(messages_lost(), 1);
	check_eq(broker_said("channel 'q' loses 1 message of producers that are gone: they were "
			     "delivered as often as the channel allows"),
		 1);
	c = open_queue(other, "q", SHARE_CONSUMER);
	expect(c, 2, 1);
	share_channel_close(c);
}

static uint64_t set_aside(share_channel *p)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;

	check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
	check_ok(share_channel_get_stats(p, &stats));
	return stats.set_aside;
}

/* How many were lost, as it is told with them. */
static uint64_t reject_each_time(share_channel *c, int messages)
{
	share_message m = SHARE_MESSAGE_INIT;
	uint64_t lost = 0;

	for (int i = 0; i < 3 * messages; i++) {
		check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
		lost += m.lost;
		check_ok(share_reject(&m, NULL));
	}
	return lost;
}

/* Its messages are nobody's as soon as they are set aside, whether or not it knows that yet. */
static void dies_with_messages_set_aside(struct child *self, void *data)
{
	share_channel *p = open_queue(child_connect("producer"), "q", SHARE_PRODUCER);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	for (uint32_t i = 0; i < 3; i++)
		send_number(p, i);
	child_point(self, "sent");
	check_eq(set_aside(p), 3);
	check_ok(share_channel_take_back(p, &m));
	child_point(self, "took one back");
}

Test(channel_orphan_lost, what_a_producer_did_not_take_back_is_counted_when_it_goes)
{
	share_channel *c = open_queue(other, "q", SHARE_CONSUMER);
	share_channel *p = open_queue(client, "q", SHARE_PRODUCER);
	share_message m = SHARE_MESSAGE_INIT;
	struct child *child;
	uint64_t told;

	send_number(p, 1);
	send_number(p, 2);
	check_eq(reject_each_time(c, 2), 0);
	check_eq(set_aside(p), 2);
	check_ok(share_channel_take_back(p, &m));
	check_ok(share_ack(&m, NULL));
	check_eq(messages_lost(), 0);
	share_channel_close(p);
	until(messages_lost() == 1);
	check_eq(channel_number("q", "lost"), 1);

	child = child_start(dies_with_messages_set_aside, NULL);
	child_wait(child, "sent");
	told = reject_each_time(c, 3);
	child_go(child);
	child_wait(child, "took one back");
	child_kill(child);
	until(messages_lost() == 3);
	check_eq(broker_said("they were delivered as often as the channel allows"), 2);

	p = open_queue(client, "q", SHARE_PRODUCER);
	send_number(p, 9);
	expect(c, 9, 3 - told);
	share_channel_close(p);
	share_channel_close(c);
}

Test(channel_orphan_lost, they_wait_for_no_consumer_whose_connection_has_ended)
{
	struct child *child = child_start(receive_and_die, NULL);
	share_channel *p = open_queue(client, "q", SHARE_PRODUCER);
	share_pool *pool = open_pool(client);
	json_t *rows;

	/* which it may use, so that its process is waited for */
	check_ok(share_give(p, filled_buffer(pool, 1), NULL, 0, NULL));
	share_channel_close(p);
	child_wait(child, "received");
	rows = report(client, "clients");
	check_ok(share_drop_client(
	    client, (uint64_t)number_of(row_named(rows, "label", "consumer"), "client")));
	json_decref(rows);
	settle(client, s.quarantined == 1);
	leave("q", 1, 2);
	check_eq(channel_number("q", "waiting"), 2);
	until(hours_later_lost(2));
	check_eq(channel_number("q", "waiting"), 0);
	child_kill(child);
	share_pool_close(pool);
	/* what it had waits for an hour of its own */
	until(channel_number("q", "owned") == 0);
	check_eq(channel_number("q", "waiting"), 1);
	check_ok(share_end_channel(client, "q"));
}

/* ------------------------------------------------------------------------------------------- */
/* Many                                                                                        */

#define MANY    4096 /* of one producer, without a consumer, at most */
#define A_TURN  4096
#define OF_ALL  (A_TURN + 512) /* those of others, and of what else goes on, beside them */
#define AT_ONCE 6

static share_channel_options for_many(void)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);

	o.depth = MANY;
	o.in_flight = 2 * MANY;
	o.consumers = 1;
	return o;
}

/* By producers of @name that are gone then. */
static void leave_many(const char *name, int producers)
{
	share_channel_options o = for_many();
	share_channel *p;

	for (int k = 0; k < producers; k++) {
		check_ok(share_channel_open(client, name, SHARE_PRODUCER, &o, &p));
		for (uint32_t i = 0; i < MANY; i++)
			send_number(p, i);
		share_channel_close(p);
	}
	check_eq(channel_number(name, "waiting"), producers * MANY);
	atomic_store(&plan->most_dropped, 0);
}

Test(channel_orphan_lost, as_many_as_there_may_be_end_in_turns_when_a_user_ends_them)
{
	leave_many("q", AT_ONCE);
	check_ok(share_end_channel(client, "q"));
	check_eq(channel_number("q", "waiting"), -1);
	check_eq(messages_lost(), AT_ONCE * MANY);
	check(atomic_load(&plan->most_dropped) >= A_TURN);
	check(atomic_load(&plan->most_dropped) <= OF_ALL);
}

Test(channel_orphan_lost, as_many_as_there_may_be_end_in_turns_when_nobody_has_come_for_an_hour)
{
	leave_many("q", AT_ONCE);
	leave_many("other", 1);
	until(hours_later("q") && hours_later("other"));
	check_eq(messages_lost(), (AT_ONCE + 1) * MANY);
	check(atomic_load(&plan->most_dropped) >= A_TURN);
	check(atomic_load(&plan->most_dropped) <= OF_ALL);
}

/* Each makes room by itself; who joins is answered when there is. */
Test(channel_orphan_few_bytes, as_many_as_there_may_be_give_way_in_turns)
{
	share_channel_options o = for_many();
	share_channel *ch;

	leave_many("q", 2);
	o.consumers = 8;
	check_ok(share_channel_open(client, "large", SHARE_PRODUCER, &o, &ch));
	check_eq(messages_lost(), 2 * MANY);
	check(atomic_load(&plan->most_dropped) <= OF_ALL);
	share_channel_close(ch);
}

/* What the broker keeps for each is paid for when its producer comes, and until the last one is
 * gone. */
Test(channel_orphan_lost, their_producers_user_pays_for_as_many_as_there_may_be)
{
	share_channel_options o = for_many();
	int64_t before = used_of(client, "broker_memory"), paid;
	share_channel *p;

	check_ok(share_channel_open(client, "q", SHARE_PRODUCER, &o, &p));
	paid = used_of(client, "broker_memory") - before;
	check(paid >= (int64_t)o.in_flight * PRICE_ORPHAN);
	send_number(p, 1);
	share_channel_close(p);
	check(used_of(client, "broker_memory") - before >= paid);
	check_ok(share_end_channel(client, "q"));
	check_eq(used_of(client, "broker_memory"), before);
}

/* Those that somebody has, too: each has an entry of its owner's. */
Test(channel_orphan_lost, a_broker_takes_as_many_over_as_there_may_be_with_a_look_at_each)
{
	share_channel_options o = for_many();
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *p, *c;

	check_ok(share_channel_open(other, "q", SHARE_CONSUMER, &o, &c));
	check_ok(share_channel_open(client, "q", SHARE_PRODUCER, &o, &p));
	for (uint32_t i = 0; i < MANY; i++)
		send_number(p, i);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	share_channel_close(p);
	check_eq(channel_number("q", "owned"), MANY);
	atomic_store(&plan->looks, 0);
	broker_kill_serving();
	check_eq(channel_number("q", "owned"), MANY);
	check(atomic_load(&plan->looks) >= MANY);
	check(atomic_load(&plan->looks) <= 2 * MANY);
	check_ok(share_ack(&m, NULL));
	for (uint32_t i = 1; i < MANY; i++)
		expect(c, i, 0);
	share_channel_close(c);
}
