/* SPDX-License-Identifier: MIT */

/*
 * Who may use a pool, by name: the library looks users and groups up, as the broker is not to wait
 * for that. The database of groups is this test's own.
 */

#include <errno.h>
#include <grp.h>
#include <string.h>

#include "tests/harness/fixture.h"

#define CROWD      4711
#define CROWD_SIZE 100000 /* bytes of the names of all its members */

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

TestSuite(pool_access, .init = start, .fini = stop, .timeout = 60);

/* In the place of the C library's. */
int getgrnam_r(const char *name, struct group *entry, char *space, size_t size, struct group **out)
{
	*out = NULL;
	if (strcmp(name, "broken") == 0)
		return EIO;
	if (strcmp(name, "crowd") != 0)
		return 0;
	if (size < CROWD_SIZE)
		return ERANGE;
	*entry = (struct group){.gr_name = space, .gr_gid = CROWD};
	*out = entry;
	return 0;
}

static int create(const char *access)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *p = NULL;
	int r;

	options.kind = "host";
	options.access = access;
	r = share_pool_create(client, "pool", &options, &p);
	check((p != NULL) == (r == 0));
	share_pool_close(p);
	return r;
}

Test(pool_access, a_group_of_any_size_is_found)
{
	check_ok(create("[{\"group\": \"crowd\", \"mode\": \"ro\"}]"));
	check_ok(create("[{\"group\": \"4711\", \"mode\": \"ro\"}]"));
}

Test(pool_access, who_is_not_there_is_missed_by_name)
{
	check_error(create("[{\"group\": \"nobody here\", \"mode\": \"ro\"}]"), SHARE_EINVAL);
	check_detail("there is no group \"nobody here\"");
	check_error(create("[{\"group\": \"99999999999999999999999\", \"mode\": \"ro\"}]"),
		    SHARE_EINVAL);
	check_detail("there is no group \"99999999999999999999999\"");
}

Test(pool_access, a_database_that_cannot_be_read_is_not_taken_for_an_empty_one)
{
	check_error(create("[{\"group\": \"broken\", \"mode\": \"ro\"}]"), SHARE_ESYSTEM);
	check_detail("\"broken\"");
}
