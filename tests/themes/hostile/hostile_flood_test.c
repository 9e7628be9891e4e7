/* SPDX-License-Identifier: MIT */

/*
 * Clients that do too much: say everything and hear nothing, never say a word, come by thousands,
 * use up what the broker has few of. None of them may cost the broker more than bounded memory,
 * descriptors and time; all the while, somebody else is served.
 */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/harness/raw.h"

#define MEBIBYTE (1 << 20)

static share_client *witness;

static void start(void)
{
	fixture_start();
	witness = connect_as("witness");
}

static void stop(void)
{
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(hostile_flood, .init = start, .fini = stop, .timeout = 120);

/* Until the broker stops reading, or hangs up. Returns how many went out. */
static int say_until_nobody_listens(struct raw *r, const struct wire_message *m, int most)
{
	int n = 0, refused = 0;

	while (n < most && refused < 100) {
		int e = raw_send(r, m);

		if (e == 0) {
			n++;
			refused = 0;
		} else if (e == -EAGAIN) {
			/* it may only be slow: whoever answers the witness has had time to read */
			check_ok(share_ping(witness));
			refused++;
		} else {
			break;
		}
	}
	return n;
}

/* Shadow memory and quarantine of sanitizers are not the broker's appetite. */
static size_t tolerable(size_t bytes)
{
#if defined(__SANITIZE_ADDRESS__)
	return bytes * 8;
#else
	return bytes;
#endif
}

/* ------------------------------------------------------------------------------------------- */
/* Those who never read                                                                        */

static void asks_and_never_reads(struct child *self, void *data)
{
	struct wire_message set = {.type = WIRE_METADATA_SET}, get = {.type = WIRE_METADATA_GET};
	static char json[65536];
	struct raw r;

	(void)data;
	raw_open(&r, "deaf one");
	memset(json, ' ', sizeof(json));
	memcpy(json, "[]", 2);
	set.metadata_set.buffer = raw_alloc(&r, raw_pool(&r, "default"), 1);
	set.metadata_set.json = (struct wire_bytes){json, sizeof(json)};
	raw_ask(&r, &set, WIRE_DONE);
	get.metadata_get.buffer = set.metadata_set.buffer;
	get.serial = 7;
	witness = child_connect("witness of the deaf");
	/* 64 GiB of answers */
	check(say_until_nobody_listens(&r, &get, 1 << 20) < 1 << 20);
	child_point(self, "deaf");
}

Test(hostile_flood, a_client_that_never_reads_its_replies_costs_bounded_memory)
{
	size_t before = resident_bytes(broker_pid());
	struct child *child = child_start(asks_and_never_reads, NULL);

	child_wait(child, "deaf");
	check(resident_bytes(broker_pid()) < before + tolerable(16 * MEBIBYTE));
	check_ok(share_ping(witness));
	child_kill(child);
	settle(witness, s.clients == 1);
}

/* First what it was sent fills the socket, then it ends that for both sides, then it goes: at no
 * time is there room for more. */
Test(hostile_flood, a_client_that_hangs_up_on_a_full_socket_is_noticed)
{
	struct wire_message m = {.type = WIRE_PING, .serial = 7};
	struct raw r;

	raw_open(&r, "deaf one");
	check(say_until_nobody_listens(&r, &m, 1 << 20) < 1 << 20);
	check(shutdown(r.socket, SHUT_RDWR) == 0);
	for (int i = 0; i < 10; i++)
		check_ok(share_ping(witness));
	raw_hang_up(&r);
	settle(witness, s.clients == 1);
}

static void waits_often_and_never_reads(struct child *self, void *data)
{
	struct wire_message m = {.type = WIRE_LOOKUP};
	struct raw r;

	(void)data;
	raw_open(&r, "deaf one");
	m.lookup.mode = SHARE_RDONLY;
	m.lookup.timeout = -1;
	m.lookup.name = raw_text("name");
	for (m.serial = 1; m.serial <= 4000; m.serial++)
		while (raw_send(&r, &m) == -EAGAIN)
			;
	raw_ask(&r, &(struct wire_message){.type = WIRE_PING}, WIRE_DONE);
	child_point(self, "waiting");
}

Test(hostile_flood, thousands_of_look_ups_answered_at_once_cost_bounded_memory)
{
	size_t before = resident_bytes(broker_pid());
	struct child *child = child_start(waits_often_and_never_reads, NULL);
	share_pool *p = open_pool(witness);
	share_buffer *b = allocate(p, 1, NULL);

	child_wait(child, "waiting");
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_ping(witness));
	check(resident_bytes(broker_pid()) < before + tolerable(32 * MEBIBYTE));
	check_ok(share_unpublish(witness, "name"));
	check_ok(share_release(b, NULL));
	child_kill(child);
	share_pool_close(p);
	settle(witness, s.clients == 1 && s.buffers == 0);
}

static void waits_and_stops_reading(struct child *self, void *data)
{
	struct wire_message ping = {.type = WIRE_PING, .serial = 7}, m = {.type = WIRE_LOOKUP};
	struct raw r;

	(void)data;
	raw_open(&r, "deaf one");
	m.lookup.mode = SHARE_RDONLY;
	m.lookup.timeout = -1;
	m.lookup.name = raw_text("name");
	m.serial = 1;
	check_eq(raw_send(&r, &m), 0);
	witness = child_connect("witness of the deaf");
	check(say_until_nobody_listens(&r, &ping, 1 << 20) < 1 << 20);
	share_disconnect(witness);
	child_point(self, "deaf");
}

/* The segment's, which the broker keeps until there is room for the message that it goes with. */
Test(hostile_flood, a_descriptor_that_waits_to_be_sent_is_paid_for)
{
	struct child *child = child_start(waits_and_stops_reading, NULL);
	share_pool *p = open_pool(witness);
	share_buffer *b = allocate(p, 1, NULL);
	int64_t before;

	child_wait(child, "deaf");
	settle(witness, s.clients == 2);
	before = used_of(witness, "descriptors");
	check_ok(share_publish(b, "name", NULL));
	check_eq(used_of(witness, "descriptors"), before + 1);
	child_kill(child);
	settle(witness, s.clients == 1);
	check(used_of(witness, "descriptors") < before);
	check_ok(share_unpublish(witness, "name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	settle(witness, s.buffers == 0);
}

static void watches_and_never_reads(struct child *self, void *data)
{
	struct wire_message m = {.type = WIRE_WATCH};
	struct raw r;

	(void)data;
	raw_open(&r, "deaf one");
	for (int i = 0; i < 1000; i++)
		raw_ask(&r, &m, WIRE_WATCHING);
	child_point(self, "watching");
}

Test(hostile_flood, watches_that_nobody_reads_cost_bounded_memory)
{
	size_t before = resident_bytes(broker_pid());
	struct child *child = child_start(watches_and_never_reads, NULL);
	share_pool *p = open_pool(witness);
	share_buffer *b = allocate(p, 1, NULL);

	child_wait(child, "watching");
	for (int i = 0; i < 2000; i++)
		check_ok(share_publish(b, "name", NULL));
	check(resident_bytes(broker_pid()) < before + tolerable(16 * MEBIBYTE));
	check_ok(share_unpublish(witness, "name"));
	check_ok(share_release(b, NULL));
	child_kill(child);
	share_pool_close(p);
	settle(witness, s.clients == 1);
}

Test(hostile_flood, messages_without_an_answer_hold_nobody_up)
{
	struct wire_message m = {.type = WIRE_CANCEL};
	struct raw r;

	raw_open(&r, "busy one");
	m.cancel.lookup = 5;
	for (int i = 0; i < 20; i++) {
		say_until_nobody_listens(&r, &m, 5000);
		check_ok(share_ping(witness));
	}
	raw_close(&r);
}

/* ------------------------------------------------------------------------------------------- */
/* A socket that others go on using when its process is dead                                   */

static void dies_and_leaves_its_socket(struct child *self, void *data)
{
	struct gate *gate = data;
	struct raw r;

	raw_open(&r, "dead one");
	if (fork() == 0) {
		struct wire_message m = {.type = WIRE_CANCEL};
		int e;

		close(self->channel);
		gate->started++;
		do
			e = raw_send(&r, &m);
		while (!gate->open && (e == 0 || e == -EAGAIN));
		gate->done++;
		_exit(0);
	}
	child_point(self, "shared");
}

Test(hostile_flood, an_accomplice_on_the_socket_of_a_dead_process_holds_nobody_up)
{
	struct gate *gate = gate_new();
	struct child *child = child_start(dies_and_leaves_its_socket, gate);

	child_wait(child, "shared");
	until(gate->started);
	child_kill(child);
	/* the broker hangs up on the accomplice though that never pauses */
	until(gate->done);
	settle(witness, s.clients == 1);
	gate_free(gate);
}

/* ------------------------------------------------------------------------------------------- */
/* Those who come                                                                              */

Test(hostile_flood, a_client_that_never_says_hello_is_dropped)
{
	struct wire_message hello = {.type = WIRE_HELLO};
	struct raw silent, half;

	raw_connect(&silent);
	raw_connect(&half);
	hello.hello.version = hello.hello.oldest = WIRE_VERSION;
	raw_ask(&half, &hello, WIRE_WELCOME);
	settle(witness, s.clients == 3);
	check_error(raw_farewell(&silent), SHARE_EPROTO);
	check_error(raw_farewell(&half), SHARE_EPROTO);
	raw_close(&silent);
	raw_close(&half);
	settle(witness, s.clients == 1 && s.dropped == 2);
}

static void start_small(void)
{
	fixture_start_with("{\"limits\": {\"connections\": 2000}}");
	witness = connect_as("witness");
}

TestSuite(hostile_crowd, .init = start_small, .fini = stop, .timeout = 120);

#define CROWD 1999

static void comes_by_thousands(struct child *self, void *data)
{
	static int sockets[CROWD];
	static struct raw r;

	(void)data;
	for (int i = 0; i < CROWD; i++) {
		raw_open(&r, "one of many");
		sockets[i] = r.socket;
		timeline_unmap(r.page);
	}
	/* this user is an administrator, who may be here as an operator: until it says that it is
	 * not */
	raw_connect(&r);
	raw_send(&r, &(struct wire_message){
			 .type = WIRE_HELLO,
			 .serial = 1,
			 .hello = {.version = WIRE_VERSION, .oldest = WIRE_VERSION_OLDEST}});
	check_error(raw_farewell(&r), SHARE_EQUOTA);
	raw_close(&r);
	child_point(self, "all here");
	for (int i = 0; i < 10; i++)
		close(sockets[i]);
	child_point(self, "some gone");
	for (int i = 0; i < 10; i++) {
		raw_open(&r, "a late one");
		timeline_unmap(r.page);
	}
	child_point(self, "all here again");
}

/* Four of them, each of which sees the crowd; and then there is room for four again. */
static void expect_operators(void)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_client *c[4], *none = NULL;

	options.flags = SHARE_CONNECT_OPERATOR;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 4; i++)
			check_ok(share_connect_with(broker_socket(), &options, &c[i]));
		check_error(share_connect_with(broker_socket(), &options, &none), SHARE_EQUOTA);
		for (int i = 0; i < 4; i++)
			settle(c[i], s.clients == 2004);
		for (int i = 0; i < 4; i++)
			share_disconnect(c[i]);
		settle(witness, s.clients == 2000);
	}
}

Test(hostile_crowd, connections_beyond_the_limit_are_refused_and_told_why)
{
	struct child *child = child_start(comes_by_thousands, NULL);
	share_client *none = NULL;

	child_wait(child, "all here");
	settle(witness, s.clients == 2000);
	check_error(share_connect(broker_socket(), &none), SHARE_EQUOTA);
	check_detail("2000 connections");
	check(none == NULL);
	settle(witness, s.clients == 2000);
	expect_operators();
	child_go(child);
	child_wait(child, "some gone");
	settle(witness, s.clients == 1990);
	child_go(child);
	child_wait(child, "all here again");
	settle(witness, s.clients == 2000);
	child_kill(child);
	settle(witness, s.clients == 1);
}

static void start_poor(void)
{
	broker_limit_descriptors(64);
	start();
}

TestSuite(hostile_poverty, .init = start_poor, .fini = stop, .timeout = 120);

static void comes_by_dozens(struct child *self, void *data)
{
	static struct raw r[100];
	int refused = 0;

	(void)data;
	for (int i = 0; i < 100; i++)
		raw_connect(&r[i]);
	for (int i = 0; i < 100; i++) {
		struct wire_message hello = {.type = WIRE_HELLO, .serial = 1};

		hello.hello.version = hello.hello.oldest = WIRE_VERSION;
		/* those who got in may find no descriptor left for their page */
		if (raw_send(&r[i], &hello) != 0)
			refused++;
	}
	child_point_with(self, "asked", &refused, sizeof(refused));
}

Test(hostile_poverty, a_broker_without_descriptors_serves_those_it_has_and_recovers)
{
	share_pool *p = open_pool(witness);
	share_buffer *b = allocate(p, 1, NULL);
	struct child *child = child_start(comes_by_dozens, NULL);
	share_client *c;
	int refused;

	child_wait_with(child, "asked", &refused, sizeof(refused));
	for (int i = 0; i < 100; i++)
		check_ok(share_ping(witness));
	check_ok(share_publish(b, "name", NULL));
	child_kill(child);
	settle(witness, s.clients == 1);
	c = connect_as("late one");
	check_ok(share_ping(c));
	share_disconnect(c);
	check_ok(share_unpublish(witness, "name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

/* The kernel's limit for the broker; those that it has stay. Returns what it was. */
static rlim_t limit_descriptors(rlim_t n)
{
	struct rlimit limit;
	rlim_t before;

	check(prlimit(broker_pid(), RLIMIT_NOFILE, NULL, &limit) == 0);
	before = limit.rlim_cur;
	limit.rlim_cur = n;
	check(prlimit(broker_pid(), RLIMIT_NOFILE, &limit, NULL) == 0);
	return before;
}

/* The lowest number that would be its next descriptor. */
static rlim_t next_descriptor(void)
{
	char path[64];
	rlim_t n = 0;

	do
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)broker_pid(), (int)n);
	while (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 && ++n);
	return n;
}

Test(hostile_poverty, who_finds_no_descriptor_left_is_told_and_fills_no_log)
{
	rlim_t before;
	struct raw r;

	/* whoever looked whether the broker is there has left no gap */
	until(descriptors_count(broker_pid()) == broker_descriptors());
	before = limit_descriptors(next_descriptor());
	for (int i = 0; i < 3; i++) {
		raw_connect(&r);
		check_error(raw_farewell(&r), SHARE_EQUOTA);
		raw_hang_up(&r);
	}
	check_eq(broker_said("a client was refused"), 1);
	limit_descriptors(before);
	raw_open(&r, "late one");
	raw_close(&r);
}

/* ------------------------------------------------------------------------------------------- */
/* Those who use things up                                                                     */

/* Every round leaves a segment behind that it was asked to unmap; it never does. */
static void keeps_every_segment(struct child *self, void *data)
{
	struct wire_message alloc = {.type = WIRE_ALLOC}, release = {.type = WIRE_RELEASE};
	struct raw r;

	(void)data;
	raw_open(&r, "collector");
	alloc.alloc.pool = raw_pool(&r, "default");
	alloc.alloc.size = 1;
	for (uint32_t serial = 1000; serial < 6000; serial += 2) {
		enum raw_event event;

		alloc.serial = serial;
		if (raw_send(&r, &alloc) != 0)
			break;
		do
			event = raw_receive(&r, HARNESS_LIMIT_MS);
		while (event == RAW_MESSAGE && r.m.serial != serial);
		if (event != RAW_MESSAGE || r.m.type != WIRE_GRANT)
			break;
		release.release.buffer = r.m.grant.buffer;
		release.release.count = 1;
		if (raw_send(&r, &release) != 0)
			break;
	}
	child_point(self, "collected");
}

Test(hostile_flood, segments_that_a_client_does_not_let_go_cost_bounded_descriptors)
{
	int before = descriptors_count(broker_pid());
	struct child *child = child_start(keeps_every_segment, NULL);

	child_wait(child, "collected");
	check(descriptors_count(broker_pid()) < before + 2 * 1100);
	check_ok(share_ping(witness));
	child_kill(child);
	settle(witness, s.clients == 1 && s.segments == 0);
}

/* With all their streams they come to more than one user may have on a buffer. */
#define FENCERS 20

/* As many fences as it can have, all on one buffer. */
static void puts_all_its_fences(struct child *self, void *data)
{
	struct wire_message lookup = {.type = WIRE_LOOKUP}, release = {.type = WIRE_RELEASE};
	static struct raw r[FENCERS];
	int refused = 0;

	(void)data;
	for (int i = 0; i < FENCERS; i++) {
		raw_open(&r[i], "fencer");
		lookup.lookup.mode = SHARE_RDONLY;
		lookup.lookup.name = raw_text("target");
		raw_ask(&r[i], &lookup, WIRE_GRANT);
		release.release.buffer = r[i].m.grant.buffer;
		for (unsigned slot = 1; slot < TIMELINE_SLOTS; slot++) {
			release.release.timeline = WIRE_TIMELINE(r[i].page_id, slot);
			release.release.value = 1;
			raw_request(&r[i], &release); /* done, or refused */
			if (r[i].m.type == WIRE_ERROR) {
				check_eq(r[i].m.error.error, SHARE_EQUOTA);
				refused++;
			}
		}
		check_ok(share_ping(child_connect("hurried one")));
	}
	check(refused > 0);
	child_point(self, "fenced");
}

Test(hostile_flood, fences_without_number_cost_bounded_time)
{
	share_pool *p = open_pool(witness);
	share_buffer *b = allocate(p, 1, NULL);
	struct child *child;

	check_ok(share_publish(b, "target", NULL));
	child = child_start(puts_all_its_fences, NULL);
	child_wait(child, "fenced");
	child_kill(child);
	settle(witness, s.clients == 1 && s.leases == 1);
	check_ok(share_unpublish(witness, "target"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

#define GATERS 5

/* Behind more work than a grant can name. */
static void gates(struct raw *r, uint64_t buffer)
{
	struct wire_message lookup = {.type = WIRE_LOOKUP}, release = {.type = WIRE_RELEASE};

	release.release.buffer = buffer;
	for (int i = 0; i < GATERS; i++) {
		if (i > 0) {
			lookup.lookup.mode = SHARE_RDWR;
			lookup.lookup.name = raw_text("target");
			raw_ask(&r[i], &lookup, WIRE_GRANT);
		}
		release.release.value = 1;
		release.release.count = 0;
		for (unsigned slot = 1; slot < TIMELINE_SLOTS; slot++) {
			release.release.timeline = WIRE_TIMELINE(r[i].page_id, slot);
			raw_ask(&r[i], &release, WIRE_DONE);
		}
	}
	raw_ask(&r[0],
		&(struct wire_message){.type = WIRE_UNPUBLISH,
				       .unpublish = {.name = raw_text("target")}},
		WIRE_DONE);
	release.release.timeline = release.release.value = 0;
	release.release.count = 1;
	for (int i = 0; i < GATERS; i++)
		raw_ask(&r[i], &release, WIRE_DONE);
}

Test(hostile_flood, memory_with_more_work_on_it_than_a_grant_can_name_is_left_out)
{
	struct wire_message publish = {.type = WIRE_PUBLISH};
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_buffer *b[2], *none = NULL;
	static struct raw r[GATERS];
	uint64_t buffer;
	share_pool *p;

	options.kind = "host";
	options.limit = 2 * MEBIBYTE;
	options.segment_size = MEBIBYTE;
	check_ok(share_pool_create(witness, "gated", &options, &p));
	for (int i = 0; i < GATERS; i++)
		raw_open(&r[i], "gater");
	buffer = raw_alloc(&r[0], raw_pool(&r[0], "gated"), MEBIBYTE);
	publish.publish.buffer = buffer;
	publish.publish.mode = SHARE_RDWR;
	publish.publish.name = raw_text("target");
	raw_ask(&r[0], &publish, WIRE_PUBLISHED);
	gates(r, buffer);
	settle(witness, s.buffers == 0 && s.segments == 1);

	/* there is other memory */
	b[0] = allocate(p, 100, NULL);
	check_ok(share_release(b[0], NULL));
	b[0] = allocate(p, MEBIBYTE, NULL);
	check_error(share_alloc(p, MEBIBYTE, NULL, &none), SHARE_EAGAIN);
	/* and it is memory again when there is less to wait for */
	for (unsigned slot = 1; slot < TIMELINE_SLOTS; slot++)
		timeline_signal(r[0].page, slot, 1);
	for (int i = 1; i < GATERS; i++) {
		raw_ask(&r[i], &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
		raw_close(&r[i]);
	}
	b[1] = allocate(p, MEBIBYTE, NULL);
	for (int i = 0; i < 2; i++)
		check_ok(share_release(b[i], NULL));
	raw_ask(&r[0], &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r[0]);
	share_pool_close(p);
}

#define GATED 1000

Test(hostile_flood, a_destroyed_pool_ends_a_little_at_a_time)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	struct wire_message m = {.type = WIRE_RELEASE};
	struct raw r;
	share_pool *p;
	uint64_t id;

	options.kind = "host";
	options.reuse = SHARE_REUSE_CLEAN;
	check_ok(share_pool_create(witness, "ends", &options, &p));
	raw_open(&r, "releaser");
	id = raw_pool(&r, "ends");
	m.release.timeline = WIRE_TIMELINE(r.page_id, 1);
	m.release.value = m.release.count = 1;
	for (int i = 0; i < GATED; i++) {
		m.release.buffer = raw_alloc(&r, id, 512);
		raw_ask(&r, &m, WIRE_DONE);
	}
	check_ok(share_pool_destroy(witness, "ends"));
	share_pool_close(p);
	settle(witness, s.buffers == 0 && s.pools == 2);
	timeline_signal(r.page, 1, 1);
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
	settle(witness, s.pools == 1);
}

static void sends_descriptors(struct child *self, void *data)
{
	int fds[WIRE_FDS_MAX];
	struct raw r;

	(void)data;
	for (size_t i = 0; i < WIRE_FDS_MAX; i++)
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (int i = 0; i < 300; i++) {
		raw_open(&r, "generous one");
		for (int k = 0; k < 10; k++)
			if (raw_send_bytes(&r, "\6\0\0\0\1\0\0", 8, fds, WIRE_FDS_MAX) != 0)
				break;
		/* not even waiting for the answer */
		raw_close(&r);
	}
	child_point(self, "sent");
}

Test(hostile_flood, a_flood_of_descriptors_leaves_none)
{
	struct child *child = child_start(sends_descriptors, NULL);

	child_wait(child, "sent");
	child_kill(child);
	settle(witness, s.clients == 1);
	until(descriptors_count(broker_pid()) == broker_descriptors());
}
