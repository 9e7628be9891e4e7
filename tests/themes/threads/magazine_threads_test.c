/* SPDX-License-Identifier: MIT */

/*
 * What a client keeps, from many threads: a block is one thread's at a time, also while memory runs
 * short, pools are opened and closed, and the client ends.
 */

#include "tests/themes/threads/threads.h"

static void in_the_default_pool(void *data, unsigned index)
{
	(void)data;
	take_and_give(pool, index, 8 << 10, steps(2000));
}

static void a_block_is_one_threads_at_a_time(void)
{
	start();
	together(6, in_the_default_pool, NULL);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static void while_pools_come_and_go(void *data, unsigned index)
{
	(void)data;
	for (unsigned i = 0; i < steps(40); i++) {
		share_pool *p;

		check_ok(share_pool_open(client, "default", &p));
		take_and_give(p, index, 8 << 10, 20);
		if (index == 0)
			check_ok(share_pool_set_cache(p, i % 2 ? 16 << 20 : 0));
		share_pool_close(p);
		if (index == 1)
			check(share_dispatch(client) >= 0);
	}
}

static void pools_are_opened_and_closed_and_bounded_meanwhile(void)
{
	start();
	share_pool_close(pool); /* so that sometimes nobody has it open */
	together(5, while_pools_come_and_go, NULL);
	check_ok(share_pool_open(client, "default", &pool));
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static share_pool *tight;
static share_pool *tight_of_second;

static void in_a_tight_pool(void *data, unsigned index)
{
	share_pool *p = index % 2 ? tight : tight_of_second;

	(void)data;
	for (unsigned i = 0; i < steps(100); i++) {
		share_buffer *b;

		/* others may have all there is */
		if (check_one_of(share_alloc(p, 100 << 10, NULL, &b), SHARE_ENOMEM) == 0)
			check_ok(share_release(b, NULL));
	}
}

static void memory_runs_short_meanwhile(void)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	start();
	options.limit = 512 << 10;
	options.segment_size = 512 << 10;
	check_ok(share_pool_create(client, "tight", &options, &tight));
	check_ok(share_pool_open(second, "tight", &tight_of_second));
	check_ok(share_pool_set_cache(tight, 512 << 10));
	check_ok(share_pool_set_cache(tight_of_second, 512 << 10));
	together(6, in_a_tight_pool, NULL);
	share_pool_close(tight_of_second);
	share_pool_close(tight);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static share_buffer *left[6][64];

static void release_what_is_left(void *data, unsigned index)
{
	share_client *c = data;

	if (index == 0)
		share_disconnect(c);
	else
		for (unsigned i = 0; i < 64; i++)
			check_ok(share_release(left[index][i], NULL));
}

static void the_client_ends_while_threads_release(void)
{
	start();
	for (unsigned round = 0; round < steps(10); round++) {
		share_client *c;
		share_pool *p;

		check_ok(share_connect(share_address(client), &c));
		check_ok(share_pool_open(c, "default", &p));
		for (unsigned i = 1; i < 6; i++)
			for (unsigned k = 0; k < 64; k++)
				check_ok(share_alloc(p, 4096, NULL, &left[i][k]));
		share_pool_close(p);
		check_ok(share_pool_open(c, "default", &p));
		together(6, release_what_is_left, c);
		share_pool_close(p);
		settle(second, s.buffers == 0);
	}
	stop();
}

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(a_block_is_one_threads_at_a_time),
	    TEST(pools_are_opened_and_closed_and_bounded_meanwhile),
	    TEST(memory_runs_short_meanwhile),
	    TEST(the_client_ends_while_threads_release),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
