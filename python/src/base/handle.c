/* SPDX-License-Identifier: MIT */

/*
 * Handles of the library under Python objects. The library does not allow a program to give up a
 * handle while a call uses it. But a Python program may close an object in one thread while another
 * thread waits with it, or in a callback. So each call without the GIL counts as a user of the
 * handle, and a handle that was closed is given up when its last user leaves.
 *
 * A forked child gives nothing up, because everything belongs to its parent.
 */

#include <pthread.h>

#include "python/src/base/object.h"

static unsigned generation;

static void forked(void)
{
	generation++;
}

unsigned process_generation(void)
{
	static bool watching;

	if (!watching) {
		pthread_atfork(NULL, NULL, forked);
		watching = true;
	}
	return generation;
}

void handle_init(struct handle *h, const char *what, void *p, void (*give_up)(void *))
{
	*h = (struct handle){
	    .p = p, .what = what, .generation = process_generation(), .give_up = give_up};
}

bool handle_is_open(const struct handle *h)
{
	return h->p && !h->closed;
}

bool handle_is_usable(const struct handle *h)
{
	return handle_is_open(h) && h->generation == generation;
}

PyObject *handle_refuse(const struct handle *h)
{
	if (h->generation == generation || !handle_is_open(h))
		return raise_closed(h->what ? h->what : "object");
	PyErr_Format(error_class(SHARE_EFORK),
		     "%s: this process was forked from the one that made the %s; it has to connect "
		     "itself",
		     share_strerror(SHARE_EFORK), h->what);
	return NULL;
}

void *handle_enter(struct handle *h)
{
	if (!handle_is_usable(h)) {
		handle_refuse(h);
		return NULL;
	}
	h->users++;
	return h->p;
}

static void end_handle(struct handle *h)
{
	void *p = h->p;

	h->p = NULL;
	if (p && h->generation == generation)
		UNLOCKED(h->give_up(p));
}

bool handle_leave(struct handle *h, int r)
{
	bool good = no_error(r);

	if (--h->users == 0 && h->closed)
		end_handle(h);
	return good;
}

void handle_close(struct handle *h)
{
	bool was = h->closed;

	h->closed = true;
	if (h->users == 0)
		end_handle(h);
	else if (!was && h->waits && h->generation == generation)
		share_wake_early(h->waits);
}
