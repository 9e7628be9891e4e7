/* SPDX-License-Identifier: MIT */

/* Where the harness meets Criterion. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/fixture.h"

static int descriptors_before;

static bool stopping, driver_in_use;

/* Criterion forgives what fails in a .fini: there the process ends badly. */
static void fail_test(void)
{
	char *log = broker_log();
	size_t size = strlen(log);

	fprintf(stderr, "---- the end of the broker's log ----\n%s----\n",
		log + (size > 4096 ? size - 4096 : 0));
	free(log);
	if (stopping)
		abort();
	cr_assert_fail("see above");
}

void fixture_start_with(const char *config)
{
	check_on_failure = fail_test;
	driver_in_use = false;
	descriptors_before = descriptors_count(0);
	broker_start(config);
}

void fixture_start(void)
{
	fixture_start_with(NULL);
}

void fixture_uses_devices(void)
{
	driver_in_use = true;
}

void fixture_stop(void)
{
	int now;

	stopping = true;
	broker_stop();
	now = descriptors_count(0);
	if (check_has_failed() || driver_in_use || now == descriptors_before)
		return;
	descriptors_list(0);
	check_failed(__FILE__, __LINE__, "the test has %d descriptors, and had %d", now,
		     descriptors_before);
}

share_client *connect_as(const char *label)
{
	return child_connect(label);
}

share_pool *open_pool(share_client *c)
{
	share_pool *p;

	check_ok(share_pool_open(c, "default", &p));
	return p;
}

share_buffer *allocate(share_pool *p, uint64_t size, void *stream)
{
	share_buffer *b;

	check_ok(share_alloc(p, size, stream, &b));
	return b;
}

void skip_unless_root(void)
{
	if (geteuid() != 0)
		cr_skip_test("only root can be another user");
}
