/* SPDX-License-Identifier: MIT */

/*
 * Names that are somebody's: what others may not make under them, and still use. Which names are
 * whose is right_test's of tests/broker/config. Root only, who can be anybody.
 */

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/fixture.h"

#include <share/channel.h>

#define ALICE 4711
#define BOB   4712

static const char config[] =
    "{\"create_pools\": [\"*\"], \"names\": {\"frames/\": [4711]},"
    "\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"8MiB\", "
    "\"segment_size\": \"1MiB\", \"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]}]}";

static void start(void)
{
	fixture_start_with(config);
}

TestSuite(names_owned, .init = start, .fini = fixture_stop, .timeout = 60);

static void run_as(child_function function)
{
	skip_unless_root();
	child_finish(child_start(function, NULL));
}

static int publish(share_client *c, const char *name)
{
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 4096, NULL);
	int r = share_publish(b, name, NULL);

	if (r == 0)
		check_ok(share_unpublish(c, name));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	return r;
}

static int create_pool(share_client *c, const char *name)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *p;
	int r;

	options.kind = "host";
	options.limit = 1 << 20;
	r = share_pool_create(c, name, &options, &p);
	if (r == 0)
		share_pool_close(p);
	return r;
}

static int open_channel(share_client *c, const char *name, enum share_role role)
{
	share_channel *channel;
	int r = share_channel_open(c, name, role, NULL, &channel);

	if (r == 0)
		share_channel_close(channel);
	return r;
}

static void bob(struct child *self, void *data)
{
	share_client *c;

	(void)self;
	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_error(publish(c, "frames/left"), SHARE_EACCES);
	check_detail("user 4712 may not publish 'frames/left': names that begin so are others'");
	check_error(create_pool(c, "frames/pool"), SHARE_EACCES);
	check_error(open_channel(c, "frames/left", SHARE_CONSUMER), SHARE_ENOENT);
	check_error(open_channel(c, "frames/left", SHARE_PRODUCER), SHARE_ENOENT);
	check_ok(publish(c, "left"));
	check_ok(create_pool(c, "pool"));
	check_ok(open_channel(c, "left", SHARE_PRODUCER));

	/* what is everybody's own without a word in the configuration */
	check_ok(publish(c, "uid/4712/left"));
	check_error(publish(c, "uid/4711/left"), SHARE_EACCES);
	check_error(publish(c, "uid/0/left"), SHARE_EACCES);
	share_disconnect(c);
}

Test(names_owned, others_make_nothing_that_is_called_so)
{
	run_as(bob);
}

static void alice(struct child *self, void *data)
{
	share_client *c;

	(void)self;
	(void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	check_ok(publish(c, "frames/left"));
	check_ok(create_pool(c, "frames/pool"));
	check_ok(open_channel(c, "frames/left", SHARE_PRODUCER));
	share_disconnect(c);
}

Test(names_owned, their_owner_does)
{
	run_as(alice);
}

static void alice_serves(struct child *self, void *data)
{
	share_channel *channel;
	share_client *c;
	share_pool *p;
	share_buffer *b;

	(void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	p = open_pool(c);
	b = allocate(p, 4096, NULL);
	check_ok(share_publish(b, "frames/left", NULL));
	check_ok(share_channel_open(c, "frames/left", SHARE_PRODUCER, NULL, &channel));
	child_point(self, "serves");
	share_channel_close(channel);
	check_ok(share_unpublish(c, "frames/left"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

static void bob_uses(struct child *self, void *data)
{
	share_client *c;
	share_buffer *b;

	(void)self;
	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_ok(share_lookup(c, "frames/left", SHARE_RDONLY, 0, NULL, &b));
	check_ok(share_release(b, NULL));
	check_ok(open_channel(c, "frames/left", SHARE_CONSUMER));
	share_disconnect(c);
}

Test(names_owned, what_is_there_is_for_all_who_may_use_its_pool)
{
	struct child *owner;

	skip_unless_root();
	owner = child_start(alice_serves, NULL);
	child_wait(owner, "serves");
	child_finish(child_start(bob_uses, NULL));
	child_go(owner);
	child_finish(owner);
}

Test(names_owned, administrators_are_not_asked)
{
	share_client *c;

	skip_unless_root();
	c = connect_as("root");
	check_ok(publish(c, "frames/left"));
	check_ok(publish(c, "uid/4711/left"));
	share_disconnect(c);
}

static void bob_publishes(struct child *self, void *data)
{
	share_client *c;

	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_error(publish(c, "frames/left"), SHARE_EACCES);
	child_point(self, "refused");
	check_ok(publish(c, "frames/left"));
	share_disconnect(c);
}

Test(names_owned, a_file_that_is_read_again_gives_them_to_others)
{
	struct child *child;
	char again[sizeof(config)];

	skip_unless_root();
	child = child_start(bob_publishes, NULL);
	child_wait(child, "refused");
	strcpy(again, config);
	memcpy(strstr(again, "[4711]"), "[4712]", 6);
	broker_write_config(again);
	kill(broker_pid(), SIGHUP);
	until(broker_said("names[\"frames/\"].publish: user 4712: added") == 1);
	check_eq(broker_said("names[\"frames/\"].publish: user 4711: removed"), 1);
	child_go(child);
	child_finish(child);
}
