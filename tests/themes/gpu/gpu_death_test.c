/* SPDX-License-Identifier: MIT */

/*
 * Rule 6 on CUDA streams: who dies releases everybody who waits for it, and they are told; its
 * memory is used again once its pidfd has fired. What its GPU signaled while it was being killed
 * does not count, what was signaled well before does.
 */

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "libshare/client/inside.h"
#include "tests/harness/descriptors.h"
#include "tests/harness/fixture.h"
#include "tests/support/gpu_work.h"

TestSuite(gpu_death, .init = gpu_work_start, .fini = gpu_work_stop, .timeout = 60);

enum { NEVER, SOON }; /* gates: one that stays closed while anybody lives who waits for it */

static void publish_for_good(share_buffer *b, void *stream)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;

	options.flags = SHARE_PUBLISH_PERSISTENT;
	check_ok(share_publish_with(b, "work", &options, stream, NULL));
}

static void gives_and_never_finishes(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_fence fence;
	share_buffer *b;
	void *stream;

	(void)data;
	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	gpu_fill(stream, b, 5);
	gpu_hold(stream, NEVER);
	gpu_fill(stream, b, 6);
	publish_for_good(b, stream);
	check_ok(share_fence_record(c, 0, stream, &fence));
	child_point_with(self, "given", &fence, sizeof(fence));
}

static void tell(int status, void *data)
{
	*(int *)data = status;
}

Test(gpu_death, rule_6_a_stream_that_waits_for_a_producer_that_is_killed_goes_on_and_is_told)
{
	int told = 1;
	struct child *victim = child_start(gives_and_never_finishes, NULL);
	share_buffer *b, *none = NULL;
	share_fence fence;
	void *stream;

	child_wait_with(victim, "given", &fence, sizeof(fence));
	gpu_use();
	stream = gpu_stream();
	check_ok(share_lookup(gpu_client, "work", SHARE_RDWR, 0, stream, &b));
	check_eq(gpu_ordered(b), SHARE_ORDERED_ON_STREAM);
	gpu_fill(stream, b, 7);
	gpu_expect_held(stream, NEVER);
	check_error(share_buffer_status(b), SHARE_EAGAIN);
	check_ok(share_buffer_watch(b, tell, &told, NULL));
	check_eq(share_dispatch(gpu_client), 0);
	child_kill(victim);
	gpu_wait(stream);
	check(!gpu_is_open(NEVER));
	check_error(share_buffer_status(b), SHARE_EOWNERDEAD);
	until((share_dispatch(gpu_client), told != 1));
	check_error(told, SHARE_EOWNERDEAD);
	check_error(share_fence_query(gpu_client, &fence), SHARE_EOWNERDEAD);
	check_error(share_fence_wait(gpu_client, &fence, 0, stream), SHARE_EOWNERDEAD);
	check_error(share_lookup(gpu_client, "work", SHARE_RDONLY, 0, stream, &none),
		    SHARE_EOWNERDEAD);
	check(none == NULL);
	check_eq(gpu_stats(gpu_client).parked, 0);
	check_ok(share_unpublish(gpu_client, "work"));
	check_ok(share_release(b, stream));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
}

static void releases_and_never_finishes(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_buffer *b;
	void *stream;

	(void)data;
	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	gpu_hold(stream, NEVER);
	check_ok(share_release(b, stream));
	child_point(self, "released");
}

Test(gpu_death, rule_6_a_former_user_that_is_killed_gates_its_block_no_more)
{
	struct child *victim = child_start(releases_and_never_finishes, NULL);
	share_buffer *b;
	void *stream;

	child_wait(victim, "released");
	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(gpu_client, stream);
	check_eq(gpu_ordered(b), SHARE_ORDERED_ON_STREAM);
	gpu_fill(stream, b, 7);
	gpu_expect_held(stream, NEVER);
	child_kill(victim);
	gpu_wait(stream);
	check_ok(share_release(b, stream));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
}

/* ------------------------------------------------------------------------------------------- */
/* Memory of those who do not give it back                                                     */

static void holds_and_works(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_fence fence;
	share_buffer *b;
	void *stream;

	(void)data;
	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	gpu_hold(stream, NEVER);
	gpu_fill(stream, b, 6);
	check_ok(share_fence_record(c, 0, stream, &fence));
	child_point_with(self, "working", &fence, sizeof(fence));
	/* as somebody might who closes descriptors that it does not know */
	shutdown(client_of(c)->connection->socket, SHUT_RDWR);
	child_point(self, "hung up");
}

Test(gpu_death, rule_6_memory_of_who_hangs_up_with_work_running_is_kept_until_it_is_dead)
{
	struct child *victim = child_start(holds_and_works, NULL);
	share_buffer *b = NULL;
	share_fence fence;
	void *stream;

	child_wait_with(victim, "working", &fence, sizeof(fence));
	check_error(share_fence_query(gpu_client, &fence), SHARE_EAGAIN);
	check_error(share_alloc(gpu_pool, GPU_BLOCK, NULL, &b), SHARE_ENOMEM);
	child_go(victim);
	child_wait(victim, "hung up");
	settle(gpu_client, s.quarantined == 1 && s.buffers == 1 && s.leases == 1);
	check_error(share_alloc(gpu_pool, GPU_BLOCK, NULL, &b), SHARE_ENOMEM);
	check(b == NULL);
	check_error(share_fence_query(gpu_client, &fence), SHARE_EAGAIN);
	child_kill(victim);
	settle(gpu_client, s.quarantined == 0 && s.buffers == 0);
	check_error(share_fence_query(gpu_client, &fence), SHARE_EOWNERDEAD);
	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(gpu_client, stream);
	check_eq(gpu_ordered(b), SHARE_ORDERED_NOTHING);
	gpu_fill(stream, b, 7);
	gpu_wait(stream);
	check_ok(share_release(b, stream));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
}

/* ------------------------------------------------------------------------------------------- */
/* What the dead had done                                                                      */

static void gives_and_waits(struct child *self, void *data)
{
	bool *goodbye = data;
	share_client *c = child_connect("giver");
	share_fence fence;
	share_buffer *b;
	void *stream;

	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	gpu_hold(stream, SOON);
	gpu_fill(stream, b, 8);
	publish_for_good(b, stream);
	check_ok(share_fence_record(c, 0, stream, &fence));
	child_point_with(self, "given", &fence, sizeof(fence));
	gpu_wait(stream);
	if (*goodbye) {
		check_ok(share_release(b, stream));
		share_disconnect(c);
	}
	child_point(self, "done");
}

static void expect_good_data(bool goodbye)
{
	struct child *giver = child_start(gives_and_waits, &goodbye);
	struct gpu_reading *reading;
	share_buffer *b, *again;
	share_fence fence;
	void *stream;

	child_wait_with(giver, "given", &fence, sizeof(fence));
	gpu_use();
	stream = gpu_stream();
	check_ok(share_lookup(gpu_client, "work", SHARE_RDONLY, 0, stream, &b));
	reading = gpu_read(stream, b);
	check_error(share_fence_query(gpu_client, &fence), SHARE_EAGAIN);
	gpu_open(SOON);
	child_go(giver);
	child_wait(giver, "done");
	if (!goodbye) {
		/* who asks while it lives knows it for good: this process, and the broker */
		check_ok(share_buffer_status(b));
		check_ok(share_lookup(gpu_client, "work", SHARE_RDONLY, 0, stream, &again));
		check_eq(gpu_ordered(again), SHARE_ORDERED_NOTHING);
		check_ok(share_release(again, stream));
	}
	child_kill(giver);
	settle(gpu_client, s.clients == 1);
	gpu_wait(stream);
	gpu_expect(reading, 8);
	check_ok(share_buffer_status(b));
	check_ok(share_lookup(gpu_client, "work", SHARE_RDONLY, 0, stream, &again));
	check_ok(share_buffer_status(again));
	if (goodbye)
		check_ok(share_fence_query(gpu_client, &fence));
	check_ok(share_unpublish(gpu_client, "work"));
	check_ok(share_release(again, stream));
	check_ok(share_release(b, stream));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
}

Test(gpu_death, rule_6_data_that_was_known_to_be_done_before_its_giver_was_killed_stays_good)
{
	expect_good_data(false);
}

Test(gpu_death, rule_6_data_of_a_giver_that_said_goodbye_is_good_at_once)
{
	expect_good_data(true);
}

static void signals_at_death(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_fence fence;
	share_buffer *b;
	void *stream;

	(void)data;
	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	gpu_hold(stream, SOON);
	publish_for_good(b, stream);
	check_ok(share_fence_record(c, 0, stream, &fence));
	child_point_with(self, "given", &fence, sizeof(fence));
}

/* Between the value and the end of its writer nobody looks, so nobody can know what came first. */
Test(gpu_death, rule_6_a_value_that_came_right_before_the_death_does_not_count)
{
	struct child *victim = child_start(signals_at_death, NULL);
	share_fence fence;
	share_buffer *b;
	void *stream;

	child_wait_with(victim, "given", &fence, sizeof(fence));
	gpu_use();
	stream = gpu_stream();
	check_ok(share_lookup(gpu_client, "work", SHARE_RDONLY, 0, stream, &b));
	broker_freeze();
	gpu_open(SOON);
	gpu_wait(stream); /* released by the value, as the broker cannot poison it */
	child_kill(victim);
	broker_thaw();
	settle(gpu_client, s.clients == 1);
	check_error(share_buffer_status(b), SHARE_EOWNERDEAD);
	check_error(share_fence_query(gpu_client, &fence), SHARE_EOWNERDEAD);
	check_ok(share_unpublish(gpu_client, "work"));
	check_ok(share_release(b, stream));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
}

/* ------------------------------------------------------------------------------------------- */

#define PRODUCERS 80
#define EARLY     70 /* from then on no more pages of the dead are kept */

static int count_pages(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int n = 0;

	check(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "memfd:share-timeline") != NULL;
	fclose(maps);
	return n;
}

static void consumes_from_many(struct child *self, void *data)
{
	share_client *c = child_connect("consumer");
	int descriptors = 0, pages = 0;
	void *stream;

	(void)data;
	gpu_use();
	stream = gpu_stream();
	for (int i = 0; i < PRODUCERS; i++) {
		share_buffer *b;

		child_point(self, "next");
		check_ok(share_lookup(c, "work", SHARE_RDONLY, 0, stream, &b));
		check_eq(gpu_ordered(b), SHARE_ORDERED_ON_STREAM);
		if (i == EARLY) {
			descriptors = descriptors_count(0);
			pages = count_pages();
		}
		child_point(self, "waiting");
		gpu_wait(stream);
		check_ok(share_release(b, stream));
		gpu_wait(stream);
		check_eq(gpu_stats(c).parked, 0);
		/* there is room again for the next one */
		settle(c, s.segments == 0);
	}
	check(descriptors_count(0) <= descriptors && descriptors < EARLY);
	check(count_pages() <= pages);
	gpu_stream_destroy(stream);
	share_disconnect(c);
}

Test(gpu_death, rule_6_a_stream_that_outlives_its_producers_keeps_little_of_theirs)
{
	struct child *consumer = child_start(consumes_from_many, NULL);

	for (int i = 0; i < PRODUCERS; i++) {
		struct child *victim;
		share_fence fence;

		child_wait(consumer, "next");
		victim = child_start(gives_and_never_finishes, NULL);
		child_wait_with(victim, "given", &fence, sizeof(fence));
		child_go(consumer);
		child_wait(consumer, "waiting");
		child_kill(victim);
		check_ok(share_unpublish(gpu_client, "work"));
		child_go(consumer);
	}
	child_finish(consumer);
}
