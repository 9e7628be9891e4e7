/* SPDX-License-Identifier: MIT */

/*
 * Requests and replies over one socket, for any number of threads. Whoever waits for a reply reads
 * for all: it takes the role of the reader, delivers what comes until its own reply is there, and
 * passes the role on. With a single thread that is one send and one receive, and no wake-up.
 */

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "libshare/client/inside.h"
#include "libshare/client/room.h"
#include "libshare/program/range.h"
#include "wire/packet.h"

/* ------------------------------------------------------------------------------------------- */
/* Reading                                                                                     */

static void do_chores_unlocking(share_client *c);

static void lose(share_client *c, int r)
{
	if (c->lost)
		return;
	c->connection->hung_up = r == -EPIPE;
	/* part of what was sent is lost then: the kernel drops the descriptors without room */
	if (r == -EMSGSIZE)
		client_mark_lost(c,
				 "descriptors from the broker found no room in this process, "
				 "and are lost: raise its limit (ulimit -n) and connect again");
	else
		client_mark_lost(c,
				 "the broker is gone: give up what was had by this connection, "
				 "and connect again");
}

/* Takes the role of the reader for one packet. @events: also return when the socket is ready for
 * this (POLLOUT). False when there was none. */
static bool read_one_unlocking(share_client *c, bool wait, short events)
{
	size_t size = WIRE_PACKET_MAX;
	struct fd_list fds = {.n = 0};
	int r;

	c->connection->reading = true;
	pthread_mutex_unlock(&c->lock);
	if (wait && events) {
		struct pollfd p = {.fd = c->connection->socket, .events = (short)(POLLIN | events)};

		poll(&p, 1, -1);
		wait = false;
	}
	r = packet_receive(c->connection->socket, c->connection->packet, &size, &fds, wait);
	pthread_mutex_lock(&c->lock);
	if (r == 0)
		connection_deliver(c, c->connection->packet, size, &fds);
	else if (r != -EAGAIN)
		lose(c, r);
	fd_list_close(&fds);
	c->connection->reading = false;
	bell_ring(&c->arrived);
	do_chores_unlocking(c);
	return r == 0;
}

static void poll_unlocking(share_client *c)
{
	DETAIL_STAYS;
	struct pollfd p = {.fd = c->connection->socket, .events = POLLIN};

	while (!c->connection->reading && !c->lost && poll(&p, 1, 0) > 0)
		read_one_unlocking(c, false, 0);
}

void rpc_poll(share_client *c)
{
	pthread_mutex_lock(&c->lock);
	poll_unlocking(c);
	pthread_mutex_unlock(&c->lock);
}

int rpc_tell_loss(share_client *c, int epoll)
{
	struct epoll_event hung_up = {.events = EPOLLET};

	return epoll_ctl(epoll, EPOLL_CTL_ADD, c->connection->socket, &hung_up) < 0 ? -errno : 0;
}

void rpc_read_rest(share_client *c)
{
	pthread_mutex_lock(&c->lock);
	while (c->lost) {
		if (c->connection->reading) /* it comes to the end, or just has */
			bell_wait(&c->arrived, &c->lock, -1);
		else if (!read_one_unlocking(c, false, 0))
			break;
	}
	pthread_mutex_unlock(&c->lock);
}

/* ------------------------------------------------------------------------------------------- */
/* Sending                                                                                     */

/*
 * The broker stops reading from a client that does not read its replies. So a send that would
 * block must not keep replies from being read: it reads them itself, or lets the reader go on.
 */
static int transmit_unlocking(share_client *c, const void *packet, size_t size,
			      const struct fd_list *fds)
{
	for (;;) {
		int r;

		if (c->lost)
			return client_lost(c);
		r = packet_send(c->connection->socket, packet, size, fds ? fds->fds : NULL,
				fds ? fds->n : 0, false);
		if (r == 0)
			return 0;
		if (fds && r == -EPERM)
			return fail(SHARE_EAGAIN, "the broker lets in no descriptors");
		if (fds && r == -ETOOMANYREFS)
			return fail_system(r, "sending descriptors");
		if (r != -EAGAIN) {
			/* what it said last may still be there to read */
			poll_unlocking(c);
			lose(c, -EPIPE);
			return client_lost(c);
		}
		if (!c->connection->reading) {
			read_one_unlocking(c, true, POLLOUT);
		} else {
			struct pollfd p = {.fd = c->connection->socket, .events = POLLOUT};

			pthread_mutex_unlock(&c->lock);
			poll(&p, 1, 10);
			pthread_mutex_lock(&c->lock);
		}
	}
}

static int send_unlocking(share_client *c, const struct wire_message *m, const struct fd_list *fds)
{
	unsigned char small[2048], *large = NULL;
	size_t size = wire_encode(m, small, sizeof(small));
	int r;

	if (size == 0) {
		large = malloc(WIRE_PACKET_MAX);
		if (!large)
			return fail_system(-ENOMEM, "sending a message");
		size = wire_encode(m, large, WIRE_PACKET_MAX);
	}
	if (size == 0)
		r = fail(SHARE_EINVAL, "an argument is larger than the protocol allows");
	else
		r = transmit_unlocking(c, large ? large : small, size, fds);
	free(large);
	return r;
}

int rpc_send_unlocking(share_client *c, struct wire_message *m)
{
	return send_unlocking(c, m, NULL);
}

int rpc_send_later(share_client *c, const struct wire_message *m)
{
	struct connection *n = c->connection;
	struct wire_message *grown = realloc(n->later, (n->n_later + 1) * sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	n->later = grown;
	n->later[n->n_later++] = *m;
	rpc_leave_chore(c);
	return 0;
}

void rpc_leave_chore(share_client *c)
{
	atomic_store(&c->connection->chores, true);
}

/* False: some are for later. */
static bool let_rooms_do_chores(share_client *c)
{
	bool all = true;

	for (size_t i = 0; client_rooms[i]; i++)
		if (client_rooms[i]->do_chores && !client_rooms[i]->do_chores(c))
			all = false;
	return all;
}

/* What came up while a message was delivered. Sending may read, and that may leave more to do:
 * whoever comes first does all. */
static void do_chores_unlocking(share_client *c)
{
	struct connection *n = c->connection;
	bool all = true;

	if (n->doing_chores)
		return;
	DETAIL_STAYS;
	n->doing_chores = true;
	while (atomic_exchange(&n->chores, false)) {
		pthread_mutex_unlock(&c->lock);
		all = let_rooms_do_chores(c);
		pthread_mutex_lock(&c->lock);
		while (n->n_later > 0 && !c->lost) {
			struct wire_message m = n->later[--n->n_later];

			rpc_send_unlocking(c, &m);
		}
	}
	n->doing_chores = false;
	if (!all)
		rpc_leave_chore(c);
}

void rpc_do_chores(share_client *c)
{
	if (!atomic_load(&c->connection->chores))
		return;
	pthread_mutex_lock(&c->lock);
	do_chores_unlocking(c);
	pthread_mutex_unlock(&c->lock);
}

int rpc_send(share_client *c, struct wire_message *m)
{
	int r;

	pthread_mutex_lock(&c->lock);
	r = rpc_send_unlocking(c, m);
	pthread_mutex_unlock(&c->lock);
	return r;
}

static void note_what_is_wanted(struct call *call, const struct wire_message *m)
{
	call->wanted_mode = m->type == WIRE_ALLOC    ? SHARE_RDWR
			    : m->type == WIRE_LOOKUP ? m->lookup.mode
			    : m->type == WIRE_IMPORT ? m->import.mode
						     : 0;
	call->wanted_size = m->type == WIRE_ALLOC ? m->alloc.size : 0;
}

int rpc_start_unlocking(share_client *c, struct wire_message *request, struct call *call)
{
	int r;

	/* a look-up may wait for as long as it takes the serials to come round */
	do
		request->serial = ++c->connection->last_serial;
	while (request->serial == 0 || call_find(c, request->serial));
	call->serial = request->serial;
	call->expected = wire_describe(request->type)->reply;
	note_what_is_wanted(call, request);
	call->done = false;
	/* before it is sent: another thread may read the answer */
	LIST_INSERT_HEAD(&c->connection->calls, call, link);
	r = send_unlocking(c, request, call->fds);
	if (r != 0 && !call->done)
		LIST_REMOVE(call, link);
	return r;
}

static int result(share_client *c, const struct call *call)
{
	if (call->error == SHARE_EDISCONNECTED && c->lost)
		return client_lost(c);
	return call->error ? fail_remote(call->error, call->detail) : 0;
}

/* Takes the role of the reader for as long as that, or until @w, if not NULL, is woken. */
static void read_in_time_unlocking(share_client *c, struct waiter *w, int timeout_ms)
{
	struct pollfd p = {.fd = c->connection->socket, .events = POLLIN};

	c->connection->reading = true;
	pthread_mutex_unlock(&c->lock);
	if (w)
		waiter_poll_with(w, &p, 1, timeout_ms);
	else
		poll(&p, 1, timeout_ms);
	pthread_mutex_lock(&c->lock);
	c->connection->reading = false;
	if (p.revents)
		read_one_unlocking(c, false, 0);
	else
		bell_ring(&c->arrived);
}

int rpc_wait_until_unlocking(share_client *c, struct call *call, int64_t deadline)
{
	while (!call->done) {
		int left = deadline_left(deadline);

		if (c->connection->reading && left != 0)
			bell_wait(&c->arrived, &c->lock, left);
		else if (left < 0)
			read_one_unlocking(c, true, 0);
		else if (!c->connection->reading)
			read_in_time_unlocking(c, NULL, left);
		if (left == 0 && !call->done)
			return 1;
	}
	return result(c, call);
}

/* By when @request is to be answered: one that waits for others by when these have had their time.
 */
static int64_t answer_deadline(const share_client *c, const struct wire_message *request)
{
	const struct connection *n = c->connection;

	if (n->answer_by >= 0 || n->patience_ms < 0)
		return n->answer_by;
	if (request->type == WIRE_MONITOR && request->monitor.timeout >= 0)
		return deadline_from(n->patience_ms) + request->monitor.timeout;
	return wire_describe(request->type)->flags & WIRE_WAITS_FOR_OTHERS
		   ? -1
		   : deadline_from(n->patience_ms);
}

/* Who has not answered by then is not asked again: its answer could not be told from the next one.
 */
static int answered_by_unlocking(share_client *c, int r, int64_t began)
{
	if (r != 1)
		return r;
	client_mark_lost(c, "the broker has not answered in time");
	return fail_silent(c->connection->address, c->connection->socket,
			   (int64_t)clock_ms() - began);
}

/* It is answered at once then, as that it was taken back or as it would have been. */
static void take_back_unlocking(share_client *c, const struct call *call)
{
	struct wire_message m = {.type = WIRE_CANCEL, .cancel = {.lookup = call->serial}};

	rpc_send_unlocking(c, &m);
}

/* What is due meanwhile. The caller has no other lock. */
static void run_urgent(share_client *c)
{
	struct task *urgent = c->dispatch->urgent;

	if (!urgent)
		return;
	dispatch_unqueue(c, urgent);
	urgent->run(c, urgent);
}

/*
 * For an answer that may take as long as others like. Whoever ends the wait wakes the waiter, which
 * takes the request back itself: a handler of a signal could not do that where the socket is full.
 * @w is in both its places before it looks whether the wait is over.
 */
static int wait_as_unlocking(share_client *c, struct call *call, struct waiter *w, bool of_client,
			     int64_t deadline)
{
	bool ends = false;
	int left;

	while (!call->done && (left = deadline_left(deadline)) != 0) {
		uint32_t count = atomic_load(&c->arrived.count);

		if (w && !ends) {
			atomic_store(&w->bell, &c->arrived);
			waiter_at_poll(w);
			ends = wait_is_over(c, of_client);
			if (ends) {
				take_back_unlocking(c, call);
				continue;
			}
		}
		if (c->connection->reading)
			bell_wait_from(&c->arrived, count, &c->lock,
				       ends ? left : wait_sleep_ms(left));
		else if ((w && !ends) || left >= 0)
			read_in_time_unlocking(c, ends ? NULL : w, left);
		else
			read_one_unlocking(c, true, 0);
		run_urgent(c);
	}
	if (!call->done)
		return 1;
	/* nobody else takes it back */
	return ends && call->error == SHARE_ECANCELED ? wait_why_over(c, of_client)
						      : result(c, call);
}

static int wait_for_others_unlocking(share_client *c, struct call *call, uint32_t type,
				     int64_t deadline)
{
	bool of_client = type == WIRE_LOOKUP || type == WIRE_MONITOR;
	struct waiter *w = waiter_take(c);
	int r;

	if (w)
		atomic_store(&w->of_client, of_client);
	/* without a descriptor it is not interrupted */
	r = wait_as_unlocking(c, call, w && waiter_can_poll(w) ? w : NULL, of_client, deadline);
	if (w)
		waiter_give_back(w);
	return r;
}

int rpc(share_client *c, struct wire_message *request, struct reply *reply)
{
	return rpc_with_fds(c, request, NULL, reply);
}

int rpc_with_fds(share_client *c, struct wire_message *request, const struct fd_list *fds,
		 struct reply *reply)
{
	RANGE(wire_describe(request->type)->name, 0);
	struct call call = {.reply = reply, .fds = fds};
	int64_t deadline, began;
	int r;

	if (reply)
		*reply = (struct reply){.packet = NULL};
	if (client_is_forked(c))
		return fail_fork();
	call.detail[0] = '\0';
	pthread_mutex_lock(&c->lock);
	deadline = answer_deadline(c, request);
	r = rpc_start_unlocking(c, request, &call);
	began = (int64_t)clock_coarse_ms();
	if (r == 0 && wire_describe(request->type)->flags & WIRE_WAITS_FOR_OTHERS)
		r = wait_for_others_unlocking(c, &call, request->type, deadline);
	else if (r == 0)
		r = rpc_wait_until_unlocking(c, &call, deadline);
	r = answered_by_unlocking(c, r, began);
	pthread_mutex_unlock(&c->lock);
	return r;
}
