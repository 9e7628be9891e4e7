/* SPDX-License-Identifier: MIT */

/* What share_dispatch() has to run, and the descriptor by which an event loop learns of it. */

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/descriptor.h"
#include "libshare/client/inside.h"
#include "libshare/client/room.h"

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

/* ------------------------------------------------------------------------------------------- */

/* With the client's lock held. */
static int make_descriptor(share_client *c)
{
	_cleanup_fd_ int epoll = epoll_create1(EPOLL_CLOEXEC);
	_cleanup_fd_ int wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct epoll_event in = {.events = EPOLLIN};
	struct dispatch *d = c->dispatch;

	if (epoll < 0 || wakeup < 0 ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, c->connection->socket, &in) < 0 ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, wakeup, &in) < 0)
		return fail_system(-errno, "making a descriptor for the event loop");
	d->epoll = epoll;
	d->wakeup = wakeup;
	epoll = wakeup = -1;
	if (!TAILQ_EMPTY(&d->tasks) || c->connection->ends_by)
		eventfd_write(d->wakeup, 1);
	return 0;
}

int share_get_fd(share_client *c)
{
	HAZARDS;
	int r = client_resolve(&c);

	if (r != 0)
		return r;
	pthread_mutex_lock(&c->lock);
	if (c->dispatch->epoll < 0)
		r = make_descriptor(c);
	if (r == 0)
		r = c->dispatch->epoll;
	pthread_mutex_unlock(&c->lock);
	return r;
}

static int run_tasks(share_client *c)
{
	struct dispatch *d = c->dispatch;
	struct task *t;
	uint64_t last;
	eventfd_t ignored;
	int n = 0;

	pthread_mutex_lock(&c->lock);
	if (d->wakeup >= 0)
		eventfd_read(d->wakeup, &ignored);
	/* what callbacks cause is for the next time, or this would never end */
	last = d->n_tasks;
	while ((t = TAILQ_FIRST(&d->tasks)) && t->order <= last) {
		dispatch_unqueue(c, t);
		t->run(c, t);
		n++;
	}
	if (d->wakeup >= 0 && !TAILQ_EMPTY(&d->tasks))
		eventfd_write(d->wakeup, 1);
	if (n == 0 && c->lost)
		n = client_lost(c);
	pthread_mutex_unlock(&c->lock);
	return n;
}

int share_dispatch(share_client *c)
{
	HAZARDS;
	int n = client_resolve(&c);

	if (n != 0)
		return n;
	client_ref(c); /* a callback may give up the last handle */
	rpc_poll(c);
	for (size_t i = 0; client_rooms[i]; i++)
		if (client_rooms[i]->dispatch)
			client_rooms[i]->dispatch(c);
	n = run_tasks(c);
	client_unref(c);
	return n;
}
