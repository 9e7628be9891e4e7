/* SPDX-License-Identifier: MIT */

/*
 * A connection that ends is not a process that ends. Whoever hangs up, or is hung up on, and lives,
 * may still touch what it holds: it keeps it, for everyone to see, until it exits. Whoever says
 * goodbye has unmapped everything, and keeps nothing.
 */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

TestSuite(quarantine, .init = fixture_start, .fini = fixture_stop, .timeout = 60);

enum way { HANGS_UP, BREAKS_THE_PROTOCOL };

/* Holds a buffer, a name, a token; then its connection ends, and it lives. */
static void loses_its_connection(struct child *self, void *data)
{
	struct wire_message publish = {.type = WIRE_PUBLISH}, export = {.type = WIRE_EXPORT};
	uint64_t buffer;
	struct raw r;

	raw_open(&r, "quarantined one");
	buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	publish.publish.buffer = export.export.buffer = buffer;
	publish.publish.name = raw_text("name");
	raw_ask(&r, &publish, WIRE_PUBLISHED);
	export.export.mode = SHARE_RDONLY;
	raw_ask(&r, &export, WIRE_TOKEN);
	child_point(self, "holding");
	if (*(enum way *)data == HANGS_UP) {
		raw_hang_up(&r);
	} else {
		check_eq(raw_send_bytes(&r, "nonsense", 8, NULL, 0), 0);
		check_error(raw_farewell(&r), SHARE_EPROTO);
		raw_hang_up(&r);
	}
	child_point(self, "hung up");
}

static void expect_quarantine(enum way way)
{
	share_client *c = connect_as("witness");
	struct child *child = child_start(loses_its_connection, &way);
	json_t *rows;

	child_wait(child, "holding");
	settle(c, s.clients == 2 && s.leases == 1 && s.names == 1 && s.tokens == 1);
	child_go(child);
	child_wait(child, "hung up");
	/* nobody can be handed what it had to give, but it keeps what it may be using */
	settle(c, s.clients == 2 && s.quarantined == 1 && s.leases == 1 && s.buffers == 1 &&
		      s.names == 0 && s.tokens == 0);
	rows = report(c, "clients");
	check(strcmp(json_string_value(
			 json_object_get(row_named(rows, "label", "quarantined one"), "state")),
		     "quarantined") == 0);
	check_eq(number_of(row_named(rows, "label", "quarantined one"), "leases"), 1);
	json_decref(rows);
	child_kill(child);
	settle(c, s.clients == 1 && s.quarantined == 0 && s.leases == 0 && s.buffers == 0 &&
		      s.segments == 0);
	share_disconnect(c);
}

Test(quarantine, a_client_that_hangs_up_and_lives_keeps_its_memory_until_it_exits)
{
	expect_quarantine(HANGS_UP);
}

Test(quarantine, a_client_that_breaks_the_protocol_keeps_its_memory_until_it_exits)
{
	expect_quarantine(BREAKS_THE_PROTOCOL);
}

/* ------------------------------------------------------------------------------------------- */

static void released_but_still_maps(struct child *self, void *data)
{
	struct wire_message release = {.type = WIRE_RELEASE};
	struct raw r;

	(void)data;
	raw_open(&r, "mapping one");
	release.release.buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	release.release.count = 1;
	raw_ask(&r, &release, WIRE_DONE);
	raw_hang_up(&r);
	child_point(self, "hung up");
}

Test(quarantine, a_segment_that_may_still_be_mapped_is_quarantined_as_well)
{
	share_client *c = connect_as("witness");
	struct child *child = child_start(released_but_still_maps, NULL);

	child_wait(child, "hung up");
	settle(c, s.clients == 2 && s.quarantined == 1 && s.leases == 0 && s.buffers == 0);
	check(client_state_is(c, "mapping one", "quarantined"));
	child_kill(child);
	settle(c, s.clients == 1 && s.segments == 0);
	share_disconnect(c);
}

static void has_nothing(struct child *self, void *data)
{
	struct raw r;

	(void)data;
	raw_open(&r, "poor one");
	raw_hang_up(&r);
	child_point(self, "hung up");
}

Test(quarantine, a_client_that_hangs_up_with_nothing_is_gone_though_it_lives)
{
	share_client *c = connect_as("witness");
	struct child *child = child_start(has_nothing, NULL);

	child_wait(child, "hung up");
	settle(c, s.clients == 1 && s.quarantined == 0);
	child_go(child);
	child_finish(child);
	share_disconnect(c);
}

/* Its stream may go on: whoever waits for it waits, until it can do so no more. */
static void owes_work(struct child *self, void *data)
{
	struct wire_message publish = {.type = WIRE_PUBLISH};
	share_fence fence;
	struct raw r;

	(void)data;
	raw_open(&r, "debtor");
	fence = (share_fence){WIRE_TIMELINE(r.page_id, 7), 1};
	publish.publish.buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	publish.publish.name = raw_text("work");
	publish.publish.timeline = fence.timeline;
	publish.publish.value = fence.value;
	raw_ask(&r, &publish, WIRE_PUBLISHED);
	child_point_with(self, "published", &fence, sizeof(fence));
	raw_hang_up(&r);
	child_point(self, "hung up");
}

Test(quarantine, fences_of_a_quarantined_client_are_poisoned_when_it_exits_and_not_before)
{
	share_client *c = connect_as("witness");
	struct child *child = child_start(owes_work, NULL);
	share_host_stream *stream;
	share_fence fence;
	share_buffer *b;

	check_ok(share_host_stream_create(c, &stream));
	child_wait_with(child, "published", &fence, sizeof(fence));
	check_ok(share_lookup(c, "work", SHARE_RDONLY, 0, stream, &b));
	child_go(child);
	child_wait(child, "hung up");
	settle(c, s.quarantined == 1);
	check_error(share_fence_query(c, &fence), SHARE_EAGAIN);
	check_error(share_buffer_status(b), SHARE_EAGAIN);
	child_kill(child);
	check_error(share_fence_synchronize(c, &fence, -1), SHARE_EOWNERDEAD);
	check_error(share_buffer_status(b), SHARE_EOWNERDEAD);
	check_ok(share_host_stream_synchronize(stream));
	check_ok(share_release(b, stream));
	share_host_stream_destroy(stream);
	settle(c, s.clients == 1 && s.buffers == 0);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Goodbye                                                                                     */

static void says_goodbye(struct child *self, void *data)
{
	struct wire_message bye = {.type = WIRE_BYE}, publish = {.type = WIRE_PUBLISH};
	struct raw r;
	uint64_t pool;

	(void)data;
	raw_open(&r, "polite one");
	pool = raw_pool(&r, "default");
	for (int i = 0; i < 5000; i++)
		publish.publish.buffer = raw_alloc(&r, pool, 512);
	publish.publish.name = raw_text("name");
	raw_ask(&r, &publish, WIRE_PUBLISHED);
	child_point(self, "holding");
	raw_ask(&r, &bye, WIRE_DONE);
	child_point(self, "answered");
	check(raw_receive(&r, HARNESS_LIMIT_MS) == RAW_END);
	raw_hang_up(&r);
	child_point(self, "hung up");
}

Test(quarantine, goodbye_is_answered_once_everything_is_released)
{
	share_client *c = connect_as("witness");
	struct child *child = child_start(says_goodbye, NULL);
	struct status now;

	child_wait(child, "holding");
	settle(c, s.clients == 2 && s.leases == 5000 && s.names == 1);
	child_go(child);
	child_wait(child, "answered");
	/* not settled: this is so from the answer on, though the process lives */
	status_read(c, &now);
	check_eq(now.leases, 0);
	check_eq(now.buffers, 0);
	check_eq(now.names, 0);
	check_eq(now.quarantined, 0);
	child_go(child);
	child_wait(child, "hung up");
	settle(c, s.clients == 1);
	child_go(child);
	child_finish(child);
	share_disconnect(c);
}

Test(quarantine, a_disconnected_client_stays_as_long_as_a_buffer_of_it_is_held)
{
	share_client *c = connect_as("witness"), *other = connect_as("leaving one");
	share_pool *p = open_pool(other);
	share_buffer *b = allocate(p, 4096, NULL);

	share_pool_close(p);
	share_disconnect(other);
	memset(share_ptr(b), 1, share_size(b));
	settle(c, s.clients == 2 && s.leases == 1);
	check_ok(share_release(b, NULL));
	settle(c, s.clients == 1 && s.leases == 0 && s.segments == 0);
	share_disconnect(c);
}
