/* SPDX-License-Identifier: MIT */

/*
 * Processes that are killed. Wherever it happens, what they held is released, exactly that, and
 * those who live go on: they keep what they hold, and its content.
 */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"
#include "tests/harness/status.h"

TestSuite(death, .init = fixture_start, .fini = fixture_stop, .timeout = 120);

static const char pattern[] = "what the survivor reads";

/* ------------------------------------------------------------------------------------------- */
/* Before there is anything to hold                                                            */

static void connects_only(struct child *self, void *data)
{
	struct raw r;

	(void)data;
	raw_connect(&r);
	child_point(self, "connected");
}

static void greets_only(struct child *self, void *data)
{
	struct wire_message hello = {.type = WIRE_HELLO};
	struct raw r;

	(void)data;
	raw_connect(&r);
	hello.hello.version = hello.hello.oldest = WIRE_VERSION;
	raw_ask(&r, &hello, WIRE_WELCOME);
	child_point(self, "welcomed");
}

Test(death, a_client_killed_before_it_said_anything_is_forgotten)
{
	share_client *c = connect_as("survivor");
	struct child *child = child_start(connects_only, NULL);

	child_wait(child, "connected");
	settle(c, s.clients == 2);
	child_kill(child);
	settle(c, s.clients == 1);
	share_disconnect(c);
}

Test(death, a_client_killed_before_ready_is_forgotten)
{
	share_client *c = connect_as("survivor");
	struct child *child = child_start(greets_only, NULL);

	child_wait(child, "welcomed");
	settle(c, s.clients == 2);
	child_kill(child);
	settle(c, s.clients == 1);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Holding                                                                                     */

static void holds_ten(struct child *self, void *data)
{
	share_pool *p = open_pool(child_connect("victim"));

	(void)data;
	for (int i = 0; i < 10; i++)
		allocate(p, 100000, NULL);
	child_point(self, "holding");
}

Test(death, buffers_of_a_killed_client_are_freed)
{
	share_client *c = connect_as("survivor");
	struct child *child = child_start(holds_ten, NULL);

	child_wait(child, "holding");
	settle(c, s.clients == 2 && s.buffers == 10 && s.leases == 10);
	child_kill(child);
	settle(c, s.clients == 1 && s.buffers == 0 && s.leases == 0 && s.segments == 0);
	share_disconnect(c);
}

static void holds_by_three_connections(struct child *self, void *data)
{
	(void)data;
	for (int i = 0; i < 3; i++)
		allocate(open_pool(child_connect("victim")), 1000, NULL);
	child_point(self, "holding");
}

Test(death, all_connections_of_a_killed_process_end)
{
	share_client *c = connect_as("survivor");
	struct child *child = child_start(holds_by_three_connections, NULL);

	child_wait(child, "holding");
	settle(c, s.clients == 4 && s.buffers == 3);
	child_kill(child);
	settle(c, s.clients == 1 && s.buffers == 0);
	share_disconnect(c);
}

#define MANY 20000 /* leases: more than go in many turns of the broker */

static void holds_many(struct child *self, void *data)
{
	struct raw r;
	uint64_t pool;

	(void)data;
	raw_open(&r, "victim");
	pool = raw_pool(&r, "default");
	for (int i = 0; i < MANY; i++)
		raw_alloc(&r, pool, 512);
	child_point_with(self, "holding", &r.page_id, sizeof(r.page_id));
}

static int64_t parked(share_client *c)
{
	json_t *rows = report(c, "clients");
	int64_t n = 0;
	json_t *row;
	size_t i;

	json_array_foreach (rows, i, row)
		n += number_of(row, "parked");
	json_decref(rows);
	return n;
}

/* Both who said that it waits and whom it waits for may be on their way out. */
Test(death, who_is_being_taken_apart_is_still_reported)
{
	share_client *c = connect_as("survivor");
	struct child *child = child_start(holds_many, NULL);
	struct raw waiting;
	uint64_t page;

	child_wait_with(child, "holding", &page, sizeof(page));
	raw_open(&waiting, "waiting");
	for (int i = 0; i < 2; i++) {
		atomic_store(&waiting.page->slots[i].parked_until, 1);
		atomic_store(&waiting.page->slots[i].parked_for,
			     WIRE_TIMELINE(i == 0 ? page : page + 1000, 5));
	}
	check_eq(parked(c), 1);
	child_kill(child);
	until(parked(c) == 0);
	for (struct status s = {.leases = 1}; s.leases > 0; status_read(c, &s))
		check_eq(parked(c), 0);
	raw_close(&waiting);
	share_disconnect(c);
}

static void publishes(struct child *self, void *data)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_buffer *b = allocate(open_pool(child_connect("victim")), 4096, NULL);

	options.flags = *(uint32_t *)data;
	strcpy(share_ptr(b), pattern);
	check_ok(share_publish_with(b, "name", &options, NULL, NULL));
	child_point(self, "published");
}

Test(death, a_survivor_keeps_the_buffer_of_a_killed_publisher)
{
	share_client *c = connect_as("survivor");
	struct child *child = child_start(publishes, &(uint32_t){0});
	share_buffer *b, *none = NULL;

	child_wait(child, "published");
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b));
	child_kill(child);
	settle(c, s.clients == 1 && s.buffers == 1 && s.leases == 1 && s.names == 0);
	check(strcmp(share_ptr(b), pattern) == 0);
	check_ok(share_buffer_status(b));
	check_error(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &none), SHARE_ENOENT);
	check_ok(share_release(b, NULL));
	settle(c, s.buffers == 0 && s.segments == 0);
	share_disconnect(c);
}

Test(death, a_persistent_name_outlives_its_killed_publisher)
{
	share_client *c = connect_as("survivor");
	struct child *child = child_start(publishes, &(uint32_t){SHARE_PUBLISH_PERSISTENT});
	share_buffer *b;

	child_wait(child, "published");
	child_kill(child);
	settle(c, s.clients == 1 && s.buffers == 1 && s.leases == 0 && s.names == 1);
	check_ok(share_lookup(c, "name", SHARE_RDWR, 0, NULL, &b));
	check(strcmp(share_ptr(b), pattern) == 0);
	check_ok(share_unpublish(c, "name"));
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

static void holds_the_name_twice(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_buffer *b;

	(void)data;
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b));
	check_ok(share_lookup(c, "name", SHARE_RDWR, 0, NULL, &b));
	share_retain(b);
	child_point(self, "holding");
}

Test(death, only_the_leases_of_the_killed_one_go)
{
	share_client *c = connect_as("survivor");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 4096, NULL);
	struct child *first, *second;

	strcpy(share_ptr(b), pattern);
	check_ok(share_publish(b, "name", NULL));
	first = child_start(holds_the_name_twice, NULL);
	second = child_start(holds_the_name_twice, NULL);
	child_wait(first, "holding");
	child_wait(second, "holding");
	settle(c, s.clients == 3 && s.buffers == 1 && s.leases == 3);
	child_kill(first);
	settle(c, s.clients == 2 && s.buffers == 1 && s.leases == 2 && s.names == 1);
	check(strcmp(share_ptr(b), pattern) == 0);
	child_kill(second);
	settle(c, s.clients == 1 && s.buffers == 1 && s.leases == 1 && s.names == 1);
	check_ok(share_unpublish(c, "name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Waiting, handing over                                                                       */

/* A PING that is answered says that the look-up before it waits in the broker. */
static void waits_for_a_name(struct child *self, void *data)
{
	struct wire_message lookup = {.type = WIRE_LOOKUP}, ping = {.type = WIRE_PING};
	struct raw r;

	(void)data;
	raw_open(&r, "victim");
	lookup.serial = 1000;
	lookup.lookup.mode = SHARE_RDONLY;
	lookup.lookup.timeout = -1;
	lookup.lookup.name = raw_text("name");
	check_eq(raw_send(&r, &lookup), 0);
	raw_ask(&r, &ping, WIRE_DONE);
	child_point(self, "waiting");
}

static void callback(share_buffer *b, int error, void *data)
{
	(void)b, (void)error, (void)data;
}

static void looks_up_asynchronously(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_operation *o;

	(void)data;
	check_ok(share_lookup_async(c, "name", SHARE_RDWR, -1, NULL, callback, NULL, &o));
	check_ok(share_lookup_async(c, "name", SHARE_RDWR, 600000, NULL, callback, NULL, NULL));
	check_ok(share_ping(c));
	child_point(self, "waiting");
}

static void expect_that_a_killed_waiter_gets_nothing(child_function waiter)
{
	share_client *c = connect_as("survivor");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 4096, NULL);
	struct child *child = child_start(waiter, NULL);

	child_wait(child, "waiting");
	child_kill(child);
	settle(c, s.clients == 1);
	check_ok(share_publish(b, "name", NULL));
	settle(c, s.leases == 1 && s.names == 1);
	check_ok(share_unpublish(c, "name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(death, a_client_killed_while_it_waits_for_a_name_does_not_get_it)
{
	expect_that_a_killed_waiter_gets_nothing(waits_for_a_name);
}

Test(death, a_client_killed_with_look_ups_pending_does_not_get_them)
{
	expect_that_a_killed_waiter_gets_nothing(looks_up_asynchronously);
}

static void exports(struct child *self, void *data)
{
	share_buffer *b = allocate(open_pool(child_connect("victim")), 4096, NULL);
	share_token token;

	(void)data;
	check_ok(share_export(b, NULL, &token));
	check_ok(share_release(b, NULL));
	child_point_with(self, "exported", &token, sizeof(token));
}

Test(death, tokens_of_a_killed_client_end)
{
	share_client *c = connect_as("survivor");
	struct child *child = child_start(exports, NULL);
	share_buffer *none = NULL;
	share_token token;

	child_wait_with(child, "exported", &token, sizeof(token));
	settle(c, s.tokens == 1 && s.buffers == 1 && s.leases == 0);
	child_kill(child);
	settle(c, s.tokens == 0 && s.buffers == 0 && s.segments == 0);
	check_error(share_import(c, &token, 0, NULL, &none), SHARE_ENOENT);
	share_disconnect(c);
}

static void creates_a_pool(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_pool *p;

	(void)data;
	check_ok(share_pool_create(c, "mine", NULL, &p));
	allocate(p, 4096, NULL);
	child_point(self, "created");
}

Test(death, a_pool_that_is_not_persistent_ends_with_its_killed_user)
{
	share_client *c = connect_as("survivor");
	struct child *child = child_start(creates_a_pool, NULL);

	child_wait(child, "created");
	settle(c, s.pools == 2);
	child_kill(child);
	settle(c, s.pools == 1 && s.segments == 0);
	share_disconnect(c);
}

/* "Publish, then exit" has published, even if nobody waited for the answer. */
static void publishes_and_dies(struct child *self, void *data)
{
	struct wire_message m = {.type = WIRE_PUBLISH, .serial = 1000};
	struct raw r;

	(void)data;
	raw_open(&r, "victim");
	m.publish.buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	m.publish.flags = SHARE_PUBLISH_PERSISTENT;
	m.publish.name = raw_text("last words");
	child_point(self, "ready");
	check_eq(raw_send(&r, &m), 0);
}

Test(death, what_a_client_said_before_it_died_counts)
{
	share_client *c = connect_as("survivor");
	struct child *child = child_start(publishes_and_dies, NULL);

	child_wait(child, "ready");
	/* so that the message and the death arrive together */
	broker_freeze();
	child_go(child);
	child_finish(child);
	broker_thaw();
	settle(c, s.clients == 1 && s.names == 1 && s.buffers == 1 && s.leases == 0);
	check_ok(share_unpublish(c, "last words"));
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Anywhere                                                                                    */

struct progress {
	volatile unsigned rounds;
	unsigned seed;
};

static void works_until_killed(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	struct progress *progress = data;
	unsigned seed = progress->seed;
	share_pool *p = open_pool(c);
	share_host_stream *s;

	(void)self;
	check_ok(share_host_stream_create(c, &s));
	for (;;) {
		void *stream = rand_r(&seed) % 2 ? s : NULL;
		share_buffer *b = allocate(p, 1 + (unsigned)rand_r(&seed) % 200000, stream), *v;
		char name[16];

		snprintf(name, sizeof(name), "n%d", rand_r(&seed) % 3);
		check_ok(share_publish(b, name, stream));
		check_ok(share_lookup(c, name, SHARE_RDONLY, 0, stream, &v));
		check_ok(share_release(b, stream));
		check_ok(share_release(v, stream));
		progress->rounds++;
	}
}

Test(death, clients_killed_anywhere_leave_nothing_behind)
{
	struct progress *progress =
	    mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	share_client *c = connect_as("survivor");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, sizeof(pattern), NULL);
	unsigned seed = 1;

	strcpy(share_ptr(b), pattern);
	for (int i = 0; i < 40; i++) {
		struct child *child;
		unsigned rounds = (unsigned)rand_r(&seed) % 30;

		*progress = (struct progress){.seed = (unsigned)i + 1};
		child = child_start(works_until_killed, progress);
		until(progress->rounds >= rounds);
		child_kill(child);
		settle(c, s.clients == 1 && s.buffers == 1 && s.leases == 1 && s.names == 0 &&
			      s.segments == 1);
		check(strcmp(share_ptr(b), pattern) == 0);
	}
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
	munmap(progress, 4096);
}
