/* SPDX-License-Identifier: MIT */

/*
 * A pool that several users write to, when it runs short: who has more than its share leaves the
 * last eighth to those who have less. Root only, who can be anybody; each user is a process that
 * takes and gives back as many frames as the test says.
 */

#include <string.h>

#include "tests/harness/fixture.h"

#define ALICE  4711
#define BOB    4712
#define CAROL  4713
#define READER 4714
#define FRAME  65536
#define FRAMES 64 /* that the pool has room for */

static const char config[] =
    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"4MiB\", "
    "\"segment_size\": \"4MiB\", \"access\": [{\"user\": 4711, \"mode\": \"rw\"}, "
    "{\"user\": 4712, \"mode\": \"rw\"}, {\"user\": 4713, \"mode\": \"rw\"}, "
    "{\"user\": 4714, \"mode\": \"ro\"}]}]}";

static share_client *client;

static void start(void)
{
	fixture_start_with(config);
	client = connect_as("root");
}

static void stop(void)
{
	share_disconnect(client);
	fixture_stop();
}

TestSuite(pool_share, .init = start, .fini = stop, .timeout = 60);

struct order {
	int take, give_back; /* frames */
	int end;
};

struct result {
	int taken, error;
	char detail[512];
};

static void take(share_pool *p, share_buffer **frames, int *n, const struct order *o,
		 struct result *r)
{
	*r = (struct result){0, 0, ""};
	while (r->taken < o->take && r->error == 0) {
		r->error = share_alloc(p, FRAME, NULL, &frames[*n]);
		if (r->error == 0) {
			r->taken++;
			++*n;
		}
	}
	if (r->error != 0)
		strncpy(r->detail, share_error_detail(), sizeof(r->detail) - 1);
}

static void use_frames(struct child *self, void *data)
{
	share_buffer *frames[FRAMES + 1];
	struct result r = {0, 0, ""};
	share_client *c;
	share_pool *p;
	struct order o;
	int n = 0;

	child_become(*(uid_t *)data, 0);
	c = child_connect("user");
	p = open_pool(c);
	/* what it gives back is the pool's at once */
	check_ok(share_pool_set_cache(p, 0));
	/* who has not asked for anything does not count */
	if (share_alloc(p, FRAME, NULL, &frames[0]) == 0)
		check_ok(share_release(frames[0], NULL));
	for (;;) {
		child_exchange(self, "ready", &r, sizeof(r), &o, sizeof(o));
		if (o.end)
			break;
		for (int i = 0; i < o.give_back; i++)
			check_ok(share_release(frames[--n], NULL));
		/* others ask by connections of their own: the broker has to have read this one
		 * before */
		check_ok(share_ping(c));
		take(p, frames, &n, &o, &r);
	}
	while (n > 0)
		check_ok(share_release(frames[--n], NULL));
	share_pool_close(p);
	share_disconnect(c);
}

static struct child *user(uid_t uid)
{
	struct child *c = child_start(use_frames, &uid);
	struct result r;

	child_wait_with(c, "ready", &r, sizeof(r));
	return c;
}

static struct result have(struct child *c, int give_back, int take_so_many)
{
	struct order o = {take_so_many, give_back, 0};
	struct result r;

	child_go_with(c, &o, sizeof(o));
	child_wait_with(c, "ready", &r, sizeof(r));
	return r;
}

static void end(struct child *c)
{
	struct order o = {0, 0, 1};

	child_go_with(c, &o, sizeof(o));
	child_finish(c);
}

static void expect_refused(const struct result *r, int taken, int error, const char *why)
{
	check_eq(r->taken, taken);
	check_eq(r->error, error);
	if (!strstr(r->detail, why))
		cr_log_error("not '%s': %s", why, r->detail);
	check(strstr(r->detail, why));
}

/* ------------------------------------------------------------------------------------------- */

Test(pool_share, who_has_a_pool_to_itself_has_all_of_it)
{
	struct child *alice, *reader;
	struct result r;
	share_pool *p;

	skip_unless_root();
	alice = user(ALICE);
	reader = user(READER);
	check_ok(share_pool_open(client, "default", &p));
	r = have(alice, 0, FRAMES + 1);
	expect_refused(&r, FRAMES, SHARE_ENOMEM, "has no room for");
	share_pool_close(p);
	end(reader);
	end(alice);
}

Test(pool_share, who_has_more_than_its_share_leaves_an_eighth_to_others)
{
	struct child *alice, *bob;
	struct result r;

	skip_unless_root();
	alice = user(ALICE);
	bob = user(BOB);
	r = have(alice, 0, FRAMES);
	expect_refused(&r, FRAMES / 8 * 7, SHARE_EQUOTA,
		       "uid 4711, which has 3.5MiB and wants 64KiB: its share is 2MiB, as 2 users");
	check_eq(broker_said("its share is 2MiB"), 1);
	/* what it gives back it has again */
	r = have(alice, 5, 5);
	check_eq(r.taken, 5);
	r = have(bob, 0, FRAMES);
	expect_refused(&r, FRAMES / 8, SHARE_ENOMEM, "has no room for");
	/* what it gives back is for who has less, up to its share */
	r = have(alice, FRAMES / 2, 0);
	r = have(bob, 0, FRAMES);
	expect_refused(&r, FRAMES / 8 * 3, SHARE_EQUOTA, "uid 4712");
	r = have(alice, 0, FRAMES);
	expect_refused(&r, FRAMES / 8, SHARE_ENOMEM, "has no room for");
	end(bob);
	/* bob has gone */
	r = have(alice, 0, FRAMES / 2);
	check_eq(r.taken, FRAMES / 2);
	end(alice);
}

Test(pool_share, who_had_everything_before_others_came_gets_no_more)
{
	struct child *alice, *bob, *carol;
	struct result r;

	skip_unless_root();
	alice = user(ALICE);
	r = have(alice, 0, FRAMES);
	check_eq(r.taken, FRAMES);
	bob = user(BOB);
	carol = user(CAROL);
	r = have(bob, 0, 1);
	expect_refused(&r, 0, SHARE_ENOMEM, "has no room for");
	r = have(alice, 4, 4);
	expect_refused(&r, 0, SHARE_EQUOTA, "its share is 1.3MiB, as 3 users");
	r = have(bob, 0, 2);
	check_eq(r.taken, 2);
	r = have(carol, 0, 2);
	check_eq(r.taken, 2);
	end(carol);
	end(bob);
	end(alice);
}

/* Two of three who take what they get: the third finds its eighth. */
Test(pool_share, two_who_are_greedy_leave_something_to_a_third)
{
	struct child *alice, *bob, *carol;
	struct result r;

	skip_unless_root();
	alice = user(ALICE);
	bob = user(BOB);
	carol = user(CAROL);
	for (int i = 0; i < FRAMES / 2; i++) {
		have(alice, 0, 1);
		have(bob, 0, 1);
	}
	r = have(carol, 0, FRAMES);
	expect_refused(&r, FRAMES / 8, SHARE_ENOMEM, "has no room for");
	/* whoever gives something back, it is hers */
	have(bob, 8, 0);
	r = have(alice, 0, 1);
	expect_refused(&r, 0, SHARE_EQUOTA, "uid 4711");
	r = have(carol, 0, 8);
	check_eq(r.taken, 8);
	end(carol);
	end(bob);
	end(alice);
}
