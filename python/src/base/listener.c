/* SPDX-License-Identifier: MIT */

/*
 * A signal sets a mark of Python's, and interrupts the system call in which its thread sleeps, if
 * it does. So it ends no wait of a thread that is about to sleep, or that was woken for a moment to
 * look whether its wait is over, nor that of the main thread while another one has got the signal.
 * But Python also writes the signal's number to a descriptor (signal.set_wakeup_fd()). While the
 * main thread waits that is one of ours, and a thread of ours reads there, ends the wait, and
 * passes the number on to whose descriptor it was before, as asyncio's.
 *
 * A process that is forked meanwhile has the pipe, too: so the thread is told to end, as the end of
 * the pipe would come with that process, and the child lets go of it, as its signals are not ours.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "python/src/base/args.h"

#define FAILED (-2) /* and no descriptor, as -1 is none that is set */

/* The number of no signal: the thread ends. */
static const unsigned char last_number;

struct listener {
	struct listener *outer; /* of the wait whose handler waits now; NULL: there is none */
	share_waits *waits;
	int from, to; /* the ends of a pipe; -1: this process was forked, and has let go of them */
	int before;   /* the descriptor that was set; -1: none */
	unsigned generation;
	atomic_bool heard;
	pthread_t thread;
};

static struct listener *innermost;
static PyObject *set_wakeup_fd;

bool listener_ready(void)
{
	PyObject *module = PyImport_ImportModule("signal");

	set_wakeup_fd = module ? PyObject_GetAttrString(module, "set_wakeup_fd") : NULL;
	Py_XDECREF(module);
	return set_wakeup_fd;
}

/* Returns the one before, or FAILED with an exception. */
static int set(int fd)
{
	PyObject *before = PyObject_CallFunction(set_wakeup_fd, "i", fd);
	int r = before ? (int)PyLong_AsLong(before) : FAILED;

	Py_XDECREF(before);
	return r;
}

static void *listen_until_told(void *data)
{
	struct listener *l = data;
	unsigned char number;
	ssize_t n;

	while ((n = read(l->from, &number, 1)) > 0 || (n < 0 && errno == EINTR)) {
		if (n < 0)
			continue;
		if (number == last_number)
			break;
		if (l->before >= 0 && write(l->before, &number, 1) < 0)
			errno = 0; /* it is full, and says enough */
		atomic_store(&l->heard, true);
		share_wake_early(l->waits);
	}
	return NULL;
}

/* With all signals blocked, as they are for the program's threads. */
static bool start(struct listener *l)
{
	sigset_t all, mask;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	r = pthread_create(&l->thread, NULL, listen_until_told, l);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return r == 0;
}

/* There is room soon, as the thread reads on. */
static void tell_to_end(const struct listener *l)
{
	struct pollfd room = {.fd = l->to, .events = POLLOUT};

	while (write(l->to, &last_number, 1) < 0)
		poll(&room, 1, -1);
}

static void close_ends(struct listener *l)
{
	close(l->to);
	close(l->from);
	l->to = l->from = -1;
}

/* In a child that a handler has forked, the thread is the parent's. */
static void end_listener(struct listener *l, bool started)
{
	if (started && l->generation == process_generation()) {
		tell_to_end(l);
		pthread_join(l->thread, NULL);
	}
	if (l->to >= 0)
		close_ends(l);
	free(l);
}

/* What was set before, unless a handler has set another one meanwhile, or closed that. */
static void put_back(const struct listener *l)
{
	int was = set(l->before);

	if (was == FAILED)
		set(-1);
	else if (was != l->to)
		set(was);
	PyErr_Clear();
}

PyObject *listeners_forget(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
	for (const struct listener *l = innermost; l; l = l->outer)
		put_back(l);
	for (; innermost; innermost = innermost->outer)
		close_ends(innermost);
	Py_RETURN_NONE;
}

int listener_start(share_waits *waits, struct listener **out)
{
	struct listener *l = calloc(1, sizeof(*l));
	int ends[2], r = -1;

	if (!l || pipe2(ends, O_CLOEXEC) < 0) {
		free(l);
		return -1;
	}
	*l = (struct listener){
	    .waits = waits, .from = ends[0], .to = ends[1], .generation = process_generation()};
	fcntl(l->to, F_SETFL, O_NONBLOCK);
	l->before = set(l->to);
	if (l->before != FAILED && start(l)) {
		l->outer = innermost;
		innermost = l;
		*out = l;
		return 1;
	}
	if (l->before != FAILED)
		put_back(l);
	else if (PyErr_ExceptionMatches(PyExc_ValueError))
		r = 0;
	PyErr_Clear();
	end_listener(l, false);
	return r;
}

void listener_end(struct listener *l)
{
	PyObject *type, *value, *trace;

	if (l->to >= 0) {
		PyErr_Fetch(&type, &value, &trace);
		put_back(l);
		PyErr_Restore(type, value, trace);
		innermost = l->outer;
	}
	end_listener(l, true);
}

void listener_forget(struct listener *l)
{
	atomic_store(&l->heard, false);
}

bool listener_has_heard(const struct listener *l)
{
	return atomic_load(&l->heard);
}
