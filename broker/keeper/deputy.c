/* SPDX-License-Identifier: MIT */

#include "broker/keeper/deputy.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process.h"

/* As large as that of any process: what a deputy forks when it is keeper runs on it, a whole
 * broker. */
#define STACK_SIZE (8 * 1024 * 1024)
/* Of pages of any size. Below it there is what the keeper knows. */
#define GUARD_SIZE (64 * 1024)

/* One is the deputy's, and the other one, if it is used at all, that of a deputy that goes on as
 * keeper. A process has them from its start, so that no memory is needed for the next deputy. */
static char stacks[2][STACK_SIZE] __attribute__((aligned(GUARD_SIZE)));
static unsigned next_stack;

static struct {
	int pidfd;
	void (*go_on)(void);
} watch;

/* As long as the keeper lives, this changes nothing that the two have in common: errno, for one, is
 * the same variable. poll() of one valid descriptor without a time limit, all signals being
 * blocked, does not fail. */
static int stand_by(void *nothing)
{
	struct pollfd dead = {watch.pidfd, POLLIN, 0};

	(void)nothing;
	while (!(dead.revents & POLLIN))
		poll(&dead, 1, -1);
	next_stack = !next_stack;
	watch.go_on();
	return 0;
}

pid_t deputy_start(int pidfd, void (*go_on)(void))
{
	pid_t pid;

	if (PROCESS_IS_INSTRUMENTED)
		return -ENOTSUP;
	watch.pidfd = pidfd;
	watch.go_on = go_on;
	mprotect(stacks[next_stack], GUARD_SIZE, PROT_NONE);
	pid = clone(stand_by, stacks[next_stack] + STACK_SIZE,
		    CLONE_VM | CLONE_FILES | CLONE_FS | SIGCHLD, NULL);
	return pid < 0 ? -errno : pid;
}
