/* SPDX-License-Identifier: MIT */

/*
 * What of memory outlives a broker: who has leases, which free blocks work still runs on, who may
 * have a buffer by a token, and that nothing is called what something else was called before.
 */

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"

#define SIZE  4096
#define BLOCK (UINT64_C(1) << 20)

static share_client *client;
static share_pool *pool;

static void start(void)
{
	broker_use_program(DYING_BROKER);
	fixture_start();
	client = connect_as("one");
	pool = open_pool(client);
}

static void stop(void)
{
	if (!check_has_failed()) {
		share_pool_close(pool);
		share_disconnect(client);
	}
	fixture_stop();
}

TestSuite(restart_memory, .init = start, .fini = stop, .timeout = 60);

Test(restart_memory, leases_are_what_they_were)
{
	share_buffer *b = allocate(pool, SIZE, NULL), *gone = allocate(pool, SIZE, NULL);

	memset(share_ptr(b), 0x5a, SIZE);
	share_release(gone, NULL);
	settle(client, s.buffers == 1 && s.leases == 1);
	broker_kill_serving();
	settle(client, s.buffers == 1 && s.leases == 1);
	/* it is nobody else's */
	gone = allocate(pool, SIZE, NULL);
	memset(share_ptr(gone), 0, SIZE);
	expect_filled(share_ptr(b), 0x5a, SIZE);
	share_release(b, NULL);
	share_release(gone, NULL);
	settle(client, s.buffers == 0 && s.leases == 0);
}

/* The broker's own descriptors keep it, and what it was charged for is charged still. */
Test(restart_memory, adopted_memory_is_what_it_was)
{
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;
	int fd = memfd_create("data", MFD_CLOEXEC);
	share_client *other = connect_as("other");
	share_buffer *b, *whole, *found;
	int64_t descriptors, segments, bytes;
	share_pool *adopted;
	char *at;

	check(ftruncate(fd, 16 * SIZE) == 0);
	at = mmap(NULL, 16 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	memset(at, 0x5a, 16 * SIZE);
	o.kind = "adopted";
	check_ok(share_pool_create(client, "adopted", &o, &adopted));
	check_ok(share_adopt(adopted, at + 100, SIZE, NULL, &b));
	check_ok(share_adopt(adopted, at + 8 * SIZE, 8 * SIZE, NULL, &whole));
	check_ok(share_publish(b, "adopted", NULL));
	check_ok(share_publish(whole, "cut off", NULL));
	settle(client, s.segments == 2 && s.buffers == 2);
	descriptors = used_of(client, "descriptors");
	segments = used_of(client, "segments");
	bytes = used_of(client, "bytes");
	broker_kill_serving();
	settle(client, s.segments == 2 && s.buffers == 2);
	check_eq(used_of(client, "descriptors"), descriptors);
	check_eq(used_of(client, "segments"), segments);
	check_eq(used_of(client, "bytes"), bytes);
	check_ok(share_lookup(other, "adopted", SHARE_RDONLY, 0, NULL, &found));
	expect_filled(share_ptr(found), 0x5a, SIZE);
	share_release(found, NULL);
	/* what its owner has cut off is gone for its own processes, and hinders no broker */
	check(ftruncate(fd, 8 * SIZE) == 0);
	broker_kill_serving();
	settle(client, s.segments == 2 && s.buffers == 2);
	check_ok(share_unpublish(client, "adopted"));
	check_ok(share_unpublish(client, "cut off"));
	share_release(b, NULL);
	share_release(whole, NULL);
	share_disconnect(other);
	settle(client, s.segments == 0 && s.buffers == 0);
	expect_filled(at, 0x5a, 8 * SIZE);
	share_pool_close(adopted);
	munmap(at, 16 * SIZE);
	close(fd);
}

#define HOLDERS 24

struct holder {
	share_client *c;
	share_buffer *held[3];
};

static void look_up(struct holder *h, int nth)
{
	check_ok(share_lookup(h->c, "many", SHARE_RDONLY, 0, NULL, &h->held[nth]));
}

/* The newest few leases of a buffer are found in another way than the rest: each is found, whoever
 * comes and goes, and whichever broker serves. One that is not found would be there twice. */
Test(restart_memory, a_buffer_that_many_hold_is_held_by_as_many)
{
	static struct holder all[HOLDERS];
	share_buffer *b = allocate(pool, SIZE, NULL);

	check_ok(share_publish(b, "many", NULL));
	for (int i = 0; i < HOLDERS; i++) {
		all[i].c = connect_as("holder");
		look_up(&all[i], 0);
	}
	settle(client, s.leases == HOLDERS + 1);
	for (int i = 0; i < HOLDERS; i += 3) {
		check_ok(share_release(all[i].held[0], NULL));
		settle(client, s.leases == HOLDERS);
		look_up(&all[i], 0);
	}
	for (int i = 0; i < HOLDERS; i++)
		look_up(&all[i], 1);
	settle(client, s.leases == HOLDERS + 1);
	broker_kill_serving();
	for (int i = 0; i < HOLDERS; i++)
		look_up(&all[i], 2);
	settle(client, s.leases == HOLDERS + 1);
	for (int i = 0; i < HOLDERS; i++) {
		struct holder *h = &all[i * 7 % HOLDERS];

		for (int k = 0; k < 3; k++)
			check_ok(share_release(h->held[k], NULL));
		settle(client, s.leases == HOLDERS - i);
	}
	check_ok(share_unpublish(client, "many"));
	check_ok(share_release(b, NULL));
	settle(client, s.buffers == 0 && s.leases == 0);
	for (int i = 0; i < HOLDERS; i++)
		share_disconnect(all[i].c);
}

/* A pool of one block, which is handed out only when nothing runs on it any more. */
static share_pool *small_pool(void)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *p;

	options.kind = "host";
	options.reuse = SHARE_REUSE_CLEAN;
	options.limit = options.segment_size = BLOCK;
	check_ok(share_pool_create(client, "small", &options, &p));
	return p;
}

Test(restart_memory, a_free_block_is_nobodys_while_work_runs_on_it)
{
	struct gate *gate = gate_new();
	share_pool *small = small_pool();
	share_buffer *b;
	share_host_stream *s;

	check_ok(share_host_stream_create(client, &s));
	b = allocate(small, BLOCK, s);
	gate_hold(gate, s);
	check_ok(share_release(b, s));
	check_error(share_alloc(small, BLOCK, NULL, &b), SHARE_EAGAIN);
	broker_kill_serving();
	check_error(share_alloc(small, BLOCK, NULL, &b), SHARE_EAGAIN);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(s));
	until(share_alloc(small, BLOCK, NULL, &b) == 0);
	share_release(b, NULL);
	share_host_stream_destroy(s);
	share_pool_close(small);
	gate_free(gate);
}

Test(restart_memory, a_token_is_the_secret_it_was)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_buffer *b = allocate(pool, SIZE, NULL), *found;
	share_token token, wrong;

	options.uses = 2;
	check_ok(share_export_with(b, &options, NULL, &token));
	check_ok(share_import(client, &token, SHARE_RDONLY, NULL, &found));
	share_release(found, NULL);
	broker_kill_serving();
	for (size_t i = 0; i < 8 * sizeof(token.bytes); i++) {
		wrong = token;
		wrong.bytes[i / 8] ^= (unsigned char)(1 << i % 8);
		check_error(share_import(client, &wrong, SHARE_RDONLY, NULL, &found), SHARE_ENOENT);
	}
	memset(&wrong, 0, sizeof(wrong));
	check_error(share_import(client, &wrong, SHARE_RDONLY, NULL, &found), SHARE_ENOENT);
	check_ok(share_import(client, &token, SHARE_RDONLY, NULL, &found));
	share_release(found, NULL);
	check_error(share_import(client, &token, SHARE_RDONLY, NULL, &found), SHARE_ENOENT);
	share_release(b, NULL);
}

static void makes_a_token(struct child *self, void *data)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_client *c = child_connect("maker");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, SIZE, NULL);
	share_token token;

	(void)data;
	options.timeout_ms = 600000;
	options.uses = 2;
	check_ok(share_export_with(b, &options, NULL, &token));
	child_point_with(self, "made", &token, sizeof(token));
}

/* The maker dies before the broker, or both do at once. */
Test(restart_memory, a_token_outlives_its_maker_and_the_broker)
{
	for (int at_once = 0; at_once < 2; at_once++) {
		struct child *child = child_start(makes_a_token, NULL);
		share_token token;
		share_buffer *found;
		json_t *rows;

		child_wait_with(child, "made", &token, sizeof(token));
		if (at_once)
			child_shoot(child);
		else
			child_kill(child);
		if (!at_once)
			settle(client, s.clients == 1 && s.leases == 0);
		broker_kill_serving();
		if (at_once)
			child_reap(child);
		settle(client, s.clients == 1 && s.leases == 0 && s.tokens == 1);
		rows = report(client, "tokens");
		check(strcmp(json_string_value(json_object_get(json_array_get(rows, 0), "label")),
			     "maker") == 0);
		check(json_is_null(json_object_get(json_array_get(rows, 0), "client")));
		json_decref(rows);
		for (int i = 0; i < 2; i++) {
			check_ok(share_import(client, &token, SHARE_RDONLY, NULL, &found));
			share_release(found, NULL);
		}
		settle(client, s.tokens == 0 && s.buffers == 0);
	}
}

static uint64_t publish(share_buffer *b, const char *name)
{
	share_buffer *found;
	uint64_t version;

	check_ok(share_publish(b, name, NULL));
	check_ok(share_lookup(client, name, SHARE_RDONLY, 0, NULL, &found));
	version = share_name_version(found);
	share_release(found, NULL);
	return version;
}

static int64_t of_pool(const char *key)
{
	json_t *rows = report(client, "pools");
	int64_t n = number_of(json_array_get(rows, 0), key);

	json_decref(rows);
	return n;
}

Test(restart_memory, the_most_that_a_pool_had_in_use_is_what_it_was)
{
	share_buffer *b = allocate(pool, 1 << 16, NULL), *other = allocate(pool, 1 << 16, NULL);

	check_ok(share_release(b, NULL));
	check_ok(share_release(other, NULL));
	check_eq(of_pool("most_used"), 1 << 17);
	broker_kill_serving();
	check_eq(of_pool("used"), 0);
	check_eq(of_pool("most_used"), 1 << 17);
	b = allocate(pool, 1 << 16, NULL);
	check_eq(of_pool("most_used"), 1 << 17);
	check_ok(share_release(b, NULL));
}

Test(restart_memory, no_number_is_given_out_twice)
{
	share_buffer *b = allocate(pool, SIZE, NULL), *other;
	uint64_t version = publish(b, "first"), id;

	check_ok(share_unpublish(client, "first"));
	other = allocate(pool, SIZE, NULL);
	id = share_id(other);
	share_release(other, NULL);
	broker_kill_serving();
	check(publish(b, "second") > version);
	check_ok(share_unpublish(client, "second"));
	other = allocate(pool, SIZE, NULL);
	check(share_id(other) != id);
	share_release(other, NULL);
	share_release(b, NULL);
}
