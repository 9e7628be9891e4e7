/* SPDX-License-Identifier: MIT */

/* Processes that have been told to end. Waited for by their pidfd, as the loop does for clients. */

#include "broker/device/child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <event2/event.h>

#include "broker/broker.h"
#include "broker/device/device.h"
#include "broker/journal/journal.h"
#include "broker/keeper/kept.h"
#include "broker/log/log.h"

static const struct timeval soon = {0, 20000};

static void forget(struct child *c)
{
	LIST_REMOVE(c, link);
	event_free(c->end);
	journal_drop(c->broker->journal, &c->record);
	kept_close(c->pidfd);
	free(c);
}

static void collect(struct child *c)
{
	int status = 0;

	/* one that an earlier broker has started is its keeper's to collect */
	if (waitpid(c->pid, &status, WNOHANG) == c->pid) {
		if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
			log_warning("agent pid %d was killed by signal %d (%s)", (int)c->pid,
				    WTERMSIG(status), strsignal(WTERMSIG(status)));
		else if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
			log_warning("agent pid %d ended with exit code %d", (int)c->pid,
				    WEXITSTATUS(status));
	}
	forget(c);
}

static void on_end(evutil_socket_t fd, short what, void *data)
{
	(void)fd, (void)what;
	collect(data);
}

struct child *child_new(struct broker *b)
{
	struct child *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->broker = b;
	c->pidfd = -1;
	/* before there is a process, so that telling one to end needs no memory */
	c->end = event_new(b->base, -1, 0, on_end, c);
	if (!c->end) {
		free(c);
		return NULL;
	}
	return c;
}

void child_free(struct child *c)
{
	event_free(c->end);
	free(c);
}

struct child_record {
	int32_t pid;
	uint32_t pidfd; /* as the keeper has it */
};

/* Without a keeper there is nobody whom it would help. */
static void note(struct child *c)
{
	const struct child_record r = {c->pid, kept_id(c->pidfd)};

	if (r.pidfd)
		journal_put(c->broker->journal, RECORD_CHILD, &c->record, &r, sizeof(r));
}

static void watch(struct child *c)
{
	event_assign(c->end, c->broker->base, c->pidfd, EV_READ, on_end, c);
	c->is_watched = event_add(c->end, NULL) == 0;
	if (!c->is_watched)
		broker_set_timer(c->broker, c->broker->catch_up, &soon);
	LIST_INSERT_HEAD(&c->broker->devices->children, c, link);
}

void child_end(struct child *c)
{
	syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, 0);
	watch(c);
	note(c);
}

static bool has_ended(const struct child *c)
{
	struct pollfd p = {c->pidfd, POLLIN, 0};

	return poll(&p, 1, 0) > 0 && p.revents & POLLIN;
}

bool child_has_ended(const struct broker *b, pid_t pid)
{
	const struct child *c;

	LIST_FOREACH (c, &b->devices->children, link)
		if (c->pid == pid)
			return has_ended(c);
	return true;
}

void children_look(struct broker *b)
{
	struct child *c, *next;

	for (c = LIST_FIRST(&b->devices->children); c; c = next) {
		next = LIST_NEXT(c, link);
		if (c->is_watched)
			continue;
		if (has_ended(c)) {
			collect(c);
			continue;
		}
		LIST_REMOVE(c, link);
		watch(c);
	}
}

unsigned children_count(const struct broker *b)
{
	const struct child *c;
	unsigned n = 0;

	LIST_FOREACH (c, &b->devices->children, link)
		n++;
	return n;
}

void children_note(struct broker *b)
{
	struct child *c;

	LIST_FOREACH (c, &b->devices->children, link)
		note(c);
}

void children_forget(struct broker *b)
{
	while (!LIST_EMPTY(&b->devices->children))
		forget(LIST_FIRST(&b->devices->children));
}

/* ------------------------------------------------------------------------------------------- */

static int read_child(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct broker *b = data;
	struct child_record r;
	struct child *c;

	(void)size;
	memcpy(&r, bytes, sizeof(r));
	c = child_new(b);
	if (!c)
		return -ENOMEM;
	c->pid = r.pid;
	c->pidfd = kept_take(r.pidfd);
	if (r.pid <= 0 || c->pidfd < 0) {
		child_free(c);
		return -EBADMSG;
	}
	c->record = record;
	/* the one that died had perhaps not come so far */
	syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, 0);
	watch(c);
	return 0;
}

int children_restore(struct broker *b)
{
	return journal_read(b->journal, RECORD_CHILD, sizeof(struct child_record), read_child, b);
}
