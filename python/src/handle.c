/* SPDX-License-Identifier: MIT */

/*
 * A handle of the library's must not be given up while a call uses it. Python programs may do so
 * all the same: close in one thread what another one waits with, or in a callback. So whoever calls
 * without the GIL says so, and a handle that is closed meanwhile goes when the last of them is
 * back.
 *
 * In a forked child nothing is given up: it is all the parent's.
 */

#include <pthread.h>

#include "python/src/core.h"

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

bool handle_is_usable(const struct handle *h)
{
	return h->p && !h->closed && h->generation == generation;
}

PyObject *handle_refuse(const struct handle *h)
{
	if (h->generation == generation)
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

static void end(struct handle *h)
{
	void *p = h->p;

	h->p = NULL;
	if (p && h->generation == generation)
		UNLOCKED(h->give_up(p));
}

void handle_leave(struct handle *h)
{
	if (--h->users == 0 && h->closed)
		end(h);
}

void handle_close(struct handle *h)
{
	h->closed = true;
	if (h->users == 0)
		end(h);
}
