/* SPDX-License-Identifier: MIT */

/*
 * One request that opens the pool that is there, or creates it: nobody comes in between, and what
 * is there is what was asked for. That different users have is in
 * tests/themes/hostile/other_user_test.c, and what devices make of the options in
 * conformance_pool_test.c.
 */

#include <string.h>

#include "tests/harness/fixture.h"

#define MIB    (UINT64_C(1) << 20)
#define ROUNDS 1000

static share_client *client;

static void start(void)
{
	fixture_start();
	client = connect_as("test");
}

static void stop(void)
{
	share_disconnect(client);
	fixture_stop();
}

TestSuite(pool_open_or_create, .init = start, .fini = stop, .timeout = 120);

static share_pool_options wanted(void)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	options.kind = "host";
	options.flags = SHARE_POOL_OPEN_OR_CREATE;
	return options;
}

/* ------------------------------------------------------------------------------------------- */

/* The pool ends with whoever closes it last, which may be just when the other one asks for it. */
static void comes_and_goes(struct child *self, void *data)
{
	share_client *c = child_connect("one of two");
	share_pool_options options = wanted();

	(void)data;
	child_point(self, "ready");
	for (int i = 0; i < ROUNDS; i++) {
		share_pool *p;

		check_ok(share_pool_create(c, "temporary", &options, &p));
		check_ok(share_release(allocate(p, 1, NULL), NULL));
		share_pool_close(p);
	}
	share_disconnect(c);
}

Test(pool_open_or_create, two_that_come_and_go_always_have_it)
{
	struct child *a = child_start(comes_and_goes, NULL), *b = child_start(comes_and_goes, NULL);

	child_wait(a, "ready");
	child_wait(b, "ready");
	child_go(a);
	child_go(b);
	child_finish(a);
	child_finish(b);
	settle(client, s.pools == 1);
}

Test(pool_open_or_create, it_is_one_pool_whoever_comes_first)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_pool_options options = wanted();
	share_pool *p, *q, *none = NULL;
	share_buffer *b;

	options.limit = 8 * MIB;
	check_ok(share_pool_create(client, "pool", &options, &p));
	options.limit = 0;
	check_ok(share_pool_create(client, "pool", &options, &q));
	settle(client, s.pools == 2);
	check_ok(share_pool_get_info(q, &info));
	check_eq(info.limit, 8 * MIB);
	check_eq(info.flags, 0);
	b = allocate(q, 1, NULL);
	share_pool_close(q);
	/* without the flag it is as it was */
	check_error(share_pool_create(client, "pool", NULL, &none), SHARE_EEXIST);
	check_detail("there is a pool 'pool' already");
	check_detail("SHARE_POOL_OPEN_OR_CREATE");
	check(none == NULL);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	settle(client, s.pools == 1);
}

/* ------------------------------------------------------------------------------------------- */
/* What is there is not what is asked for                                                      */

static void expect_unlike(const share_pool_options *options, const char *text)
{
	share_pool *none = NULL;

	check_error(share_pool_create(client, "pool", options, &none), SHARE_EEXIST);
	check_detail(text);
	check_detail("who opens it first says what it is like");
	check(none == NULL);
}

Test(pool_open_or_create, what_differs_is_said_with_what_was_asked_for_and_what_is_there)
{
	share_pool_options made = wanted(), options = wanted();
	share_pool *p, *q;

	made.limit = 8 * MIB;
	made.segment_size = 2 * MIB;
	made.alignment = 4096;
	made.release_threshold = MIB;
	made.access = "[{\"user\": 4711, \"mode\": \"rw\"}, {\"group\": 44, \"mode\": \"ro\"}]";
	made.reuse = SHARE_REUSE_CLEAN;
	check_ok(share_pool_create(client, "pool", &made, &p));

	options.kind = "vmm";
	expect_unlike(&options, "kind of pool 'pool' is host, not vmm");
	options = wanted();
	options.kind = NULL;
	options.device = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50";
	expect_unlike(&options,
		      "device of pool 'pool' is none, not "
		      "GPU-5fd4f087-86f3-7a43-b711-4771313afc50");
	options = wanted();
	options.limit = 16 * MIB;
	expect_unlike(&options, "limit of pool 'pool' is 8MiB, not 16MiB");
	options = wanted();
	options.segment_size = MIB;
	expect_unlike(&options, "segment_size of pool 'pool' is 2MiB, not 1MiB");
	options.segment_size = UINT64_MAX;
	expect_unlike(&options,
		      "segment_size of pool 'pool' is 2MiB, not 16.0EiB (18446744073709551615)");
	options = wanted();
	options.alignment = 512;
	expect_unlike(&options, "alignment of pool 'pool' is 4KiB, not 512");
	options = wanted();
	options.release_threshold = 2 * MIB;
	expect_unlike(&options, "release_threshold of pool 'pool' is 1MiB, not 2MiB");
	options = wanted();
	options.access = "[{\"user\": 4711, \"mode\": \"rw\"}]";
	expect_unlike(&options,
		      "access of pool 'pool' is [{\"user\": 4711, \"mode\": \"rw\"}, "
		      "{\"group\": 44, \"mode\": \"ro\"}], not "
		      "[{\"user\": 4711, \"mode\": \"rw\"}]");
	options = wanted();
	options.reuse = SHARE_REUSE_SCRUB;
	expect_unlike(&options, "reuse of pool 'pool' is clean, not scrub");
	options = wanted();
	options.flags |= SHARE_POOL_PERSISTENT;
	expect_unlike(&options, "persistent of pool 'pool' is false, not true");
	options = wanted();
	options.flags |= SHARE_POOL_SAME_ADDRESS;
	expect_unlike(&options, "same_address of pool 'pool' is false, not true");

	/* the same in other words, and what asks for nothing */
	check_ok(share_pool_create(client, "pool", &made, &q));
	share_pool_close(q);
	made.access =
	    "[{\"group\": \"44\", \"mode\": \"ro\"}, {\"user\": \"4711\", \"mode\": \"rw\"}]";
	made.segment_size = 2 * MIB - 1;
	made.kind = "auto";
	check_ok(share_pool_create(client, "pool", &made, &q));
	share_pool_close(q);
	options = wanted();
	options.kind = NULL;
	check_ok(share_pool_create(client, "pool", &options, &q));
	share_pool_close(q);
	share_pool_close(p);
}

Test(pool_open_or_create, what_no_pool_can_be_asked_for_is_refused_whether_it_is_there_or_not)
{
	share_pool_options options = wanted();
	share_pool *p, *none = NULL;

	for (int there = 0; there < 2; there++) {
		options = wanted();
		options.reuse = 3;
		check_error(share_pool_create(client, "pool", &options, &none), SHARE_EINVAL);
		check_detail("reuse: 3 is not an enum share_reuse");
		options = wanted();
		options.access = "[{\"user\": 1, \"mode\": \"all\"}]";
		check_error(share_pool_create(client, "pool", &options, &none), SHARE_EINVAL);
		check_detail("access[0].mode: \"all\" is not a mode");
		check(none == NULL);
		options = wanted();
		if (!there)
			check_ok(share_pool_create(client, "pool", &options, &p));
	}
	share_pool_close(p);
}

/* A pool of the configuration is like any other, and is not its users' to make. */
Test(pool_open_or_create, what_the_configuration_has_is_opened)
{
	share_pool_options options = wanted();
	share_pool *p;

	options.limit = 64 * MIB;
	options.flags |= SHARE_POOL_PERSISTENT;
	check_ok(share_pool_create(client, "default", &options, &p));
	check_ok(share_release(allocate(p, 1, NULL), NULL));
	share_pool_close(p);
	settle(client, s.pools == 1);
}
