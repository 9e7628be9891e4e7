/* SPDX-License-Identifier: MIT */

/*
 * The end of the broker, seen by a thread of its own. The main thread sees it when it receives the
 * next request, which is too late for one that waits for a driver that hangs: nobody is left then
 * who would kill it. It is not for the kernel to kill it with its parent either (PR_SET_PDEATHSIG),
 * as it is to outlive the broker that has started it, if that has a keeper.
 */

#include <poll.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/system/thread.h"

/* The main thread has this long to end by itself. */
#define GRACE_S 1

static void *watch(void *data)
{
	struct pollfd p = {.fd = (int)(intptr_t)data, .events = 0};
	struct timespec grace = {.tv_sec = GRACE_S};

	while (poll(&p, 1, -1) <= 0 || !(p.revents & (POLLHUP | POLLERR)))
		;
	nanosleep(&grace, NULL);
	_exit(0);
}

int watch_broker(int socket)
{
	return thread_start_detached(watch, (void *)(intptr_t)socket);
}
