/* SPDX-License-Identifier: MIT */

/*
 * What the broker believes of a timeline that a GPU writes. When a process is killed, a value may
 * still be written though the work before it was never finished; so a value counts if it was seen
 * while its process had not begun to exit, or if that process said that all its work was done. The
 * owner is a process that does nothing; the test is its GPU.
 */

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "base/system/descriptor.h"
#include "broker/order/fence.h"

#define SLOT 3

static pid_t owner;
static struct timelines *timelines;
static struct timeline_page *page; /* as others see it */
static int pidfd;

static void start(void)
{
	owner = fork();
	cr_assert_geq(owner, 0);
	if (owner == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	pidfd = (int)syscall(SYS_pidfd_open, owner, 0);
	cr_assert_geq(pidfd, 0);
	cr_assert_eq(timelines_new(NULL, 1, 0, pidfd, NULL, &timelines), 0);
	cr_assert_eq(timeline_map(timelines->fd, false, &page), 0);
	timeline_set_by_gpu(timelines->page, SLOT, true);
}

static void stop(void)
{
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);
	timelines_unref(timelines);
	timeline_unmap(page);
	fd_close(pidfd);
}

TestSuite(broker_fence, .init = start, .fini = stop, .timeout = 30);

static void gpu_writes(uint32_t slot, uint64_t value)
{
	atomic_store(&timelines->page->slots[slot].value, value);
}

/* Dead, and not yet waited for: it has begun to exit, which is all that matters. */
static void kill_owner(void)
{
	siginfo_t info;

	cr_assert_eq(kill(owner, SIGKILL), 0);
	cr_assert_eq(waitid(P_PID, (id_t)owner, &info, WEXITED | WNOWAIT), 0);
}

static enum timeline_state query(uint32_t slot, uint64_t value)
{
	return fence_query(&(struct fence){timelines, value, slot});
}

/* The broker and everybody who has the page agree. */
static void expect(uint32_t slot, uint64_t value, enum timeline_state state)
{
	cr_assert_eq(query(slot, value), state);
	cr_assert_eq(timeline_query(page, slot, value), state);
}

Test(broker_fence, a_value_that_was_looked_at_while_its_owner_ran_counts_for_good)
{
	gpu_writes(SLOT, 5);
	timelines_look(timelines);
	kill_owner();
	timelines_kill(timelines, false);
	expect(SLOT, 5, TIMELINE_REACHED);
	expect(SLOT, 6, TIMELINE_DEAD);
}

Test(broker_fence, a_value_that_was_asked_for_while_its_owner_ran_counts_for_good)
{
	gpu_writes(SLOT, 5);
	cr_assert_eq(query(SLOT, 4), TIMELINE_REACHED);
	gpu_writes(SLOT, 6);
	kill_owner();
	timelines_kill(timelines, false);
	expect(SLOT, 4, TIMELINE_REACHED);
	expect(SLOT, 6, TIMELINE_DEAD);
}

/* Many may be behind values that were passed long ago: one look is enough for all of them. */
Test(broker_fence, asking_for_one_value_takes_note_of_how_far_the_gpu_has_got)
{
	gpu_writes(SLOT, 100);
	cr_assert_eq(query(SLOT, 1), TIMELINE_REACHED);
	kill_owner();
	cr_assert_eq(query(SLOT, 100), TIMELINE_REACHED);
	timelines_kill(timelines, false);
	expect(SLOT, 100, TIMELINE_REACHED);
	expect(SLOT, 101, TIMELINE_DEAD);
}

Test(broker_fence, a_value_that_nobody_looked_at_in_time_does_not_count)
{
	gpu_writes(SLOT, 5);
	kill_owner();
	timelines_kill(timelines, false);
	expect(SLOT, 1, TIMELINE_DEAD);
	expect(SLOT, 5, TIMELINE_DEAD);
}

Test(broker_fence, a_value_that_comes_late_does_not_count_however_often_it_is_looked_at)
{
	gpu_writes(SLOT, 5);
	timelines_look(timelines);
	kill_owner();
	gpu_writes(SLOT, 6);
	for (int i = 0; i < 5; i++) {
		timelines_look(timelines);
		cr_assert_eq(query(SLOT, 6), TIMELINE_PENDING);
		cr_assert_eq(query(SLOT, 5), TIMELINE_REACHED);
	}
	timelines_kill(timelines, false);
	expect(SLOT, 5, TIMELINE_REACHED);
	expect(SLOT, 6, TIMELINE_DEAD);
}

Test(broker_fence, what_the_owner_has_signaled_itself_counts_whenever_it_was)
{
	timeline_signal(timelines->page, SLOT + 1, 5);
	kill_owner();
	cr_assert_eq(query(SLOT + 1, 5), TIMELINE_REACHED);
	timelines_kill(timelines, false);
	expect(SLOT + 1, 5, TIMELINE_REACHED);
	expect(SLOT + 1, 6, TIMELINE_DEAD);
}

Test(broker_fence, what_was_written_before_a_goodbye_counts)
{
	gpu_writes(SLOT, 5);
	timelines_kill(timelines, true);
	expect(SLOT, 5, TIMELINE_REACHED);
	expect(SLOT, 6, TIMELINE_DEAD);
}

Test(broker_fence, looking_goes_on_as_long_as_gpus_may_write)
{
	cr_assert(timelines_look(timelines));
	gpu_writes(SLOT, 5);
	cr_assert(timelines_look(timelines));
	cr_assert(timelines_look(timelines));
	kill_owner();
	timelines_kill(timelines, false);
	cr_assert_not(timelines_look(timelines));
}

Test(broker_fence, a_late_value_does_not_open_a_gate_and_the_death_does)
{
	struct fence fence = {timelines_ref(timelines), 5, SLOT};
	struct fence_set *gate = fence_set_add(NULL, &fence);

	kill_owner();
	gpu_writes(SLOT, 5);
	gate = fence_set_prune(gate);
	cr_assert_eq(fence_set_size(gate), 1);
	timelines_kill(timelines, false);
	gate = fence_set_prune(gate);
	cr_assert_null(gate);
}

/* Looking for a value that is there already, or is no GPU's, takes no descriptor. */
Test(broker_fence, a_look_that_finds_nothing_new_asks_nothing_about_the_process)
{
	timeline_signal(timelines->page, SLOT + 1, 5);
	cr_assert(timelines_look(timelines));
	cr_assert_lt(timelines->stat, 0);
	gpu_writes(SLOT, 5);
	cr_assert(timelines_look(timelines));
	cr_assert_geq(timelines->stat, 0);
}

/* A file that says nothing stands for a /proc that hides processes, where a look believes what the
 * look before has seen. There may be none before: it was another broker's. */
Test(broker_fence, what_is_believed_stays_so_when_the_next_look_has_seen_nothing_before)
{
	gpu_writes(SLOT, 5);
	cr_assert_eq(query(SLOT, 5), TIMELINE_REACHED);
	timelines->stat = fd_close(timelines->stat);
	timelines->stat = open("/dev/null", O_RDONLY | O_CLOEXEC);
	cr_assert_geq(timelines->stat, 0);
	gpu_writes(SLOT, 6);
	cr_assert(timelines_look(timelines));
	kill_owner();
	timelines_kill(timelines, false);
	expect(SLOT, 5, TIMELINE_REACHED);
	expect(SLOT, 6, TIMELINE_DEAD);
}
