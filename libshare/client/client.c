/* SPDX-License-Identifier: MIT */

/* The life of a client, what it has to dispatch, and what happens when the broker is lost. */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "libshare/buffer/buffer.h"
#include "libshare/buffer/magazine.h"
#include "libshare/buffer/reclaim.h"
#include "libshare/buffer/segment.h"
#include "libshare/client/client.h"
#include "libshare/client/embedded.h"
#include "libshare/client/error.h"
#include "libshare/order/gpu_late.h"
#include "libshare/order/gpu_stream.h"
#include "libshare/order/parked.h"
#include "libshare/order/timeline.h"

#define GUARD_SIZE 4096

int client_start_thread(pthread_t *out, const pthread_attr_t *attributes,
			void *(*function)(void *data), void *data)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(out, attributes, function, data);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

share_client *client_ref(share_client *c)
{
	atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
	return c;
}

bool client_is_lost(share_client *c)
{
	bool lost;

	pthread_mutex_lock(&c->lock);
	lost = c->lost;
	pthread_mutex_unlock(&c->lock);
	return lost;
}

int client_lost(share_client *c)
{
	return fail(SHARE_EDISCONNECTED, "%s", c->lost_detail);
}

void client_mark_lost(share_client *c, const char *why)
{
	struct call *call;

	if (c->lost)
		return;
	c->lost = true;
	snprintf(c->lost_detail, sizeof(c->lost_detail), "%s", why);
	/* nothing more is said or heard; the descriptor stays, as event loops poll it */
	shutdown(c->socket, SHUT_RDWR);
	while ((call = LIST_FIRST(&c->calls))) {
		LIST_REMOVE(call, link);
		call->error = SHARE_EDISCONNECTED;
		call->done = true;
		if (call->answered)
			call->answered(c, call, NULL, SHARE_EDISCONNECTED);
	}
	reclaims_lost_locked(c);
	pthread_cond_broadcast(&c->arrived);
}

void client_queue_event(share_client *c, struct event *e)
{
	e->queued = true;
	e->order = ++c->n_events;
	TAILQ_INSERT_TAIL(&c->events, e, link);
	if (c->wakeup >= 0)
		eventfd_write(c->wakeup, 1);
}

void client_unqueue_event(share_client *c, struct event *e)
{
	e->queued = false;
	TAILQ_REMOVE(&c->events, e, link);
}

/* ------------------------------------------------------------------------------------------- */

share_client *client_new(void)
{
	share_client *c = handle_new(HANDLE_CLIENT, sizeof(*c));

	if (!c)
		return NULL;
	c->packet = malloc(WIRE_PACKET_MAX);
	c->guard =
	    mmap(NULL, GUARD_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!c->packet || c->guard == MAP_FAILED) {
		if (c->guard != MAP_FAILED)
			munmap(c->guard, GUARD_SIZE);
		free(c->packet);
		handle_free(c);
		return NULL;
	}
	madvise(c->guard, GUARD_SIZE, MADV_WIPEONFORK);
	*c->guard = 1;
	atomic_init(&c->refs, 1);
	c->socket = c->epoll = c->wakeup = -1;
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->uses, NULL);
	LIST_INIT(&c->magazines);
	pthread_cond_init(&c->arrived, NULL);
	LIST_INIT(&c->calls);
	TAILQ_INIT(&c->events);
	LIST_INIT(&c->watches);
	LIST_INIT(&c->operations);
	LIST_INIT(&c->channels);
	LIST_INIT(&c->reclaims);
	LIST_INIT(&c->retired);
	TAILQ_INIT(&c->ahead);
	LIST_INIT(&c->peers);
	LIST_INIT(&c->streams);
	c->slots_used[0] = 1; /* 0 is no timeline */
	return c;
}

void client_free(share_client *c)
{
	bool parked = parked_forget(c);
	struct event *e;

	while ((e = TAILQ_FIRST(&c->events))) {
		TAILQ_REMOVE(&c->events, e, link);
		e->discard(c, e);
	}
	segments_done(c);
	peers_done(c, parked);
	gpu_late_done(c);
	gpu_stream_done(c, parked);
	if (!parked)
		timeline_unmap(c->page);
	fd_close(c->epoll);
	fd_close(c->wakeup);
	fd_close(c->socket);
	embedded_stop(c->embedded);
	pthread_cond_destroy(&c->arrived);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->uses);
	munmap(c->guard, GUARD_SIZE);
	free(c->later);
	free(c->address);
	free(c->packet);
	handle_free(c);
}

void client_unref(share_client *c)
{
	struct wire_message bye = {.type = WIRE_BYE};

	if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) > 1)
		return;
	/* its GPUs may still use what it has: then it stays mapped, and the broker keeps it for
	 * this process until that ends */
	if (atomic_load(&c->unsettled) || !gpu_stream_finish(c)) {
		shutdown(c->socket, SHUT_RDWR);
		return;
	}
	/* nothing may be mapped any more when the broker takes our word for it */
	segments_done(c);
	if (!c->embedded) /* which ends now, and everything with it */
		rpc(c, &bye, NULL);
	client_free(c);
}

void share_disconnect(share_client *c)
{
	c = handle_take(c, HANDLE_CLIENT);
	if (!c)
		return;
	if (client_is_forked(c)) {
		handle_keep(c);
		return;
	}
	operations_abandon(c);
	magazines_end(c);
	client_unref(c);
}

const char *share_address(share_client *c)
{
	c = handle_find(c, HANDLE_CLIENT);
	return c ? c->address : NULL;
}

int share_ping(share_client *c)
{
	struct wire_message ping = {.type = WIRE_PING};
	int r = client_resolve(&c);

	return r != 0 ? r : rpc(c, &ping, NULL);
}

int share_get_fd(share_client *c)
{
	struct epoll_event in = {.events = EPOLLIN};
	int r = client_resolve(&c);

	if (r != 0)
		return r;
	pthread_mutex_lock(&c->lock);
	if (c->epoll < 0) {
		_cleanup_fd_ int epoll = epoll_create1(EPOLL_CLOEXEC);
		_cleanup_fd_ int wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

		if (epoll < 0 || wakeup < 0 ||
		    epoll_ctl(epoll, EPOLL_CTL_ADD, c->socket, &in) < 0 ||
		    epoll_ctl(epoll, EPOLL_CTL_ADD, wakeup, &in) < 0) {
			r = fail_system(-errno, "making a descriptor for the event loop");
		} else {
			c->epoll = epoll;
			c->wakeup = wakeup;
			epoll = wakeup = -1;
			if (!TAILQ_EMPTY(&c->events))
				eventfd_write(c->wakeup, 1);
		}
	}
	if (r == 0)
		r = c->epoll;
	pthread_mutex_unlock(&c->lock);
	return r;
}

int share_dispatch(share_client *c)
{
	struct event *e;
	uint64_t last;
	eventfd_t ignored;
	int n = client_resolve(&c);

	if (n != 0)
		return n;
	client_ref(c); /* a callback may give up the last handle */
	pthread_mutex_lock(&c->lock);
	rpc_poll_locked(c);
	pthread_mutex_unlock(&c->lock);
	buffers_cooled(c, false);
	pthread_mutex_lock(&c->lock);
	if (c->wakeup >= 0)
		eventfd_read(c->wakeup, &ignored);
	/* what callbacks cause is for the next time, or this would never end */
	last = c->n_events;
	while ((e = TAILQ_FIRST(&c->events)) && e->order <= last) {
		client_unqueue_event(c, e);
		e->run(c, e);
		n++;
	}
	if (c->wakeup >= 0 && !TAILQ_EMPTY(&c->events))
		eventfd_write(c->wakeup, 1);
	if (n == 0 && c->lost)
		n = client_lost(c);
	pthread_mutex_unlock(&c->lock);
	client_unref(c);
	return n;
}
