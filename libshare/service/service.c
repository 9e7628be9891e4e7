/* SPDX-License-Identifier: MIT */

/*
 * Services: what callers and workers have in common, their two channels. The halves are in
 * caller.c and worker.c.
 *
 * Each side opens first what it receives from the other's answers on: a caller can be answered as
 * soon as it can ask, and a worker can answer as soon as it can be asked.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/descriptor.h"
#include "libshare/buffer/buffer.h"
#include "libshare/program/error.h"
#include "libshare/program/range.h"
#include "libshare/program/struct.h"
#include "libshare/service/inside.h"

#define DEPTH_DEFAULT     16
#define MEMBERS_DEFAULT   64
#define REQUESTS_OF_CALL  4 /* of one caller, with those given up that no worker has seen yet */
#define ATTEMPTS_TO_OPEN  8
#define STALLS_ARE_NORMAL UINT32_MAX /* a worker works for as long as it takes */

int service_check(const share_service *s, int role)
{
	if (s->role != role)
		return fail(SHARE_EINVAL, "this is not a %s of the service",
			    role == SHARE_CALLER ? "caller" : "worker");
	return client_is_forked(s->client) ? fail_fork() : 0;
}

int service_resolve_as(share_service **s, int role)
{
	int r = service_resolve(s);

	return r != 0 ? r : service_check(*s, role);
}

int service_send(share_channel *ch, const struct channel_target *to, share_outgoing *m,
		 const void *tail, size_t tail_size, void *stream, int timeout_ms,
		 struct ring_fence *signalled)
{
	unsigned char few[SHARE_MESSAGE_DATA_MAX], *bytes = few;
	int r;

	if (m->data_size + tail_size > sizeof(few))
		bytes = malloc(m->data_size + tail_size);
	if (!bytes)
		return fail_system(-ENOMEM, "sending messages");
	if (m->data_size > 0)
		memcpy(bytes, m->data, m->data_size);
	memcpy(bytes + m->data_size, tail, tail_size);
	m->data = bytes;
	m->data_size += tail_size;
	r = channel_send(ch, to, m, 1, stream, timeout_ms, signalled);
	if (bytes != few)
		free(bytes);
	return r > 0 ? 0 : r;
}

int service_keep_given(share_channel *ch, share_outgoing *m, void *stream, bool *gives)
{
	int r = 0;

	*gives = m->flags & SHARE_OUTGOING_GIVE;
	if (*gives)
		r = channel_check_outgoing(ch, m, stream);
	m->flags &= ~(uint32_t)SHARE_OUTGOING_GIVE;
	return r;
}

void service_release_given(const share_outgoing *m, void *stream)
{
	DETAIL_STAYS;

	if (m->n_buffers == 0 && m->buffer)
		share_release(m->buffer, stream);
	for (uint32_t i = 0; i < m->n_buffers; i++)
		share_release(m->buffers[i], stream);
}

bool service_unpack(share_message *m, uint32_t most, void *tail, size_t tail_size)
{
	if (m->data_size < tail_size || m->data_size - tail_size > most)
		return false;
	m->data_size -= (uint32_t)tail_size;
	memcpy(tail, m->data + m->data_size, tail_size);
	return true;
}

int service_check_data(const share_service *s, const share_outgoing *m, const char *of)
{
	if (m->data_size > s->sends_max)
		return fail(SHARE_EINVAL,
			    "%s carries up to %u bytes of data, not %zu; up to %zu if all who open "
			    "the service say so (data_max)",
			    of, s->sends_max, m->data_size, CHANNEL_DATA_MAX - TAIL_MAX);
	if (m->data_size > 0 && !m->data)
		return fail(SHARE_EINVAL, "data is NULL, and its size %zu", m->data_size);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
	return value ? value : otherwise;
}

/* What the user has said, and nothing else. */
static share_channel_options said(const share_service_options *o, bool replies)
{
	share_channel_options c = SHARE_CHANNEL_OPTIONS_INIT;

	c.pool = o->pool;
	c.producers = replies ? o->workers : o->callers;
	c.consumers = replies ? o->callers : o->workers;
	c.depth = replies ? 0 : o->depth;
	c.deliveries = replies ? 0 : o->deliveries;
	c.stall_ms = STALLS_ARE_NORMAL;
	c.buffers = o->buffers;
	/* nobody gets less than those count on who say nothing */
	if (o->data_max > SHARE_REQUEST_DATA_MAX)
		c.data_max = o->data_max + (uint32_t)TAIL_MAX;
	return c;
}

/* Of buffers, by what a channel may have in flight at all. */
static uint64_t most_in_flight(const share_channel_options *c)
{
	const struct channel_shape shape = {.data_max = c->data_max, .buffers = c->buffers};
	size_t far = channel_far_size(&shape);

	return far > CHANNEL_FAR_MAX / CHANNEL_IN_FLIGHT_MAX ? CHANNEL_FAR_MAX / far
							     : CHANNEL_IN_FLIGHT_MAX;
}

/*
 * A caller has so many calls under way and answers not acknowledged at most, all of them perhaps
 * with one worker; so that is the depth of replies, and with as many for each caller none who does
 * not play by the rules is in the way of others. They are CALLS_MAX, or as many as there is room
 * for where each answer may have several buffers or many bytes.
 */
static uint32_t calls_of(const share_channel_options *c, uint32_t callers)
{
	uint64_t each = (uint64_t)callers * c->buffers, most = most_in_flight(c);
	uint32_t calls = CALLS_MAX;

	while (calls > 1 && calls * each > most)
		calls /= 2;
	return calls;
}

static void fill_in(share_channel_options *c, bool replies)
{
	uint64_t most;
	uint32_t calls;

	c->when_full = SHARE_FULL_BLOCK;
	c->data_max = or_default(c->data_max, SHARE_MESSAGE_DATA_MAX);
	c->buffers = or_default(c->buffers, 1);
	c->producers = or_default(c->producers, MEMBERS_DEFAULT);
	c->consumers = or_default(c->consumers, MEMBERS_DEFAULT);
	calls = calls_of(c, replies ? c->consumers : c->producers);
	c->depth = replies ? calls : or_default(c->depth, DEPTH_DEFAULT);
	c->in_flight = (replies ? c->consumers : REQUESTS_OF_CALL) * calls * c->buffers;
	most = most_in_flight(c);
	if (!replies && c->in_flight > most)
		c->in_flight = (uint32_t)most;
}

/* One answer at least for each caller, from one worker. */
static int check_room(const share_channel_options *c)
{
	uint64_t most = most_in_flight(c) / c->buffers;

	if (c->consumers <= most)
		return 0;
	return fail(SHARE_EINVAL,
		    "a service whose answers carry %u buffer%s and %u bytes of data has room for "
		    "%u callers at most, not %u: ask for fewer callers, buffers or data_max",
		    c->buffers, plural(c->buffers), c->data_max - (uint32_t)TAIL_MAX,
		    (uint32_t)most, c->consumers);
}

/* Takes the channel as it is, if there is one and it is not unlike what was said, or makes it. */
static int open_channel(share_client *c, const char *name, int role, const share_service_options *o,
			bool replies, share_channel **out)
{
	uint32_t mode = replies ? CHANNEL_DIRECT : CHANNEL_QUEUE;
	int r = SHARE_EEXIST;

	DETAIL_OF(r);
	/* somebody may make or end it in between */
	for (int i = 0; i < ATTEMPTS_TO_OPEN; i++) {
		share_channel_options options = said(o, replies);

		options.flags = SHARE_CHANNEL_EXISTING;
		r = channel_open(c, name, role, mode, &options, out);
		if (r != SHARE_ENOENT)
			return r;
		options.flags = 0;
		fill_in(&options, replies);
		if (replies && (r = check_room(&options)) != 0)
			return r;
		r = channel_open(c, name, role, mode, &options, out);
		if (r != SHARE_EEXIST)
			return r;
	}
	return r;
}

static int open_channels(share_service *s, const char *name, const share_service_options *o)
{
	char replies[SHARE_NAME_MAX + 1];
	bool calls = s->role == SHARE_CALLER;
	int r;

	snprintf(replies, sizeof(replies), "%s" REPLIES_NAME, name);
	r = open_channel(s->client, replies, calls ? SHARE_CONSUMER : SHARE_PRODUCER, o, true,
			 &s->replies);
	if (r == 0)
		r = open_channel(s->client, name, calls ? SHARE_PRODUCER : SHARE_CONSUMER, o, false,
				 &s->requests);
	return r;
}

static uint32_t data_max(const share_channel *ch)
{
	uint32_t most = channel_shape(ch)->data_max;

	return most > TAIL_MAX ? most - (uint32_t)TAIL_MAX : 0;
}

/* What both channels let it have. */
static void learn_limits(share_service *s)
{
	bool calls = s->role == SHARE_CALLER;
	uint32_t most = channel_shape(s->replies)->depth;

	s->sends_max = data_max(calls ? s->requests : s->replies);
	s->takes_max = data_max(calls ? s->replies : s->requests);
	if (most > channel_shape(s->requests)->in_flight)
		most = channel_shape(s->requests)->in_flight;
	s->calls_max = most < CALLS_MAX ? most : CALLS_MAX;
	for (s->n_free = 0; s->n_free < s->calls_max; s->n_free++)
		s->free[s->n_free] = (uint16_t)(s->calls_max - 1 - s->n_free);
}

/* Nobody is in a call about it. */
static void service_end(void *service)
{
	DETAIL_STAYS;
	share_service *s = service;

	/* what the program still has of a channel that was left is with other workers */
	if (s->role == SHARE_WORKER && s->requests)
		channel_visit_received(s->requests, service_before_ack, s);
	service_drop_before(s, true);
	/* of calls that were never finished */
	for (size_t i = 0; i < CALLS_MAX; i++)
		if (s->calls[i] && s->calls[i]->answer.channel)
			channel_ack_unused(&s->calls[i]->answer);
	if (s->requests)
		channel_close(s->requests);
	if (s->replies)
		channel_close(s->replies);
	fd_close(s->epoll);
	fd_close(s->others);
	fd_close(s->less);
	for (size_t i = 0; i < CALLS_MAX; i++)
		if (s->calls[i])
			hazard_end(s->calls[i], handle_free_ended);
	pthread_mutex_destroy(&s->lock);
	client_unref(s->client);
	handle_free(s);
}

/* Who waits in it comes back. Nobody finds it any more: not by its calls, nor by requests that a
 * worker still has, of which it is the channel's business now what becomes of them. */
static void give_up(share_service *s)
{
	pthread_mutex_lock(&s->lock);
	atomic_store(&s->given_up, true);
	for (size_t i = 0; i < CALLS_MAX; i++)
		if (s->calls[i])
			handle_end(s->calls[i]);
	for (size_t i = 0; i < BEFORE_MAX; i++)
		if (s->before[i])
			channel_drop_owner(s->before[i]);
	channel_end_waits(s->requests);
	if (s->role == SHARE_WORKER)
		channel_drop_owner(s->requests);
	else /* a worker does not wait there, and tells callers that there is no answer */
		channel_end_waits(s->replies);
	bell_ring(&s->arrived);
	pthread_mutex_unlock(&s->lock);
}

/* Before the channels say it, which call callers consumers, and workers producers. */
static int check_members(const char *what, uint32_t n)
{
	if (n <= CHANNEL_MEMBERS_MAX)
		return 0;
	return fail(SHARE_EINVAL, "a service has at most %d %s at a time, not %u",
		    CHANNEL_MEMBERS_MAX, what, n);
}

int share_service_open(share_client *c, const char *name, int role,
		       const share_service_options *options, share_service **out)
{
	RANGE("share_service_open", 0);
	HAZARDS;
	share_service_options o;
	share_service *s;
	int r = client_resolve(&c);

	if (r == 0 && !out)
		r = fail(SHARE_EINVAL, "out is NULL");
	if (r == 0)
		r = struct_in(share_service_options, &o, options);
	if (r != 0)
		return r;
	if (role != SHARE_CALLER && role != SHARE_WORKER)
		return fail(SHARE_EINVAL, "role %d is neither SHARE_CALLER nor SHARE_WORKER", role);
	r = name_check(name);
	if (r != 0 || (r = check_members("callers", o.callers)) != 0 ||
	    (r = check_members("workers", o.workers)) != 0)
		return r;
	if (o.data_max > CHANNEL_DATA_MAX - TAIL_MAX)
		return fail(SHARE_EINVAL, "requests and answers carry up to %zu bytes, not %u",
			    CHANNEL_DATA_MAX - TAIL_MAX, o.data_max);
	if (strlen(name) + strlen(REPLIES_NAME) > SHARE_NAME_MAX)
		return fail(SHARE_EINVAL, "the name of a service has at most %zu bytes",
			    SHARE_NAME_MAX - strlen(REPLIES_NAME));
	s = handle_new(HANDLE_SERVICE, sizeof(*s));
	if (!s)
		return fail_system(-ENOMEM, "opening a service");
	s->client = client_ref(c);
	s->role = role;
	s->epoll = s->others = s->less = -1;
	snprintf(s->name, sizeof(s->name), "%s", name);
	pthread_mutex_init(&s->lock, NULL);
	r = open_channels(s, name, &o);
	if (r != 0) {
		service_end(s);
		return r;
	}
	learn_limits(s);
	if (role == SHARE_CALLER) {
		channel_self(s->replies, &s->self);
		channel_set_came_back(s->requests, s, service_came_back);
	} else {
		channel_set_owner(s->requests, s, service_before_ack);
	}
	*out = handle_give(s);
	return 0;
}

void share_service_close(share_service *s)
{
	RANGE("share_service_close", 0);
	HAZARDS;

	s = service_take(s);
	if (!s)
		return;
	give_up(s);
	hazard_end(s, service_end);
}
