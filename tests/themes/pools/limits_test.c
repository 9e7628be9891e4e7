/* SPDX-License-Identifier: MIT */

/*
 * What one user may hold at a time, over all connections: reached, refused, and given back. What
 * replaces something of one's own needs no room beside it.
 */

#include <stdlib.h>
#include <string.h>

#include <share/channel.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

static const char config[] =
    "{\"limits\": {\"leases\": 5, \"bytes\": \"64KiB\", \"names\": 3, \"tokens\": 3, "
    "\"watches\": 3, \"waits\": 3, \"pools\": 3, \"metadata\": 100, "
    "\"fences\": 6},"
    "\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"16MiB\", "
    "\"segment_size\": \"1MiB\", "
    "\"release_threshold\": 0}]}";

static share_client *first, *second;
static share_pool *pool;

static void start(void)
{
	fixture_start_with(config);
	first = connect_as("first");
	second = connect_as("second");
	pool = open_pool(first);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(first);
	share_disconnect(second);
	fixture_stop();
}

TestSuite(limits, .init = start, .fini = stop, .timeout = 60);

Test(limits, leases_over_all_connections)
{
	share_buffer *b[5], *none = NULL;

	for (int i = 0; i < 4; i++)
		b[i] = allocate(pool, 1, NULL);
	check_ok(share_publish(b[0], "name", NULL));
	check_ok(share_lookup(second, "name", SHARE_RDONLY, 0, NULL, &b[4]));
	check_error(share_alloc(pool, 1, NULL, &none), SHARE_EQUOTA);
	check_detail("5 leases");
	/* a further handle of what a process holds is no further lease */
	check_ok(share_lookup(first, "name", SHARE_RDWR, 0, NULL, &none));
	check_ok(share_release(none, NULL));
	check_ok(share_release(b[1], NULL));
	b[1] = allocate(pool, 1, NULL);
	for (int i = 0; i < 5; i++)
		check_ok(share_release(b[i], NULL));
	check_ok(share_unpublish(first, "name"));
	settle(first, s.buffers == 0);
}

Test(limits, a_batch_is_what_there_are_leases_for)
{
	struct wire_message alloc = {.type = WIRE_ALLOC};
	share_buffer *b = allocate(pool, 1, NULL);
	struct raw r;

	raw_open(&r, "raw");
	alloc.alloc.pool = raw_pool(&r, "default");
	alloc.alloc.size = 1;
	alloc.alloc.count = 64;
	raw_ask(&r, &alloc, WIRE_GRANT);
	fd_list_close(&r.fds);
	check_eq(r.m.grant.more.size, 3 * sizeof(struct wire_more));
	raw_ask_error(&r, &alloc, SHARE_EQUOTA);
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
	check_ok(share_release(b, NULL));
	settle(first, s.buffers == 0);
}

Test(limits, bytes_of_memory)
{
	share_buffer *a = allocate(pool, 40000, NULL), *b = NULL;

	check_error(share_alloc(pool, 40000, NULL, &b), SHARE_EQUOTA);
	check_detail("64KiB of memory");
	check(b == NULL);
	/* whoever allocated it pays for it, as long as anybody holds it */
	check_ok(share_publish(a, "name", NULL));
	check_ok(share_release(a, NULL));
	check_error(share_alloc(pool, 40000, NULL, &b), SHARE_EQUOTA);
	check_ok(share_unpublish(first, "name"));
	b = allocate(pool, 65536, NULL);
	check_ok(share_release(b, NULL));
}

Test(limits, names)
{
	static const char *const names[] = {"a", "b", "c"};
	share_buffer *b = allocate(pool, 1, NULL);

	for (int i = 0; i < 3; i++)
		check_ok(share_publish(b, names[i], NULL));
	check_error(share_publish(b, "d", NULL), SHARE_EQUOTA);
	check_detail("3 names");
	for (int i = 0; i < 3; i++)
		check_ok(share_unpublish(first, names[i]));
	check_ok(share_publish(b, "d", NULL));
	check_ok(share_unpublish(first, "d"));
	check_ok(share_release(b, NULL));
}

Test(limits, a_name_can_be_replaced_at_the_limit)
{
	share_buffer *b = allocate(pool, 1, NULL);

	check_ok(share_publish(b, "a", NULL));
	check_ok(share_publish(b, "b", NULL));
	check_ok(share_publish(b, "c", NULL));
	for (int i = 0; i < 10; i++)
		check_ok(share_publish(b, "b", NULL));
	check_error(share_publish(b, "d", NULL), SHARE_EQUOTA);
	check_ok(share_unpublish(first, "a"));
	check_ok(share_unpublish(first, "b"));
	check_ok(share_unpublish(first, "c"));
	check_ok(share_release(b, NULL));
}

Test(limits, tokens)
{
	share_buffer *b = allocate(pool, 1, NULL), *v;
	share_token tokens[4];

	for (int i = 0; i < 3; i++)
		check_ok(share_export(b, NULL, &tokens[i]));
	check_error(share_export(b, NULL, &tokens[3]), SHARE_EQUOTA);
	check_detail("3 tokens");
	check_ok(share_import(second, &tokens[0], 0, NULL, &v));
	check_ok(share_release(v, NULL));
	check_ok(share_export(b, NULL, &tokens[0]));
	for (int i = 0; i < 3; i++)
		check_ok(share_revoke(first, &tokens[i]));
	check_ok(share_release(b, NULL));
}

static void on_change(const share_name_event *event, void *data)
{
	(void)event, (void)data;
}

Test(limits, watches)
{
	share_watch *w[3], *none = NULL;

	for (int i = 0; i < 3; i++)
		check_ok(share_watch_names(i ? first : second, "", on_change, NULL, &w[i]));
	check_error(share_watch_names(first, "", on_change, NULL, &none), SHARE_EQUOTA);
	check_detail("3 watches");
	share_unwatch(w[0]);
	check_ok(share_watch_names(first, "", on_change, NULL, &w[0]));
	for (int i = 0; i < 3; i++)
		share_unwatch(w[i]);
}

static void on_lookup(share_buffer *b, int error, void *data)
{
	(void)b;
	*(int *)data = error;
}

Test(limits, waiting_look_ups)
{
	share_operation *o[4];
	int errors[4] = {1, 1, 1, 1};

	for (int i = 0; i < 4; i++) {
		check_ok(share_lookup_async(first, "x", SHARE_RDONLY, -1, NULL, on_lookup,
					    &errors[i], &o[i]));
	}
	until((share_dispatch(first), errors[3] != 1));
	check_error(errors[3], SHARE_EQUOTA);
	check_eq(errors[0], 1);
	for (int i = 0; i < 4; i++)
		share_cancel(o[i]);
	check_error(share_lookup(first, "x", SHARE_RDONLY, 1, NULL, &(share_buffer *){NULL}),
		    SHARE_ETIMEDOUT);
}

static void on_reclaim(int status, void *data)
{
	*(int *)data = status;
}

Test(limits, buffers_that_are_waited_for)
{
	share_buffer *b = allocate(pool, 1, NULL);
	share_operation *o[4];
	int errors[4] = {1, 1, 1, 1};

	check_ok(share_publish(b, "name", NULL));
	for (int i = 0; i < 4; i++)
		check_ok(share_reclaim_async(b, NULL, on_reclaim, &errors[i], &o[i]));
	until((share_dispatch(first), errors[3] != 1));
	check_error(errors[3], SHARE_EQUOTA);
	check_eq(errors[0], 1);
	check_error(share_reclaim(b, -1, NULL), SHARE_EQUOTA);
	check_error(share_reclaim(b, 0, NULL), SHARE_EBUSY);
	for (int i = 0; i < 4; i++)
		share_cancel(o[i]);
	check_error(share_reclaim(b, 1, NULL), SHARE_ETIMEDOUT);
	check_ok(share_unpublish(first, "name"));
	check_ok(share_reclaim(b, 0, NULL));
	check_ok(share_release(b, NULL));
}

Test(limits, pools)
{
	share_pool *p[3], *none = NULL;

	check_ok(share_pool_create(first, "a", NULL, &p[0]));
	check_ok(share_pool_create(first, "b", NULL, &p[1]));
	check_ok(share_pool_create(second, "c", NULL, &p[2]));
	check_error(share_pool_create(first, "d", NULL, &none), SHARE_EQUOTA);
	check_detail("3 pools");
	share_pool_close(p[0]);
	check_ok(share_pool_create(first, "d", NULL, &p[0]));
	for (int i = 0; i < 3; i++)
		share_pool_close(p[i]);
}

Test(limits, metadata_that_goes_with_names_and_tokens_too)
{
	share_publish_options publish = SHARE_PUBLISH_OPTIONS_INIT;
	share_export_options export = SHARE_EXPORT_OPTIONS_INIT;
	share_tensor t = SHARE_TENSOR_INIT;
	share_buffer *b = allocate(pool, 4096, NULL);
	share_token token;

	check_ok(share_tensor_init(&t, SHARE_INT8, 6, (int64_t[]){1, 2, 3, 4, 5, 6}));
	publish.tensor = export.tensor = &t; /* 56 of 100 bytes */
	for (int i = 0; i < 5; i++)          /* one for another is no more */
		check_ok(share_publish_with(b, "name", &publish, NULL, NULL));
	check_error(share_publish_with(b, "second", &publish, NULL, NULL), SHARE_EQUOTA);
	check_detail("100B of metadata");
	check_error(share_export_with(b, &export, NULL, &token), SHARE_EQUOTA);
	check_detail("100B of metadata");
	/* what fails changes nothing: the name has its tensor still, and goes on counting */
	check_ok(
	    share_tensor_init(&t, SHARE_INT8, 12, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
	check_error(share_publish_with(b, "name", &publish, NULL, NULL), SHARE_EQUOTA);
	check_ok(share_tensor_init(&t, SHARE_INT8, 6, (int64_t[]){1, 2, 3, 4, 5, 6}));
	check_error(share_export_with(b, &export, NULL, &token), SHARE_EQUOTA);
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_export_with(b, &export, NULL, &token));
	check_error(share_publish_with(b, "name", &publish, NULL, NULL), SHARE_EQUOTA);
	check_ok(share_revoke(first, &token));
	check_ok(share_publish_with(b, "name", &publish, NULL, NULL));
	check_ok(share_unpublish(first, "name"));
	check_ok(share_export_with(b, &export, NULL, &token));
	check_ok(share_release(b, NULL));
}

Test(limits, metadata_also_when_it_is_replaced)
{
	share_buffer *a = allocate(pool, 1, NULL), *b = allocate(pool, 1, NULL);
	char json[65];

	memset(json, ' ', 64);
	memcpy(json, "{}", 2);
	json[64] = '\0';
	check_ok(share_metadata_set(a, json));
	check_error(share_metadata_set(b, json), SHARE_EQUOTA);
	check_detail("100B of metadata");
	/* the old one makes room for the new one */
	for (int i = 0; i < 10; i++)
		check_ok(share_metadata_set(a, json));
	check_ok(share_metadata_set(a, NULL));
	check_ok(share_metadata_set(b, json));
	check_ok(share_release(a, NULL));
	check_ok(share_release(b, NULL));
}

static struct wire_message release_behind(const struct raw *r, uint64_t buffer, uint32_t count,
					  unsigned slot)
{
	struct wire_message m = {.type = WIRE_RELEASE};

	m.release.buffer = buffer;
	m.release.count = count;
	m.release.timeline = WIRE_TIMELINE(r->page_id, slot);
	m.release.value = 1;
	return m;
}

static void say_goodbye(struct raw *r)
{
	raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

Test(limits, fences_of_unfinished_work)
{
	struct wire_message m;
	uint64_t a, b;
	struct raw r;

	raw_open(&r, "raw");
	a = raw_alloc(&r, raw_pool(&r, "default"), 512);
	b = raw_alloc(&r, raw_pool(&r, "default"), 512);
	for (unsigned slot = 1; slot <= 6; slot++) {
		m = release_behind(&r, slot <= 3 ? a : b, 0, slot);
		raw_ask(&r, &m, WIRE_DONE);
	}
	/* all that has unfinished work on it is refused, and still held */
	m = release_behind(&r, b, 0, 7);
	raw_ask_error(&r, &m, SHARE_EQUOTA);
	m = release_behind(&r, b, 1, 7);
	raw_ask_error(&r, &m, SHARE_EQUOTA);
	settle(first, s.buffers == 2);
	/* later work of a stream takes the place of its earlier work */
	m = release_behind(&r, b, 0, 6);
	m.release.value = 2;
	raw_ask(&r, &m, WIRE_DONE);
	/* what is done counts no more, once somebody looks; and what died does not count */
	for (unsigned slot = 1; slot <= 3; slot++)
		timeline_signal(r.page, slot, 1);
	m = release_behind(&r, a, 1, 1);
	raw_ask(&r, &m, WIRE_DONE);
	m = release_behind(&r, b, 1, 7);
	raw_ask(&r, &m, WIRE_DONE);
	say_goodbye(&r);
	settle(first, s.buffers == 0 && s.leases == 0);
	raw_open(&r, "next");
	a = raw_alloc(&r, raw_pool(&r, "default"), 65536);
	for (unsigned slot = 1; slot <= 6; slot++) {
		m = release_behind(&r, a, 0, slot);
		raw_ask(&r, &m, WIRE_DONE);
	}
	say_goodbye(&r);
}

/* Whoever leaves work on memory that nobody can be given for that pays for it until it is done. */
Test(limits, bytes_of_memory_on_which_work_runs)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	struct wire_message m, alloc = {.type = WIRE_ALLOC};
	uint64_t buffer, id;
	share_pool *clean;
	struct raw r;

	options.kind = "host";
	options.reuse = SHARE_REUSE_CLEAN;
	check_ok(share_pool_create(first, "clean", &options, &clean));
	raw_open(&r, "raw");
	id = raw_pool(&r, "clean");
	for (unsigned i = 1; i <= 10; i++) {
		buffer = raw_alloc(&r, id, 40000);
		m = release_behind(&r, buffer, 1, 1);
		m.release.value = i;
		raw_ask(&r, &m, WIRE_DONE);
		alloc.alloc.pool = id;
		alloc.alloc.size = 40000;
		raw_ask_error(&r, &alloc, SHARE_EQUOTA);
		timeline_signal(r.page, 1, i);
	}
	/* behind what its process never does */
	buffer = raw_alloc(&r, id, 40000);
	m = release_behind(&r, buffer, 1, 2);
	raw_ask(&r, &m, WIRE_DONE);
	say_goodbye(&r);
	settle(first, s.clients == 2);
	check_ok(share_release(allocate(clean, 65536, NULL), NULL));
	share_pool_close(clean);
}

/* ------------------------------------------------------------------------------------------- */
/* What is the broker's and everybody's                                                        */

#define ALICE 4711
#define BOB   4712

static void start_with_segments(void)
{
	fixture_start_with("{\"limits\": {\"segments\": 3, \"bytes\": \"64MiB\"}, \"pools\": []}");
	first = connect_as("first");
}

static void stop_segments(void)
{
	share_disconnect(first);
	fixture_stop();
}

TestSuite(limits_of_segments, .init = start_with_segments, .fini = stop_segments, .timeout = 60);

static share_pool *pool_of_small_segments(share_client *c, const char *name)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *p;

	options.kind = "host";
	options.limit = 64 << 20;
	options.segment_size = 65536;
	options.release_threshold = SHARE_KEEP_NONE;
	check_ok(share_pool_create(c, name, &options, &p));
	return p;
}

Test(limits_of_segments, over_all_pools_that_a_user_has_created)
{
	share_pool *a = pool_of_small_segments(first, "a"), *b = pool_of_small_segments(first, "b");
	share_buffer *buffers[3], *none = NULL;

	buffers[0] = allocate(a, 65536, NULL);
	buffers[1] = allocate(b, 65536, NULL);
	buffers[2] = allocate(b, 65536, NULL);
	check_eq(used_of(first, "segments"), 3);
	check_error(share_alloc(b, 65536, NULL, &none), SHARE_EQUOTA);
	check_detail("3 segments");
	check_detail("'b' needs another segment");
	check_ok(share_release(buffers[0], NULL));
	share_pool_close(a);
	settle(first, s.segments == 2);
	buffers[0] = allocate(b, 65536, NULL);
	for (int i = 0; i < 3; i++)
		check_ok(share_release(buffers[i], NULL));
	share_pool_close(b);
	settle(first, s.segments == 0);
	check_eq(used_of(first, "segments"), 0);
}

/* What was made before it is not given back for it, again and again. */
Test(limits_of_segments, a_pool_that_makes_memory_ahead_ends_with_it_at_the_limit)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *p;

	options.kind = "host";
	options.limit = options.prefault = 64 << 20;
	options.segment_size = 65536;
	check_ok(share_pool_create(first, "ahead", &options, &p));
	check_eq(used_of(first, "segments"), 3);
	until(broker_said("not all of its \"prefault\" is made: uid ") == 1);
	share_pool_close(p);
	settle(first, s.segments == 0);
}

static int make_ahead(const char *name, uint64_t bytes, share_pool **out)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	options.kind = "host";
	options.limit = options.segment_size = 64 << 20;
	options.prefault = bytes;
	return share_pool_create(first, name, &options, out);
}

/* What is made ahead is nobody's buffer, and memory like any other. */
Test(limits_of_segments, no_more_is_made_ahead_than_a_user_may_allocate)
{
	share_pool *a, *b, *none;

	check_error(make_ahead("none", (64 << 20) + 1, &none), SHARE_EINVAL);
	check_ok(make_ahead("a", 60 << 20, &a));
	check_error(make_ahead("none", (4 << 20) + 1, &none), SHARE_EQUOTA);
	check_detail(
	    "has reached its limit of 64MiB of memory, which its pools may not have "
	    "more than made ahead (\"prefault\")");
	check_ok(make_ahead("b", 4 << 20, &b));
	share_pool_close(a);
	settle(first, s.pools == 1);
	check_ok(make_ahead("a", 60 << 20, &a));
	share_pool_close(a);
	share_pool_close(b);
	settle(first, s.segments == 0);
}

static const char for_all[] = "{\"create_pools\": [\"*\"], \"pools\": []}";

static void start_with_few(void)
{
	skip_unless_root();
	broker_limit_descriptors(256);
	fixture_start_with(for_all);
	first = connect_as("witness");
}

TestSuite(limits_of_descriptors, .init = start_with_few, .fini = stop_segments, .timeout = 60);

/* As many segments as it gets, in pools as large as they may be. */
static void takes_all_segments(struct child *self, void *data)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	const uid_t *uid = data;
	share_buffer *b;
	share_client *c;
	share_pool *p;
	int r = 0, n = 0;

	child_become(*uid, 0);
	c = child_connect("greedy");
	options.kind = "host";
	options.limit = UINT64_C(1) << 32;
	options.segment_size = 65536;
	check_ok(share_pool_create(c, *uid == ALICE ? "alice" : "bob", &options, &p));
	while (r == 0)
		r = share_alloc(p, 65536, NULL, &b), n += r == 0;
	check_error(r, SHARE_EQUOTA);
	check_detail("descriptors");
	check_detail("RLIMIT_NOFILE");
	child_point_with(self, "took all", &n, sizeof(n));
}

Test(limits_of_descriptors, who_takes_all_segments_leaves_others_as_many)
{
	struct child *alice, *bob;
	share_buffer *b, *more[4];
	share_pool *p;
	int alices, bobs;

	alice = child_start(takes_all_segments, &(uid_t){ALICE});
	child_wait_with(alice, "took all", &alices, sizeof(alices));
	check(alices > 30);
	p = pool_of_small_segments(first, "mine");
	b = allocate(p, 65536, NULL);
	bob = child_start(takes_all_segments, &(uid_t){BOB});
	child_wait_with(bob, "took all", &bobs, sizeof(bobs));
	check(bobs >= alices / 3);
	/* and so does the second one */
	check_ok(share_release(b, NULL));
	for (int i = 0; i < 4; i++)
		more[i] = allocate(p, 65536, NULL);
	share_disconnect(connect_as("another"));
	child_kill(alice);
	child_kill(bob);
	for (int i = 0; i < 4; i++)
		check_ok(share_release(more[i], NULL));
	share_pool_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* What clients cost                                                                           */

#define N_CLIENTS 8

static struct raw clients[N_CLIENTS];

/* What it has with these two clients; what a client before them had may still be there. */
static int descriptors_of_two(void)
{
	return broker_descriptors() + 3;
}

/* How many more descriptors the broker has than @before. */
#define expect_descriptors(before, more)                                       \
	do {                                                                   \
		struct deadline limit_ = deadline_in(HARNESS_LIMIT_MS);        \
		while (descriptors_count(broker_pid()) != (before) + (more) && \
		       deadline_pause(&limit_))                                \
			;                                                      \
		check_eq(descriptors_count(broker_pid()) - (before), more);    \
	} while (0)

static void release_behind_gpu(struct raw *r)
{
	uint64_t buffer = raw_alloc(r, raw_pool(r, "default"), 512);
	struct wire_message m = release_behind(r, buffer, 1, 1);

	timeline_set_by_gpu(r->page, 1, true);
	raw_ask(r, &m, WIRE_DONE);
	timeline_signal(r->page, 1, 1);
}

/* docs/operating.md says so, and CLIENT_DESCRIPTORS charges for it. */
Test(limits, a_connection_costs_three_descriptors_and_one_more_when_a_gpu_signals)
{
	share_buffer *keeps_the_segment = allocate(pool, 512, NULL);
	int before = descriptors_of_two() + 2;
	int64_t charged = used_of(first, "descriptors");

	for (int i = 0; i < N_CLIENTS; i++)
		raw_open(&clients[i], "raw");
	expect_descriptors(before, 3 * N_CLIENTS);
	check_eq(used_of(first, "descriptors") - charged, 4 * N_CLIENTS);
	for (int i = 0; i < N_CLIENTS; i++)
		release_behind_gpu(&clients[i]);
	expect_descriptors(before, 4 * N_CLIENTS);
	for (int i = 0; i < N_CLIENTS; i++)
		say_goodbye(&clients[i]);
	expect_descriptors(before, 0);
	check_eq(used_of(first, "descriptors"), charged);
	check_ok(share_release(keeps_the_segment, NULL));
}

Test(limits, a_membership_costs_three_descriptors_and_a_channel_one)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	int before = descriptors_of_two();
	int64_t charged = used_of(first, "descriptors");
	share_channel *producer, *consumer;

	options.depth = options.in_flight = 1; /* of the 64 KiB that there are */
	check_ok(share_channel_open(first, "a", SHARE_PRODUCER, &options, &producer));
	expect_descriptors(before, 4);
	check_ok(share_channel_open(second, "a", SHARE_CONSUMER, &options, &consumer));
	expect_descriptors(before, 7);
	check_eq(used_of(first, "descriptors") - charged, 8);
	share_channel_close(consumer);
	share_channel_close(producer);
	expect_descriptors(before, 0);
	check_eq(used_of(first, "descriptors"), charged);
}

/* As many connections as it gets, until it is told why there are no more. */
static void takes_all_connections(struct child *self, void *data)
{
	static struct raw r[200];
	const uid_t *uid = data;
	int n = 0;

	child_become(*uid, 0);
	for (enum raw_event e = RAW_NOTHING; e != RAW_END; n++) {
		raw_connect(&r[n]);
		e = RAW_MESSAGE;
		raw_send(&r[n], &(struct wire_message){
				    .type = WIRE_HELLO,
				    .serial = 1,
				    .hello = {.version = WIRE_VERSION, .oldest = WIRE_VERSION}});
		check(raw_receive(&r[n], HARNESS_LIMIT_MS) == RAW_MESSAGE);
		if (r[n].m.type == WIRE_WELCOME)
			continue;
		check_eq(r[n].m.type, WIRE_ERROR);
		check_eq(r[n].m.error.error, SHARE_EQUOTA);
		check(memmem(r[n].m.error.detail.data, r[n].m.error.detail.size, "RLIMIT_NOFILE",
			     strlen("RLIMIT_NOFILE")));
		check(memmem(r[n].m.error.detail.data, r[n].m.error.detail.size,
			     "of the broker's 224 descriptors",
			     strlen("of the broker's 224 descriptors")));
		break;
	}
	child_point_with(self, "took all", &n, sizeof(n));
}

static void connects(struct child *self, void *data)
{
	const uid_t *uid = data;
	share_client *c;

	(void)self;
	child_become(*uid, 0);
	c = child_connect("late");
	check_ok(share_ping(c));
	share_disconnect(c);
}

Test(limits_of_descriptors, who_takes_all_connections_keeps_nobody_out)
{
	struct child *alice, *bob;
	int alices, bobs;

	alice = child_start(takes_all_connections, &(uid_t){ALICE});
	child_wait_with(alice, "took all", &alices, sizeof(alices));
	check(alices >= 20);
	bob = child_start(takes_all_connections, &(uid_t){BOB});
	child_wait_with(bob, "took all", &bobs, sizeof(bobs));
	check(bobs >= alices / 3);
	child_finish(child_start(connects, &(uid_t){BOB + 1}));
	share_disconnect(connect_as("another of the operator's"));
	check_eq(broker_said("RLIMIT_NOFILE, raised"), 0);
	check_eq(broker_said("descriptors: 256 (RLIMIT_NOFILE), 224 of them"), 1);
	child_kill(alice);
	child_kill(bob);
	settle(first, s.clients == 1);
	check_eq(used_of(first, "descriptors"), 4);
}
