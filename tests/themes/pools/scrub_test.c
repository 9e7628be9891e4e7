/* SPDX-License-Identifier: MIT */

/*
 * The reuse policy *scrub*: what one user left, another does not find. Root only, who can be
 * anybody. Agents that fail at it are scrub_failure_test.c's.
 */

#include <signal.h>

#include "tests/support/visit.h"

#define CONFORMANCE_KINDS kinds_without_legacy
#include "tests/themes/pools/conformance.h"

TestSuite(conformance, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */

ConformanceTest(another_user_finds_zeros)
{
	share_client *c = connect_as("test");
	share_pool *p;

	skip_unless_root();
	p = scrubbed_pool(c, kind);
	visit(ALICE, UNIT, 0, 0xaa);
	visit(BOB, UNIT, 0, 0xbb);
	visit(ALICE, UNIT, 0, 0xaa);
	all_end(c, p);
}

ConformanceTest(the_same_user_finds_what_it_left)
{
	share_client *c = connect_as("test");
	share_pool *p;

	skip_unless_root();
	p = scrubbed_pool(c, kind);
	visit(ALICE, UNIT, 0, 0xaa);
	visit(ALICE, UNIT / 2, 0xaa, 0xab);
	visit(ALICE, UNIT / 2, 0xab, 0xaa);
	all_end(c, p);
}

ConformanceTest(a_part_of_what_another_user_left_is_zeros_whatever_the_size)
{
	share_client *c = connect_as("test");
	share_pool *p;

	skip_unless_root();
	p = scrubbed_pool(c, kind);
	visit(ALICE, UNIT, 0, 0xaa);
	visit(BOB, 1, 0, 0xbb);
	visit(BOB, 10001, ANYTHING, 0xbb);
	visit(ALICE, 10001, 0, 0xaa);
	visit(BOB, 8192, 0, 0xbb);
	visit(ALICE, UNIT, 0, 0xaa);
	all_end(c, p);
}

/* ------------------------------------------------------------------------------------------- */

/* Allocates and publishes; what the other one writes meanwhile is there when it goes. */
static void alice_lends(struct child *self, void *data)
{
	share_client *c;
	share_buffer *b;
	share_pool *p;

	(void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	p = open_test(c);
	b = allocate(p, UNIT, NULL);
	buffer_fill(b, 0xaa);
	check_ok(share_publish(b, "lent", NULL));
	child_point(self, "lent");
	check_ok(share_unpublish(c, "lent"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

static void bob_borrows(struct child *self, void *data)
{
	uint32_t mode = *(const uint32_t *)data;
	share_client *c;
	share_buffer *b;

	(void)self;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_ok(share_lookup(c, "lent", mode, 0, NULL, &b));
	buffer_expect(b, 0xaa);
	if (mode == SHARE_RDWR)
		buffer_fill(b, 0xbb);
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

static void lend(uint32_t mode)
{
	struct child *alice = child_start(alice_lends, NULL);

	child_wait(alice, "lent");
	child_finish(child_start(bob_borrows, &mode));
	child_go(alice);
	child_finish(alice);
}

ConformanceTest(what_two_users_could_write_is_zeros_for_either)
{
	share_client *c = connect_as("test");
	share_pool *p;

	skip_unless_root();
	p = scrubbed_pool(c, kind);
	lend(SHARE_RDWR);
	visit(ALICE, UNIT, 0, 0xaa);
	lend(SHARE_RDWR);
	visit(BOB, UNIT, 0, 0xbb);
	all_end(c, p);
}

ConformanceTest(what_another_user_only_read_is_still_its_owners)
{
	share_client *c = connect_as("test");
	share_pool *p;

	skip_unless_root();
	p = scrubbed_pool(c, kind);
	lend(SHARE_RDONLY);
	visit(ALICE, UNIT, 0xaa, 0xaa);
	all_end(c, p);
}

static void alice_keeps_neighbours(struct child *self, void *data)
{
	share_buffer *b[3];
	share_client *c;
	share_pool *p;

	(void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	p = open_test(c);
	b[0] = allocate(p, UNIT / 4 + 100, NULL);
	b[1] = allocate(p, UNIT / 8 + 100, NULL);
	b[2] = allocate(p, UNIT / 2, NULL);
	for (int i = 0; i < 3; i++)
		buffer_fill(b[i], 0xa0 + i);
	check_ok(share_release(b[1], NULL));
	child_point(self, "released");
	buffer_expect(b[0], 0xa0);
	buffer_expect(b[2], 0xa2);
	check_ok(share_release(b[0], NULL));
	check_ok(share_release(b[2], NULL));
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(nothing_is_zeroed_beside_what_is_handed_out)
{
	share_client *c = connect_as("test");
	struct child *alice;
	share_pool *p;

	skip_unless_root();
	p = scrubbed_pool(c, kind);
	alice = child_start(alice_keeps_neighbours, NULL);
	child_wait(alice, "released");
	visit(BOB, UNIT / 8 + 100, 0, 0xbb);
	child_go(alice);
	child_finish(alice);
	all_end(c, p);
}

/* ------------------------------------------------------------------------------------------- */

ConformanceTest(what_a_dead_agent_made_is_zeroed_by_the_next)
{
	share_client *c = connect_as("test");
	share_pool *p;

	skip_unless_root();
	if (is_host(kind))
		cr_skip_test("host memory has no agent");
	p = scrubbed_pool(c, kind);
	visit(ALICE, UNIT, 0, 0xaa);
	check(kill(agent_there(c), SIGKILL) == 0);
	settle(c, agent(c) == 0);
	visit(BOB, UNIT / 2, 0, 0xbb);
	visit(ALICE, UNIT, 0, 0xaa);
	all_end(c, p);
}
