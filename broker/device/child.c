/* SPDX-License-Identifier: MIT */

/* Processes that have been told to end. The loop waits for them by their pidfd, as it does for
 * clients. */

#include "broker/device/child.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/system/process.h"
#include "broker/broker.h"
#include "broker/client/records.h"
#include "broker/device/device.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/keeper/kept.h"
#include "broker/log/log.h"

#define SOON_MS 20

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

	/* a process that an earlier broker has started is the keeper's to collect */
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

/* Makes the event before there is a process, so that telling one to end needs no memory. */
static bool make_timer(struct broker *b, struct child *c)
{
	c->broker = b;
	c->end = event_new(b->base, -1, 0, on_end, c);
	return c->end;
}

struct child *child_new(struct broker *b)
{
	struct child *c = calloc(1, sizeof(*c));

	if (!c || !make_timer(b, c)) {
		free(c);
		return NULL;
	}
	c->pidfd = -1;
	return c;
}

void child_free(struct child *c)
{
	event_free(c->end);
	free(c);
}

static void watch(struct child *c)
{
	event_assign(c->end, c->broker->base, c->pidfd, EV_READ, on_end, c);
	c->is_watched = event_add(c->end, NULL) == 0;
	if (!c->is_watched)
		broker_set_timer(c->broker, c->broker->catch_up, SOON_MS);
	LIST_INSERT_HEAD(&c->broker->devices->children, c, link);
}

static void child_fields(struct record *r, void *object)
{
	struct child *c = object;

	record_i32(r, &c->pid);
	record_fd(r, &c->pidfd);
}

static void kill_and_watch(struct child *c)
{
	syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, 0);
	watch(c);
}

static int child_attach(struct broker *b, void *object)
{
	struct child *c = object;

	if (c->pid <= 0 || c->pidfd < 0)
		return -EBADMSG;
	if (!make_timer(b, c))
		return -ENOMEM;
	/* the broker that died had perhaps not come so far */
	kill_and_watch(c);
	return 0;
}

const struct object_kind child_kind = OBJECT_KIND(RECORD_CHILD, "process that was an agent",
						  struct child, child_fields, child_attach);

/* Notes a child. Without a keeper there is nobody whom that would help. */
static void note(struct child *c)
{
	if (kept_id(c->pidfd))
		object_put(c->broker->journal, &child_kind, c);
}

void child_end(struct child *c)
{
	kill_and_watch(c);
	note(c);
}

bool child_has_ended(const struct broker *b, pid_t pid)
{
	const struct child *c;

	LIST_FOREACH (c, &b->devices->children, link)
		if (c->pid == pid)
			return process_has_ended(c->pidfd);
	return true;
}

void children_look(struct broker *b)
{
	struct child *c, *next;

	for (c = LIST_FIRST(&b->devices->children); c; c = next) {
		next = LIST_NEXT(c, link);
		if (c->is_watched)
			continue;
		if (process_has_ended(c->pidfd)) {
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
