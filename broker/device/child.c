/* SPDX-License-Identifier: MIT */

/* Children that have been told to end. Waited for by their pidfd, as the loop does for clients. */

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/descriptor.h"
#include "broker/broker.h"
#include "broker/device/child.h"
#include "broker/device/device.h"
#include "broker/log/log.h"

struct child {
	LIST_ENTRY(child) link;
	pid_t pid;
	int pidfd;
	struct event *end;
};

static void forget(struct child *c)
{
	LIST_REMOVE(c, link);
	if (c->end)
		event_free(c->end);
	fd_close(c->pidfd);
	free(c);
}

static void on_end(evutil_socket_t fd, short what, void *data)
{
	struct child *c = data;
	int status = 0;

	(void)fd, (void)what;
	if (waitpid(c->pid, &status, WNOHANG) == c->pid) {
		if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
			log_warning("agent pid %d was killed by signal %d (%s)", (int)c->pid,
				    WTERMSIG(status), strsignal(WTERMSIG(status)));
		else if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
			log_warning("agent pid %d ended with code %d", (int)c->pid,
				    WEXITSTATUS(status));
	}
	forget(c);
}

void child_collect(struct broker *b, pid_t pid)
{
	struct child *c = calloc(1, sizeof(*c));

	/* without memory or descriptors it stays a zombie until the broker ends */
	if (!c)
		return;
	c->pid = pid;
	c->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	LIST_INSERT_HEAD(&b->devices->children, c, link);
	if (c->pidfd >= 0)
		c->end = event_new(b->base, c->pidfd, EV_READ, on_end, c);
	if (!c->end || event_add(c->end, NULL) < 0)
		forget(c);
}

bool child_has_ended(pid_t pid)
{
	siginfo_t info = {.si_pid = 0};

	/* ended and yet to be collected, or (ECHILD) collected already */
	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	       info.si_pid == pid;
}

unsigned children_count(const struct broker *b)
{
	const struct child *c;
	unsigned n = 0;

	LIST_FOREACH (c, &b->devices->children, link)
		n++;
	return n;
}

void children_forget(struct broker *b)
{
	while (!LIST_EMPTY(&b->devices->children))
		forget(LIST_FIRST(&b->devices->children));
}
