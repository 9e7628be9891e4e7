/* SPDX-License-Identifier: MIT */

/*
 * A broker in a user namespace, as in a container without root's help: it has a number for one
 * user, and sees all others as one. They are not served as if they were.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/fixture.h"

#define ALICE  4711
#define NOBODY 65534

static char script[] = "/tmp/share-namespace-XXXXXX";

static bool has_namespaces(void)
{
	return geteuid() == 0 && system("unshare --user --map-root-user true >/dev/null 2>&1") == 0;
}

static void start(void)
{
	int fd;
	FILE *f;

	if (!has_namespaces())
		return;
	fd = mkstemp(script);
	f = fdopen(fd, "w");
	check(f != NULL);
	fprintf(f, "#!/bin/sh\nexec unshare --user --map-root-user '%s/share-broker' \"$@\"\n",
		getenv("SHARE_TEST_BIN"));
	check(fclose(f) == 0 && chmod(script, 0700) == 0);
	broker_use_program(script);
	fixture_start();
}

static void stop(void)
{
	if (!has_namespaces())
		return;
	fixture_stop();
	broker_use_program(NULL);
	unlink(script);
}

TestSuite(namespace, .init = start, .fini = stop, .timeout = 60);

static void is_refused(struct child *self, void *data)
{
	share_client *c;

	(void)self;
	child_become(*(uid_t *)data, 0);
	check_error(share_connect(broker_socket(), &c), SHARE_EACCES);
	check_detail("user namespace");
}

Test(namespace, users_that_it_has_no_number_for_are_told_so)
{
	static const uid_t users[] = {ALICE, NOBODY};
	share_client *c;

	if (!has_namespaces())
		cr_skip_test("no user namespace can be made here");
	for (size_t i = 0; i < 2; i++)
		child_finish(child_start(is_refused, (void *)(uintptr_t)&users[i]));
	c = connect_as("the one it has a number for");
	share_disconnect(c);
	check_eq(broker_said("this user namespace has numbers for some users only"), 1);
}
