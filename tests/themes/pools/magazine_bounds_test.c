/* SPDX-License-Identifier: MIT */

/*
 * What a client keeps without using it, and may keep no more: bounds, memory that runs short, pools
 * that end, a broker that is gone.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "tests/harness/fixture.h"

#define KIB 1024u
#define MIB (1024u * KIB)

static const char config[] =
    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"256MiB\", "
    "\"segment_size\": \"1MiB\", \"release_threshold\": 0},"
    "{\"name\": \"tight\", \"kind\": \"host\", \"limit\": \"1MiB\", \"segment_size\": \"1MiB\", "
    "\"release_threshold\": 0}]}";

static share_client *client;
static share_pool *pool;

static void start(void)
{
	fixture_start_with(config);
	client = connect_as("test");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(magazine_bounds, .init = start, .fini = stop, .timeout = 60);

static void release(share_buffer *b, void *stream)
{
	check_ok(share_release(b, stream));
}

Test(magazine_bounds, nothing_is_kept_where_the_program_wants_none)
{
	release(allocate(pool, 4096, NULL), NULL);
	check_ok(share_pool_set_cache(pool, 0));
	settle(client, s.buffers == 0);
	release(allocate(pool, 4096, NULL), NULL);
	settle(client, s.buffers == 0);
	check_error(share_pool_set_cache(NULL, 0), SHARE_EINVAL);
}

Test(magazine_bounds, no_more_is_kept_than_the_program_wants)
{
	share_buffer *b[8];

	check_ok(share_pool_set_cache(pool, 3 * 128 * KIB));
	for (int i = 0; i < 8; i++)
		b[i] = allocate(pool, 128 * KIB, NULL);
	for (int i = 0; i < 8; i++)
		release(b[i], NULL);
	settle(client, s.buffers == 3);
}

static share_pool_info figures(share_pool *p)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;
	json_t *pools = report(client, "pools");

	check_ok(share_pool_get_info(p, &info));
	/* what the broker says of a pool that nobody else uses */
	check_eq(info.used + info.kept, number_of(row_named(pools, "pool", info.name), "used"));
	check_eq(info.used_buffers + info.kept_buffers,
		 number_of(row_named(pools, "pool", info.name), "buffers"));
	json_decref(pools);
	return info;
}

Test(magazine_bounds, what_is_used_is_told_apart_from_what_is_kept)
{
	share_alloc_options aligned = SHARE_ALLOC_OPTIONS_INIT;
	share_buffer *b[20], *again;
	share_pool_info info = figures(pool);
	share_pool *same;

	check(info.used == 0 && info.kept == 0 && info.used_buffers == 0);
	check_eq(info.cache, 16 * MIB); /* a 16th of the pool */
	/* the sizes of blocks, and not what was asked for; some of them come ahead */
	for (int i = 0; i < 20; i++)
		b[i] = allocate(pool, i % 2 ? 1000 : 130 * KIB, NULL);
	info = figures(pool);
	check_eq(info.used, 10 * (1024 + 160 * KIB));
	check_eq(info.used_buffers, 20);
	for (int i = 0; i < 15; i++)
		release(b[i], NULL);
	share_pool_open(client, "default", &same);
	info = figures(same);
	check_eq(info.used, 3 * 1024 + 2 * 160 * KIB);
	check_eq(info.used_buffers, 5);
	check(info.kept >= 7 * 1024 + 8 * 160 * KIB);
	share_pool_close(same);
	/* nor is a second handle a second block, or what others know kept when it is released */
	check_ok(share_publish(b[15], "x", NULL));
	check_ok(share_lookup(client, "x", SHARE_RDONLY, 0, NULL, &again));
	check_eq(figures(pool).used_buffers, 5);
	release(again, NULL);
	check_ok(share_unpublish(client, "x"));
	release(b[15], NULL);
	check_eq(figures(pool).used_buffers, 4);
	check_ok(share_pool_set_cache(pool, 0));
	info = figures(pool);
	check(info.kept == 0 && info.cache == 0 && info.kept_buffers == 0);
	check_eq(info.used, 2 * (1024 + 160 * KIB));
	/* without a magazine in between */
	aligned.alignment = 64 * KIB;
	check_ok(share_alloc_with(pool, 64 * KIB, &aligned, NULL, &b[15]));
	check_eq(figures(pool).used_buffers, 5);
	for (int i = 15; i < 20; i++)
		release(b[i], NULL);
	check_eq(figures(pool).used, 0);
}

Test(magazine_bounds, what_is_kept_never_stands_in_the_way_of_its_own_process)
{
	share_pool *tight;
	share_buffer *b[16];

	check_ok(share_pool_open(client, "tight", &tight));
	check_ok(share_pool_set_cache(tight, MIB));
	for (int i = 0; i < 16; i++)
		b[i] = allocate(tight, 64 * KIB, NULL);
	for (int i = 0; i < 16; i++)
		release(b[i], NULL);
	b[0] = allocate(tight, MIB, NULL);
	release(b[0], NULL);
	/* not a size that blocks have, where there is no room for one that they do */
	b[0] = allocate(tight, MIB - 100 * KIB, NULL);
	release(b[0], NULL);
	share_pool_close(tight);
}

Test(magazine_bounds, what_one_process_keeps_goes_to_another_that_needs_it)
{
	share_client *other = connect_as("other");
	share_pool *mine, *its;
	share_buffer *b;

	check_ok(share_pool_open(client, "tight", &mine));
	check_ok(share_pool_open(other, "tight", &its));
	check_ok(share_pool_set_cache(mine, MIB));
	release(allocate(mine, 512 * KIB, NULL), NULL);
	/* it answers when it is called the next time */
	check_error(share_alloc(its, MIB, NULL, &b), SHARE_ENOMEM);
	check(share_dispatch(client) >= 0);
	b = allocate(its, MIB, NULL);
	release(b, NULL);
	share_pool_close(its);
	share_pool_close(mine);
	share_disconnect(other);
}

static void *dispatch_until(void *data)
{
	atomic_bool *over = data;

	while (!atomic_load(over))
		check(share_dispatch(client) >= 0);
	return NULL;
}

Test(magazine_bounds, who_needs_memory_waits_for_a_process_to_give_it_back)
{
	share_client *other = connect_as("other");
	share_pool *mine, *its;
	atomic_bool over = false;
	pthread_t thread;
	share_buffer *b;

	check_ok(share_pool_open(client, "tight", &mine));
	check_ok(share_pool_open(other, "tight", &its));
	check_ok(share_pool_set_cache(mine, MIB));
	release(allocate(mine, 512 * KIB, NULL), NULL);
	pthread_create(&thread, NULL, dispatch_until, &over);
	b = allocate(its, MIB, NULL);
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	release(b, NULL);
	share_pool_close(its);
	share_pool_close(mine);
	share_disconnect(other);
}

/* One that nothing tells but the next call, and that is not in the library's event loop. */
Test(magazine_bounds, a_destroyed_pool_ends_though_a_process_kept_some_of_it)
{
	static const share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *other = connect_as("other");
	share_pool *mine, *its;
	share_buffer *b, *in_use, *none = NULL;

	check_ok(share_pool_create(client, "short-lived", &options, &mine));
	check_ok(share_pool_open(other, "short-lived", &its));
	b = allocate(its, 4096, NULL);
	in_use = allocate(its, 4096, NULL);
	release(b, NULL);
	release(allocate(mine, 4096, NULL), NULL);
	check_ok(share_pool_destroy(client, "short-lived"));
	check(share_dispatch(other) >= 0);
	settle(client, s.buffers == 1);
	release(in_use, NULL);
	settle(client, s.buffers == 0 && s.segment_bytes == 0);
	check_error(share_alloc(its, 4096, NULL, &none), SHARE_ENOENT);
	share_pool_close(its);
	share_pool_close(mine);
	share_disconnect(other);
}

static void *wait_for_the_name(void *data)
{
	share_client *c = data;
	share_buffer *b = NULL;

	check_ok(share_lookup(c, "late", SHARE_RDONLY, HARNESS_LIMIT_MS, NULL, &b));
	release(b, NULL);
	return NULL;
}

Test(magazine_bounds, who_waits_for_a_name_still_gives_back)
{
	share_client *other = connect_as("other");
	share_pool *mine, *its;
	pthread_t thread;
	share_buffer *b;

	check_ok(share_pool_open(client, "tight", &mine));
	check_ok(share_pool_open(other, "tight", &its));
	check_ok(share_pool_set_cache(mine, MIB));
	release(allocate(mine, 512 * KIB, NULL), NULL);
	pthread_create(&thread, NULL, wait_for_the_name, client);
	/* asked before it waits, it would look when it is called; so until it waits */
	until(share_alloc(its, MIB, NULL, &b) == 0);
	check_ok(share_publish(b, "late", NULL));
	pthread_join(thread, NULL);
	check_ok(share_unpublish(other, "late"));
	release(b, NULL);
	share_pool_close(its);
	share_pool_close(mine);
	share_disconnect(other);
}

Test(magazine_bounds, it_works_on_when_the_broker_is_lost)
{
	share_buffer *a, *b = allocate(pool, 4096, NULL), *none = NULL;
	void *address = share_ptr(b);

	release(b, NULL);
	broker_kill();
	b = allocate(pool, 4096, NULL);
	check(share_ptr(b) == address);
	check_ok(share_release(b, NULL));
	a = allocate(pool, 4096, NULL);
	check_error(share_alloc(pool, 4096, NULL, &none), SHARE_EDISCONNECTED);
	check(none == NULL);
	check_ok(share_release(a, NULL));
}
