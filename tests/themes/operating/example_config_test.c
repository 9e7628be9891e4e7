/* SPDX-License-Identifier: MIT */

/*
 * packaging/broker.json, with which an operator begins: with it, users who are nobody in particular
 * do what the README shows first, and have memory that the CPU can touch where there is a GPU, too.
 * Root only, who can be anybody.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/support/kinds.h"
#include "tests/support/visit.h"

static const char *example(void)
{
	static char text[65536];
	const char *source = getenv("SHARE_TEST_SOURCE");
	char path[4096];
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "%s/packaging/broker.json", source ? source : ".");
	file = fopen(path, "re");
	cr_assert(file, "%s: %s", path, strerror(errno));
	n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[n] = '\0';
	return text;
}

static void start(void)
{
	kinds_start_on("", example());
}

TestSuite(example_config, .init = start, .fini = fixture_stop, .timeout = 60);

/* Of the two processes of the README, one: whoever may look a name up in one may in another. */
static void snippet(struct child *self, void *data)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *c;
	share_pool *p;
	share_buffer *b, *v;

	(void)self, (void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	options.kind = "host";
	check_ok(share_pool_create(c, "frames", &options, &p));
	check_ok(share_alloc(p, 1 << 20, NULL, &b));
	memset(share_ptr(b), 0x17, share_size(b));
	check_ok(share_publish(b, "frames/left", NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_lookup(c, "frames/left", SHARE_RDONLY, 1000, NULL, &v));
	check_eq(share_size(v), 1 << 20);
	check_eq(((const unsigned char *)share_ptr(v))[(1 << 20) - 1], 0x17);
	check_ok(share_release(v, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(example_config, ordinary_users_do_what_the_readme_shows_first)
{
	skip_unless_root();
	child_finish(child_start(snippet, NULL));
}

static void visit_pools(struct child *self, void *data)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_client *c;
	share_pool *p;
	share_buffer *b;

	(void)self, (void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_ok(share_pool_open(c, "default", &p));
	check_ok(share_pool_get_info(p, &info));
	check(strcmp(info.kind, "host") != 0); /* there is a GPU */
	share_pool_close(p);
	check_ok(share_pool_open(c, "host", &p));
	check_ok(share_pool_get_info(p, &info));
	check(strcmp(info.kind, "host") == 0);
	b = allocate(p, 1 << 20, NULL);
	memset(share_ptr(b), 0x17, share_size(b));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(example_config, users_have_a_host_pool_where_there_is_a_gpu)
{
	skip_unless_root();
	skip_unless_possible("vmm");
	child_finish(child_start(visit_pools, NULL));
}
