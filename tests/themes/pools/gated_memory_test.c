/* SPDX-License-Identifier: MIT */

/*
 * Memory that work still runs on, in a pool that hands it out nevertheless: whoever left the work
 * pays for the memory, gets it again itself, and keeps nobody else from what is clean. Root only,
 * who can be anybody. The users are clients without libshare, whose fences are reached when the
 * test says so.
 */

#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"
#include "tests/harness/status.h"

#define ALICE 4711
#define KIB   1024
#define MAY   (256 * KIB) /* what each user may hold; four of them fill the pool */

static const char config[] =
    "{\"limits\": {\"bytes\": \"256KiB\"}, \"pools\": [{\"name\": \"default\", \"kind\": \"host\", "
    "\"limit\": \"1MiB\", \"segment_size\": \"1MiB\", \"release_threshold\": 0, \"reuse\": "
    "\"gate\", \"access\": "
    "[{\"user\": \"*\", \"mode\": "
    "\"rw\"}]}, {\"name\": \"small\", \"kind\": \"host\", \"limit\": \"64KiB\", "
    "\"segment_size\": \"64KiB\", \"release_threshold\": 0, \"reuse\": \"gate\"}, {\"name\": "
    "\"clean\", \"kind\": \"host\", \"limit\": \"1MiB\", \"segment_size\": \"1MiB\", \"reuse\": "
    "\"clean\"}]}";

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

TestSuite(gated_memory, .init = start, .fini = stop, .timeout = 60);

static int64_t gated_bytes(void)
{
	json_t *rows = report(client, "pools");
	int64_t bytes = number_of(row_named(rows, "pool", "default"), "gated");

	json_decref(rows);
	return bytes;
}

/* What that much memory came with. */
struct given {
	uint64_t buffer, offset;
	uint32_t fences;
};

static struct given alloc(struct raw *r, uint64_t pool, uint64_t size)
{
	struct wire_message m = {.type = WIRE_ALLOC};

	m.alloc.pool = pool;
	m.alloc.size = size;
	raw_ask(r, &m, WIRE_GRANT);
	fd_list_close(&r->fds);
	return (struct given){r->m.grant.buffer, r->m.grant.offset,
			      r->m.grant.fences.size / (uint32_t)sizeof(struct wire_fence)};
}

static void expect_quota(struct raw *r, uint64_t pool, uint64_t size)
{
	struct wire_message m = {.type = WIRE_ALLOC};

	m.alloc.pool = pool;
	m.alloc.size = size;
	raw_ask_error(r, &m, SHARE_EQUOTA);
}

/* @slot: 0: nothing is done with it any more. */
static void release_behind(struct raw *r, uint64_t buffer, unsigned slot)
{
	struct wire_message m = {.type = WIRE_RELEASE};

	m.release.buffer = buffer;
	m.release.count = 1;
	m.release.timeline = slot ? WIRE_TIMELINE(r->page_id, slot) : 0;
	m.release.value = slot ? 1 : 0;
	raw_ask(r, &m, WIRE_DONE);
}

static void say_goodbye(struct raw *r)
{
	raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

/* ------------------------------------------------------------------------------------------- */

static void gates_what_it_can(struct child *self, void *data)
{
	static const uint64_t sizes[] = {512, 100 * KIB, 4096, 60 * KIB, 130 * KIB, 1000};
	struct raw r;
	uint64_t pool;

	child_become(*(const uid_t *)data, 0);
	raw_open(&r, "gater");
	pool = raw_pool(&r, "default");
	for (unsigned i = 0; i < 200; i++)
		release_behind(&r, alloc(&r, pool, sizes[i % 6]).buffer, 1 + i % 7);
	child_point(self, "gated");
	for (unsigned slot = 1; slot <= 7; slot++)
		timeline_signal(r.page, slot, 1);
	say_goodbye(&r);
}

/* Takes all that it may have, and tells what that came with. */
static void takes_its_share(struct child *self, void *data)
{
	struct given given;
	struct raw r;

	child_become(*(const uid_t *)data, 0);
	raw_open(&r, "user");
	given = alloc(&r, raw_pool(&r, "default"), MAY);
	child_point_with(self, "taken", &given, sizeof(given));
	release_behind(&r, given.buffer, 0);
	say_goodbye(&r);
}

static struct child *start_user(uid_t uid, struct given *given)
{
	struct child *user = child_start(takes_its_share, &uid);

	child_wait_with(user, "taken", given, sizeof(*given));
	return user;
}

static void end(struct child *child)
{
	child_go(child);
	child_finish(child);
}

Test(gated_memory, a_user_keeps_others_from_no_more_of_a_pool_than_it_may_hold)
{
	struct child *alice, *others[3];
	struct given given;

	skip_unless_root();
	alice = child_start(gates_what_it_can, &(uid_t){ALICE});
	child_wait(alice, "gated");
	check(gated_bytes() > 0 && gated_bytes() <= MAY);
	for (uid_t i = 0; i < 3; i++) {
		others[i] = start_user(ALICE + 1 + i, &given);
		check_eq(given.fences, 0);
	}
	end(alice);
	for (int i = 0; i < 3; i++)
		end(others[i]);
	settle(client, s.clients == 1 && s.buffers == 0 && s.segments == 0);
	check_eq(gated_bytes(), 0);
}

/* What they run on may never be free: a stream that got it would stand still for as long. */
Test(gated_memory, a_full_pool_waits_for_the_work_of_others_and_says_whose_it_is)
{
	struct wire_message m = {.type = WIRE_ALLOC};
	struct child *alice, *others[3];
	struct given given;
	struct raw r;

	skip_unless_root();
	alice = child_start(gates_what_it_can, &(uid_t){ALICE});
	child_wait(alice, "gated");
	for (uid_t i = 0; i < 3; i++)
		others[i] = start_user(ALICE + 1 + i, &given);
	raw_open(&r, "raw");
	m.alloc.pool = raw_pool(&r, "default");
	m.alloc.size = MAY;
	raw_ask_error(&r, &m, SHARE_EAGAIN);
	check(memmem(r.m.error.detail.data, r.m.error.detail.size, "user 4711's work", 16));
	check(gated_bytes() > 0 && gated_bytes() <= MAY);
	/* it does what it has to */
	end(alice);
	given = alloc(&r, m.alloc.pool, MAY);
	check_eq(given.fences, 0);
	release_behind(&r, given.buffer, 0);
	say_goodbye(&r);
	for (int i = 0; i < 3; i++)
		end(others[i]);
	settle(client, s.clients == 1 && s.buffers == 0 && s.segments == 0);
}

Test(gated_memory, whoever_left_the_work_has_the_memory_again_at_once_and_pays_once)
{
	struct given a, b, c;
	uint64_t pool;
	struct raw r;

	raw_open(&r, "raw");
	pool = raw_pool(&r, "default");
	a = alloc(&r, pool, 100 * KIB);
	b = alloc(&r, pool, 100 * KIB);
	release_behind(&r, a.buffer, 1);
	release_behind(&r, b.buffer, 2);
	check_eq(gated_bytes(), 200 * KIB);
	/* there is clean memory, but no more for this user */
	c = alloc(&r, pool, 60 * KIB);
	check_eq(c.fences, 1);
	check_eq(gated_bytes(), 140 * KIB);
	release_behind(&r, c.buffer, 0);
	check_eq(gated_bytes(), 200 * KIB);
	/* both, and something beside them */
	c = alloc(&r, pool, MAY);
	check_eq(c.offset, a.offset);
	check_eq(c.fences, 2);
	check_eq(gated_bytes(), 0);
	expect_quota(&r, pool, 1);
	release_behind(&r, c.buffer, 0);
	check_eq(gated_bytes(), MAY);
	timeline_signal(r.page, 1, 1);
	timeline_signal(r.page, 2, 1);
	c = alloc(&r, pool, MAY);
	check_eq(c.fences, 0);
	release_behind(&r, c.buffer, 0);
	say_goodbye(&r);
}

Test(gated_memory, whoever_reaches_its_limit_waits_a_moment_for_its_own_work)
{
	struct wire_message m = {.type = WIRE_ALLOC, .serial = 1000};
	struct wire_message ping = {.type = WIRE_PING, .serial = 1001};
	struct given x, y, z;
	struct raw r;

	raw_open(&r, "raw");
	m.alloc.pool = raw_pool(&r, "default");
	x = alloc(&r, m.alloc.pool, 80 * KIB);
	y = alloc(&r, m.alloc.pool, 80 * KIB);
	z = alloc(&r, m.alloc.pool, 80 * KIB);
	release_behind(&r, x.buffer, 1);
	release_behind(&r, z.buffer, 1);
	/* neither of them is enough, and all the clean memory that it may take is too little */
	m.alloc.size = 120 * KIB;
	check(raw_send(&r, &m) == 0 && raw_send(&r, &ping) == 0);
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.serial, ping.serial);
	timeline_signal(r.page, 1, 1);
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_GRANT);
	release_behind(&r, r.m.grant.buffer, 2);
	/* it has nothing more to wait for: what it holds is too much */
	z = alloc(&r, m.alloc.pool, 50 * KIB);
	expect_quota(&r, m.alloc.pool, 200 * KIB);
	release_behind(&r, y.buffer, 0);
	release_behind(&r, z.buffer, 0);
	timeline_signal(r.page, 2, 1);
	say_goodbye(&r);
}

Test(gated_memory, also_where_memory_is_handed_out_clean_alone)
{
	struct wire_message m = {.type = WIRE_ALLOC, .serial = 1000};
	struct wire_message ping = {.type = WIRE_PING, .serial = 1001};
	struct raw r;

	raw_open(&r, "raw");
	m.alloc.pool = raw_pool(&r, "clean");
	m.alloc.size = 200 * KIB;
	release_behind(&r, alloc(&r, m.alloc.pool, m.alloc.size).buffer, 1);
	check(raw_send(&r, &m) == 0 && raw_send(&r, &ping) == 0);
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.serial, ping.serial);
	timeline_signal(r.page, 1, 1);
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_GRANT);
	say_goodbye(&r);
}

Test(gated_memory, who_may_not_pay_has_no_memory_made)
{
	struct status status;
	struct raw r;

	raw_open(&r, "raw");
	expect_quota(&r, raw_pool(&r, "clean"), MAY + 1);
	say_goodbye(&r);
	status_read(client, &status);
	check_eq(status.segments, 0);
}

/* A piece would have as many fences as the whole has. */
Test(gated_memory, memory_is_cut_where_a_few_fences_are_waited_for_and_else_its_work_is)
{
	struct wire_message m = {.type = WIRE_ALLOC, .serial = 1000};
	struct wire_message ping = {.type = WIRE_PING, .serial = 1001};
	struct wire_message note = {.type = WIRE_RELEASE};
	enum { FEW = 8, MANY = 9, SIZE = MAY - 512 };
	struct given whole, part, kept; /* what keeps the segment */
	struct raw r;

	raw_open(&r, "raw");
	m.alloc.pool = raw_pool(&r, "default");
	kept = alloc(&r, m.alloc.pool, 512);
	note.release.value = 1;
	for (unsigned n = FEW; n <= MANY; n++) {
		whole = alloc(&r, m.alloc.pool, SIZE);
		note.release.buffer = whole.buffer;
		for (unsigned slot = 2; slot <= n; slot++) {
			note.release.timeline = WIRE_TIMELINE(r.page_id, slot);
			raw_ask(&r, &note, WIRE_DONE);
		}
		release_behind(&r, whole.buffer, 1);
		if (n == FEW) {
			part = alloc(&r, m.alloc.pool, 512);
			check_eq(part.fences, FEW);
			check_eq(gated_bytes(), SIZE - 512);
			release_behind(&r, part.buffer, 1);
		}
		/* all of it is in use again, whatever it is in */
		whole = alloc(&r, m.alloc.pool, SIZE);
		check_eq(whole.fences, n);
		release_behind(&r, whole.buffer, 1);
	}
	m.alloc.size = 512;
	check(raw_send(&r, &m) == 0 && raw_send(&r, &ping) == 0);
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.serial, ping.serial);
	for (unsigned slot = 1; slot <= MANY; slot++)
		timeline_signal(r.page, slot, 1);
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_GRANT);
	check_eq(r.m.grant.fences.size, 0);
	release_behind(&r, r.m.grant.buffer, 0);
	release_behind(&r, kept.buffer, 0);
	say_goodbye(&r);
}

/* Who waits hears of it before all is done. */
Test(gated_memory, what_waits_for_a_part_has_it_as_soon_as_few_fences_are_left)
{
	struct wire_message m = {.type = WIRE_ALLOC, .serial = 1000};
	struct wire_message ping = {.type = WIRE_PING, .serial = 1001};
	struct wire_message note = {.type = WIRE_RELEASE};
	enum { MANY = 9 };
	struct given whole;
	struct raw r;

	raw_open(&r, "raw");
	m.alloc.pool = raw_pool(&r, "small");
	m.alloc.size = 512;
	m.alloc.patience = UINT32_MAX;
	whole = alloc(&r, m.alloc.pool, 64 * KIB);
	note.release.buffer = whole.buffer;
	note.release.value = 1;
	for (unsigned slot = 2; slot <= MANY; slot++) {
		note.release.timeline = WIRE_TIMELINE(r.page_id, slot);
		raw_ask(&r, &note, WIRE_DONE);
	}
	release_behind(&r, whole.buffer, 1);
	check(raw_send(&r, &m) == 0 && raw_send(&r, &ping) == 0);
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.serial, ping.serial);
	timeline_signal(r.page, MANY, 1);
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_GRANT);
	check_eq(r.m.grant.fences.size, (MANY - 1) * sizeof(struct wire_fence));
	release_behind(&r, r.m.grant.buffer, 1);
	for (unsigned slot = 1; slot < MANY; slot++)
		timeline_signal(r.page, slot, 1);
	say_goodbye(&r);
}

Test(gated_memory, who_dies_with_work_running_pays_no_more)
{
	struct given a;
	uint64_t pool;
	struct raw r;

	raw_open(&r, "raw");
	pool = raw_pool(&r, "default");
	a = alloc(&r, pool, MAY);
	release_behind(&r, a.buffer, 1);
	say_goodbye(&r);
	settle(client, s.clients == 1 && s.segments == 0);
	raw_open(&r, "next");
	a = alloc(&r, raw_pool(&r, "default"), MAY);
	check_eq(a.fences, 0);
	release_behind(&r, a.buffer, 0);
	say_goodbye(&r);
}
