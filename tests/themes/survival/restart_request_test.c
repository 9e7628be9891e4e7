/* SPDX-License-Identifier: MIT */

/*
 * Wherever in a request the broker dies, the next one goes on from there: what was asked happens
 * once, and is answered once. For each kind of request here, a broker dies at each of the points of
 * fatal.h, one after the other.
 */

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <share/admin.h>
#include <share/channel.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/harness/memory.h"
#include "tests/harness/plan.h"
#include "tests/themes/survival/fatal.h"
#include "wire/wire.h"

#define SIZE 4096

static struct fatal_plan *plan;
static share_client *client;
static share_pool *pool;

static void start(void)
{
	plan = plan_new(FATAL_PLAN_VARIABLE, sizeof(*plan));
	broker_use_program(DYING_BROKER);
	fixture_start();
	client = connect_as("one");
	pool = open_pool(client);
}

static void stop(void)
{
	plan->request = 0;
	if (!check_has_failed()) {
		share_pool_close(pool);
		share_disconnect(client);
	}
	fixture_stop();
}

TestSuite(restart_request, .init = start, .fini = stop, .timeout = 60);

/* The next request of this type is fatal at this point. */
static void die_at(enum wire_type request, enum fatal_point point)
{
	plan->point = point;
	plan->request = request;
}

/* What was asked since has happened, and a broker has died of it. */
static void expect_dead(void)
{
	check_ok(share_ping(client));
	check_eq(plan->point, FATAL_NOWHERE);
	plan->request = 0;
}

#define each_point(point)                        \
	enum fatal_point point = FATAL_RECEIVED; \
	point < FATAL_POINTS;                    \
	point++

Test(restart_request, a_buffer_is_allocated_once)
{
	share_buffer *b;

	for (each_point(point)) {
		die_at(WIRE_ALLOC, point);
		b = allocate(pool, SIZE, NULL);
		expect_dead();
		memset(share_ptr(b), 0x5a, SIZE);
		settle(client, s.buffers == 1 && s.leases == 1);
		share_release(b, NULL);
		settle(client, s.buffers == 0 && s.leases == 0);
	}
}

/* Its descriptors come with the request, and are lost with a broker that has received them. */
Test(restart_request, memory_is_adopted_once)
{
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;
	int fd = memfd_create("data", MFD_CLOEXEC);
	share_buffer *b, *found;
	share_pool *adopted;
	char *at;

	check(ftruncate(fd, SIZE) == 0);
	at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	o.kind = "adopted";
	check_ok(share_pool_create(client, "adopted", &o, &adopted));
	/* the first one says that descriptors are to come, and is said again: both are fatal */
	for (int i = 0; i < 2; i++) {
		for (each_point(point)) {
			share_client *other = connect_as("other");

			die_at(WIRE_ADOPT, point);
			check_ok(share_adopt(adopted, at, SIZE, NULL, &b));
			expect_dead();
			check(share_ptr(b) == at);
			memset(at, 0x5a, SIZE);
			check_ok(share_publish(b, "adopted", NULL));
			check_ok(share_lookup(other, "adopted", SHARE_RDONLY, 0, NULL, &found));
			expect_filled(share_ptr(found), 0x5a, SIZE);
			settle(client, s.buffers == 1 && s.leases == 2 && s.segments == 1);
			share_release(found, NULL);
			check_ok(share_unpublish(client, "adopted"));
			share_release(b, NULL);
			share_disconnect(other);
			settle(client, s.buffers == 0 && s.leases == 0 && s.segments == 0);
		}
	}
	share_pool_close(adopted);
	munmap(at, SIZE);
	close(fd);
}

/* Nobody is told. */
Test(restart_request, a_buffer_is_given_back_once)
{
	share_buffer *b, *again;
	share_token token;

	for (enum fatal_point point = FATAL_RECEIVED; point <= FATAL_COMMITTED; point++) {
		b = allocate(pool, SIZE, NULL);
		check_ok(share_export(b, NULL, &token));
		/* two counts of one lease */
		check_ok(share_import(client, &token, SHARE_RDONLY, NULL, &again));
		die_at(WIRE_RELEASE, point);
		share_release(again, NULL);
		expect_dead();
		settle(client, s.buffers == 1 && s.leases == 1);
		die_at(WIRE_RELEASE, point);
		share_release(b, NULL);
		expect_dead();
		settle(client, s.buffers == 0 && s.leases == 0);
	}
}

Test(restart_request, a_name_is_published_once)
{
	share_buffer *b = allocate(pool, SIZE, NULL), *found;
	uint64_t version = 0;

	for (each_point(point)) {
		die_at(WIRE_PUBLISH, point);
		check_ok(share_publish(b, "name", NULL));
		expect_dead();
		check_ok(share_lookup(client, "name", SHARE_RDONLY, 0, NULL, &found));
		check_eq(share_name_version(found), ++version);
		share_release(found, NULL);
	}
	share_release(b, NULL);
	check_ok(share_unpublish(client, "name"));
}

Test(restart_request, a_name_is_looked_up_once)
{
	share_buffer *b = allocate(pool, SIZE, NULL), *found;
	share_client *other = connect_as("other");

	check_ok(share_publish(b, "name", NULL));
	for (each_point(point)) {
		die_at(WIRE_LOOKUP, point);
		check_ok(share_lookup(other, "name", SHARE_RDONLY, 0, NULL, &found));
		expect_dead();
		check_eq(share_id(found), share_id(b));
		settle(client, s.leases == 2);
		share_release(found, NULL);
		settle(client, s.leases == 1);
	}
	share_release(b, NULL);
	share_disconnect(other);
}

/* What a broker has sent of it before it died is not sent again. */
Test(restart_request, a_pool_is_mapped_ahead)
{
	share_client *other;
	share_buffer *b[3], *found;
	share_pool *p;

	for (int i = 0; i < 3; i++) /* each in a segment of its own */
		b[i] = allocate(pool, 1 << 20, NULL);
	buffer_fill(b[2], 0x5a);
	check_ok(share_publish(b[2], "name", NULL));
	for (each_point(point)) {
		other = connect_as("other");
		p = open_pool(other);
		die_at(WIRE_POOL_SEGMENTS, point);
		check_ok(share_pool_map_ahead(p, SHARE_RDONLY));
		expect_dead();
		check_ok(share_lookup(other, "name", SHARE_RDONLY, 0, NULL, &found));
		expect_filled(share_ptr(found), 0x5a, 1 << 20);
		share_release(found, NULL);
		share_pool_close(p);
		share_disconnect(other);
	}
	check_ok(share_unpublish(client, "name"));
	for (int i = 0; i < 3; i++)
		share_release(b[i], NULL);
}

Test(restart_request, a_token_is_made_and_used_once)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_buffer *b = allocate(pool, SIZE, NULL), *found, *again;
	share_client *other = connect_as("other");
	share_token token;

	options.uses = 2;
	for (each_point(point)) {
		die_at(WIRE_EXPORT, point);
		check_ok(share_export_with(b, &options, NULL, &token));
		expect_dead();
		settle(client, s.tokens == 1);
		die_at(WIRE_IMPORT, point);
		check_ok(share_import(other, &token, SHARE_RDONLY, NULL, &found));
		expect_dead();
		check_ok(share_import(other, &token, SHARE_RDONLY, NULL, &again));
		check_error(share_import(other, &token, SHARE_RDONLY, NULL, &again), SHARE_ENOENT);
		share_release(found, NULL);
		share_release(again, NULL);
		settle(client, s.tokens == 0 && s.leases == 1);
	}
	share_release(b, NULL);
	share_disconnect(other);
}

static void pass_on(share_channel *from, share_channel *to, int number)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_send(from, NULL, &number, sizeof(number), NULL));
	check_ok(share_recv(to, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(*(const int *)m.data, number);
	check_ok(share_ack(&m, NULL));
}

static void open_and_close(enum wire_type request, enum fatal_point point)
{
	share_client *other = connect_as("other");
	share_channel *from, *to;

	die_at(request, point);
	check_ok(share_channel_open(client, "channel", SHARE_PRODUCER, NULL, &from));
	check_ok(share_channel_open(other, "channel", SHARE_CONSUMER, NULL, &to));
	pass_on(from, to, (int)point);
	share_channel_close(to);
	share_channel_close(from);
	expect_dead();
	share_disconnect(other);
	settle(client, s.clients == 1);
}

Test(restart_request, a_channel_is_opened_once)
{
	for (each_point(point))
		open_and_close(WIRE_CHANNEL_OPEN, point);
}

Test(restart_request, a_channel_is_closed_once)
{
	for (each_point(point))
		open_and_close(WIRE_CHANNEL_CLOSE, point);
}

static share_channel *open_queue(share_client *c, int role)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.mode = SHARE_QUEUE;
	check_ok(share_channel_open(c, "queue", role, &options, &ch));
	return ch;
}

static void leave_messages(share_client *c, int n)
{
	share_channel *p = open_queue(c, SHARE_PRODUCER);

	for (int i = 0; i < n; i++)
		check_ok(share_send(p, NULL, &i, sizeof(i), NULL));
	share_channel_close(p);
}

static void receive_messages(share_channel *c, int n)
{
	share_message m = SHARE_MESSAGE_INIT;

	for (int i = 0; i < n; i++) {
		check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
		check_eq(*(const int *)(const void *)m.data, i);
		check_eq(m.deliveries, 1);
		check_eq(m.lost, 0);
		check_ok(share_ack(&m, NULL));
	}
	check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), SHARE_EPIPE);
}

/* Each SYNC of a consumer that has nothing else asks for one: the first of them, or the last. */
Test(restart_request, messages_whose_producer_is_gone_come_once)
{
	share_client *other = connect_as("other");
	share_channel *c;

	for (each_point(point)) {
		die_at(WIRE_CHANNEL_CLOSE, point);
		leave_messages(other, 3);
		expect_dead();
		c = open_queue(client, SHARE_CONSUMER);
		die_at(WIRE_CHANNEL_SYNC, point);
		receive_messages(c, 3);
		expect_dead();
		share_channel_close(c);
	}
	share_disconnect(other);
}

static void receive_and_die(struct child *self, void *data)
{
	share_channel *c = open_queue(child_connect("dies"), SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	check_ok(share_recv(c, -1, NULL, &m));
	child_point(self, "received");
}

/* What gives it back is a death, which is no request; each broker looks at what it has noted. */
Test(restart_request, a_message_that_a_dead_consumer_had_comes_again_marked)
{
	struct child *child;
	share_channel *c;
	share_message m = SHARE_MESSAGE_INIT;

	leave_messages(client, 1);
	child = child_start(receive_and_die, NULL);
	child_wait(child, "received");
	broker_kill_serving();
	child_kill(child);
	settle(client, s.clients == 1);
	broker_kill_serving();
	c = open_queue(client, SHARE_CONSUMER);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(m.deliveries, 2);
	check_ok(share_ack(&m, NULL));
	check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), SHARE_EPIPE);
	share_channel_close(c);
}

Test(restart_request, messages_whose_producer_is_gone_are_ended_once)
{
	share_client *other = connect_as("other");
	share_channel *keeps = open_queue(client, SHARE_PRODUCER), *c;
	share_message m = SHARE_MESSAGE_INIT;
	uint64_t lost = 0;
	int n = 0;

	for (each_point(point)) {
		leave_messages(other, 2);
		die_at(WIRE_DROP, point);
		check_ok(share_end_channel(client, "queue"));
		expect_dead();
		lost += 2;
	}
	c = open_queue(other, SHARE_CONSUMER);
	check_ok(share_send(keeps, NULL, &n, sizeof(n), NULL));
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(m.lost, lost);
	check_ok(share_ack(&m, NULL));
	share_channel_close(c);
	share_channel_close(keeps);
	share_disconnect(other);
}

Test(restart_request, a_pool_is_made_and_destroyed_once)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *p;

	options.kind = "host";
	for (each_point(point)) {
		die_at(WIRE_POOL_CREATE, point);
		check_ok(share_pool_create(client, "mine", &options, &p));
		expect_dead();
		share_release(allocate(p, SIZE, NULL), NULL);
		die_at(WIRE_POOL_CLOSE, point);
		share_pool_close(p);
		expect_dead();
		settle(client, s.pools == 1);
	}
}

/* It is connected again, by itself, as long as nothing has counted. */
Test(restart_request, who_comes_is_let_in_and_who_leaves_is_gone)
{
	share_client *other;

	for (each_point(point)) {
		die_at(WIRE_HELLO, point);
		other = connect_as("other");
		expect_dead();
		die_at(WIRE_READY, point);
		share_disconnect(other);
		other = connect_as("other");
		expect_dead();
		settle(client, s.clients == 2);
		die_at(WIRE_BYE, point);
		share_disconnect(other);
		expect_dead();
		settle(client, s.clients == 1);
	}
}

/* Each time by SIGKILL, which is nobody's fault. */
Test(restart_request, that_was_there_when_brokers_were_killed_is_tried_again_however_often)
{
	share_buffer *b;

	plan->again = 6;
	die_at(WIRE_ALLOC, FATAL_RECEIVED);
	b = allocate(pool, SIZE, NULL);
	expect_dead();
	settle(client, s.buffers == 1 && s.leases == 1);
	share_release(b, NULL);
}
