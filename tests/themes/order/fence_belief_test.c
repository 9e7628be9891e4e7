/* SPDX-License-Identifier: MIT */

/*
 * Which of a GPU's signals are believed. A process that is killed may have a value written on its
 * way out, though the work before it never finished; so a value counts if it was there while its
 * owner had not begun to exit. The owner here has no GPU: it marks its timeline, and writes itself.
 */

#include <fcntl.h>
#include <sys/resource.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

static share_client *client;

static void start(void)
{
	fixture_start();
	client = connect_as("asker");
}

static void stop(void)
{
	if (!check_has_failed())
		share_disconnect(client);
	fixture_stop();
}

TestSuite(fence_belief, .init = start, .fini = stop, .timeout = 60);

enum { ONE = 5, OTHER = 6 }; /* slots */

/* In three steps: it is there and has given its work away; it has written the other value; it has
 * poisoned the one slot, as the broker does first. */
static void writes_as_a_gpu(struct child *self, void *data)
{
	struct wire_message m = {.type = WIRE_PUBLISH};
	share_fence fences[2];
	struct raw r;

	(void)data;
	raw_open(&r, "victim");
	fences[0] = (share_fence){WIRE_TIMELINE(r.page_id, ONE), 1};
	fences[1] = (share_fence){WIRE_TIMELINE(r.page_id, OTHER), 1};
	timeline_set_by_gpu(r.page, ONE, true);
	timeline_set_by_gpu(r.page, OTHER, true);
	m.publish.buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	m.publish.timeline = fences[1].timeline;
	m.publish.value = fences[1].value;
	m.publish.name = raw_text("work");
	raw_ask(&r, &m, WIRE_PUBLISHED);
	child_point_with(self, "given", fences, sizeof(fences));
	atomic_store(&r.page->slots[OTHER].value, 1);
	child_point(self, "written");
	atomic_store(&r.page->slots[ONE].value, TIMELINE_POISON);
	child_point(self, "poisoned");
}

static struct child *victim_start(share_fence fences[2])
{
	struct child *victim = child_start(writes_as_a_gpu, NULL);

	child_wait_with(victim, "given", fences, 2 * sizeof(fences[0]));
	check_error(share_fence_query(client, &fences[0]), SHARE_EAGAIN);
	check_error(share_fence_query(client, &fences[1]), SHARE_EAGAIN);
	child_go(victim);
	child_wait(victim, "written");
	return victim;
}

/* ------------------------------------------------------------------------------------------- */
/* Where /proc does not show the owner, for want of a descriptor to open it with                */

static int without_proc(int (*ask)(const share_fence *fence), const share_fence *fence)
{
	struct rlimit before, none;
	int r, n = 0;

	while (fcntl(n, F_GETFD) >= 0)
		n++;
	check_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){(rlim_t)n, before.rlim_max};
	check_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	check(open("/proc/self/stat", O_RDONLY | O_CLOEXEC) < 0);
	r = ask(fence);
	check_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	return r;
}

static int query(const share_fence *fence)
{
	return share_fence_query(client, fence);
}

static int synchronize(const share_fence *fence)
{
	return share_fence_synchronize(client, fence, -1);
}

Test(fence_belief, what_was_written_right_before_a_death_does_not_count_though_proc_hides_the_owner)
{
	share_fence fences[2];
	struct child *victim = victim_start(fences);

	broker_freeze();
	check_error(without_proc(query, &fences[1]), SHARE_EAGAIN);
	child_kill(victim);
	check_error(without_proc(query, &fences[1]), SHARE_EAGAIN);
	until(query(&fences[1]) == SHARE_EOWNERDEAD);
	broker_thaw();
}

Test(fence_belief, what_the_living_have_signaled_is_reached_soon_though_proc_hides_them)
{
	share_fence fences[2];
	struct child *victim = victim_start(fences);

	check_ok(without_proc(synchronize, &fences[1]));
	/* and for good */
	child_kill(victim);
	check_ok(query(&fences[1]));
	settle(client, s.clients == 1);
	check_ok(query(&fences[1]));
}

/* ------------------------------------------------------------------------------------------- */

static void find(void)
{
	share_client *other = connect_as("other");
	share_buffer *b;

	check_ok(share_lookup(other, "work", SHARE_RDONLY, 0, NULL, &b));
	check_ok(share_release(b, NULL));
	share_disconnect(other);
}

/* The broker poisons one slot after the other; and it may know better what was reached. */
Test(fence_belief, one_timeline_of_the_dead_is_not_judged_by_another)
{
	share_fence fences[2];
	struct child *victim = victim_start(fences);

	find(); /* so that the broker knows that the work was done */
	broker_freeze();
	child_go(victim);
	child_wait(victim, "poisoned");
	child_kill(victim);
	check_error(query(&fences[0]), SHARE_EOWNERDEAD);
	check_error(query(&fences[1]), SHARE_EAGAIN);
	broker_thaw();
	until(query(&fences[1]) == 0);
	check_error(query(&fences[0]), SHARE_EOWNERDEAD);
}
