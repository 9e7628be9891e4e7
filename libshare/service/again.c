/* SPDX-License-Identifier: MIT */

/*
 * A consumer of a channel is left behind when it owes something to too many producers that are gone
 * (a worker that was stopped while callers came, had no answer, and went). A service that is opens
 * its channel again by itself: its program never learns of it.
 *
 * Of the channel that was left the program may still have messages, and other threads may be about
 * to look into it. So it is held until there are none, and closed then.
 */

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "base/system/descriptor.h"
#include "libshare/buffer/buffer.h"
#include "libshare/program/error.h"
#include "libshare/service/inside.h"

static share_channel **incoming_of(share_service *s)
{
	return s->role == SHARE_CALLER ? &s->replies : &s->requests;
}

share_channel *service_hold_incoming(share_service *s)
{
	share_channel *ch;

	pthread_mutex_lock(&s->lock);
	ch = *incoming_of(s);
	channel_hold(ch);
	pthread_mutex_unlock(&s->lock);
	return ch;
}

/* 0, or negative errno. */
static int control(share_service *s, int what, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events};

	return epoll_ctl(s->epoll, what, fd, &event) == 0 ? 0 : -errno;
}

/* Of the channel that we consume: a caller without calls has nothing to receive. */
static uint32_t watched(const share_service *s)
{
	return s->role == SHARE_CALLER && s->n_waiting == 0 ? 0 : EPOLLIN;
}

/* In place of what we consume, or that itself. Where there is no descriptor, it is known still
 * whether calls were refused. */
static int watch(share_service *s, share_channel *ch)
{
	int fd, r = 0;

	if (s->epoll >= 0) {
		fd = channel_get_fd(ch);
		if (fd < 0)
			return fd;
		r = control(s, EPOLL_CTL_ADD, fd, watched(s));
	}
	if (r == 0 && s->role == SHARE_CALLER)
		r = channel_tell_of_less(ch, s->less, *incoming_of(s));
	return r == 0 ? 0 : fail_system(r, "opening a channel again");
}

void service_watch_replies_locked(share_service *s)
{
	if (s->epoll >= 0)
		control(s, EPOLL_CTL_MOD, channel_get_fd(s->replies), watched(s));
}

void service_tell_locked(share_service *s, int more)
{
	bool before = s->n_told > 0;
	eventfd_t ignored;

	s->n_told += (uint32_t)more;
	if (s->others < 0 || before == (s->n_told > 0))
		return;
	if (before)
		eventfd_read(s->others, &ignored);
	else
		eventfd_write(s->others, 1);
}

static int add_what_starts_wait_for(share_service *s)
{
	int r = control(s, EPOLL_CTL_ADD, channel_get_room_fd(s->requests), EPOLLIN);

	s->less = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (r == 0)
		r = s->less >= 0 ? control(s, EPOLL_CTL_ADD, s->less, EPOLLIN) : -errno;
	return r;
}

/* With the lock held, as the other one. 0 or an error. */
static int make_descriptor_locked(share_service *s)
{
	int r = 0;

	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->others = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->epoll < 0 || s->others < 0)
		r = -errno;
	if (r == 0)
		r = control(s, EPOLL_CTL_ADD, s->others, EPOLLIN);
	if (r == 0 && s->role == SHARE_CALLER)
		r = add_what_starts_wait_for(s);
	if (r != 0)
		r = fail_system(r, "making a descriptor for a service");
	if (r == 0)
		r = watch(s, *incoming_of(s));
	if (r != 0) {
		s->epoll = fd_close(s->epoll);
		s->others = fd_close(s->others);
		s->less = fd_close(s->less);
		return r;
	}
	if (s->n_told > 0)
		eventfd_write(s->others, 1);
	return 0;
}

/* As it is: it lasts as long as we are in it. */
static int open_as_it_is(share_service *s, share_channel **out)
{
	const struct channel_shape *shape = channel_shape(*incoming_of(s));
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	char name[SHARE_NAME_MAX + sizeof(REPLIES_NAME)];
	bool caller = s->role == SHARE_CALLER;

	options.flags = SHARE_CHANNEL_EXISTING;
	options.stall_ms = UINT32_MAX;
	/* what its program has said before, who had to */
	if (channel_far_size(shape) > 0) {
		options.buffers = channel_buffers(shape);
		options.data_max = shape->data_max;
	}
	snprintf(name, sizeof(name), "%s%s", s->name, caller ? REPLIES_NAME : "");
	return channel_open(s->client, name, SHARE_CONSUMER,
			    caller ? CHANNEL_DIRECT : CHANNEL_QUEUE, &options, out);
}

static share_channel **place_for_old(share_service *s)
{
	for (size_t i = 0; i < BEFORE_MAX; i++)
		if (!s->before[i])
			return &s->before[i];
	return NULL;
}

/* With the lock held, so that of several threads one does it. The others find it done. */
static int open_again_locked(share_service *s, share_channel *old)
{
	share_channel **incoming = incoming_of(s), **place = place_for_old(s), *new;
	int r;

	if (*incoming != old)
		return 0;
	/* its waits have been ended, and the new one's would not be */
	if (atomic_load(&s->given_up))
		return wait_given_up();
	if (!place)
		return fail(SHARE_ESTALE,
			    "this member of the service was left behind %d times and has messages "
			    "of each time: give some up",
			    BEFORE_MAX + 1);
	r = open_as_it_is(s, &new);
	if (r != 0)
		return r;
	r = watch(s, new);
	if (r != 0) {
		channel_close(new);
		return r;
	}
	if (s->role == SHARE_WORKER) {
		channel_set_owner(new, s, service_before_ack);
	} else {
		channel_self(new, &s->self);
		channel_tell_of_less(old, -1, NULL);
	}
	if (s->epoll >= 0)
		control(s, EPOLL_CTL_DEL, channel_get_fd(old), 0);
	channel_hold(old);
	channel_close(old);
	*place = old;
	*incoming = new;
	return 0;
}

int service_open_again(share_service *s, share_channel *old)
{
	int r;

	service_drop_before(s, false);
	pthread_mutex_lock(&s->lock);
	r = open_again_locked(s, old);
	pthread_mutex_unlock(&s->lock);
	return r;
}

void service_drop_before(share_service *s, bool all)
{
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < BEFORE_MAX; i++) {
		share_channel *ch = s->before[i];

		if (!ch || (!all && channel_held(ch) > 1))
			continue;
		channel_drop_owner(ch);
		s->before[i] = NULL;
		channel_let_go(ch);
	}
	pthread_mutex_unlock(&s->lock);
}

/* The same one, however often the channel is opened again. */
int share_service_get_fd(share_service *s)
{
	HAZARDS;
	int r = service_resolve(&s);

	if (r != 0)
		return r;
	pthread_mutex_lock(&s->lock);
	if (s->epoll < 0)
		r = make_descriptor_locked(s);
	pthread_mutex_unlock(&s->lock);
	return r != 0 ? r : s->epoll;
}
