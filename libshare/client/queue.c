/* SPDX-License-Identifier: MIT */

/* What share_dispatch() has to run. */

#include <stdlib.h>
#include <sys/eventfd.h>

#include "base/system/descriptor.h"
#include "libshare/client/inside.h"

struct dispatch *dispatch_new(void)
{
	struct dispatch *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->epoll = d->wakeup = -1;
	TAILQ_INIT(&d->tasks);
	LIST_INIT(&d->operations);
	return d;
}

void dispatch_free(share_client *c)
{
	struct dispatch *d = c->dispatch;
	struct task *t;

	if (!d)
		return;
	while ((t = TAILQ_FIRST(&d->tasks))) {
		dispatch_unqueue(c, t);
		if (t->discard)
			t->discard(c, t);
	}
	fd_close(d->epoll);
	fd_close(d->wakeup);
	free(d);
	c->dispatch = NULL;
}

void dispatch_wake(share_client *c)
{
	if (c->dispatch->wakeup >= 0)
		eventfd_write(c->dispatch->wakeup, 1);
}

void dispatch_queue(share_client *c, struct task *t)
{
	struct dispatch *d = c->dispatch;

	t->queued = true;
	t->order = ++d->n_tasks;
	TAILQ_INSERT_TAIL(&d->tasks, t, link);
	dispatch_wake(c);
}

void dispatch_queue_urgent(share_client *c, struct task *t)
{
	c->dispatch->urgent = t;
	dispatch_queue(c, t);
}

void dispatch_unqueue(share_client *c, struct task *t)
{
	struct dispatch *d = c->dispatch;

	t->queued = false;
	if (d->urgent == t)
		d->urgent = NULL;
	TAILQ_REMOVE(&d->tasks, t, link);
}
