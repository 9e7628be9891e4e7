/* SPDX-License-Identifier: MIT */

/* Running what is queued, and the descriptor by which an event loop learns of it. */

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/system/descriptor.h"
#include "libshare/client/inside.h"
#include "libshare/client/room.h"

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
