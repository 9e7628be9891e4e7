/* SPDX-License-Identifier: MIT */

/*
 * Waiting. While the library waits, Python's handlers of signals cannot run. So the library ends a
 * wait early, when a signal has come or when the object that is waited with is closed by another
 * thread; what either is for is seen here, and then it goes on for the rest of the time.
 *
 * A signal that comes between the look and the moment in which the library sleeps, or while it is
 * awake to look whether the wait is over, interrupts nothing. So it is looked a few times in the
 * first second or two. Then a thread begins to listen for signals (listener.c), which short waits
 * do not pay for, and after one more look the wait wakes up for nothing.
 */

#include <limits.h>
#include <math.h>
#include <poll.h>
#include <time.h>

#include "python/src/base/args.h"

#define LOOK_FIRST_MS 50 /* beyond the next tick: an earlier one is set in the hardware */
#define LOOK_LAST_MS  1000
#define LOOK_TIMES    5

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool wait_begin(struct wait *w, PyObject *timeout)
{
	double seconds;

	*w = (struct wait){.deadline = -1, .look_ms = LOOK_FIRST_MS};
	if (!timeout || timeout == Py_None)
		return true;
	seconds = PyFloat_AsDouble(timeout);
	if (seconds == -1.0 && PyErr_Occurred()) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			PyErr_Format(PyExc_TypeError,
				     "a time limit is a number of seconds, 0 or more, or None, and "
				     "not %R",
				     timeout);
		return false;
	}
	if (isnan(seconds) || seconds < 0) {
		PyErr_SetString(PyExc_ValueError,
				"a time limit is a number of seconds, 0 or more, or "
				"None");
		return false;
	}
	w->once = seconds == 0;
	if (seconds < 1e12)
		w->deadline = w->once ? 0 : now_ms() + (int64_t)ceil(seconds * 1000);
	return true;
}

int wait_ms(const struct wait *w)
{
	int64_t ms;

	if (w->once)
		return 0;
	if (w->deadline < 0)
		return -1;
	ms = w->deadline - now_ms();
	/* 0 would be another question */
	if (ms < 1)
		return 1;
	return ms < INT_MAX ? (int)ms : INT_MAX;
}

bool wait_is_over(const struct wait *w)
{
	return w->once || (w->deadline >= 0 && now_ms() >= w->deadline);
}

/* What comes from now on wakes, so it is looked once more whether something has come. */
void wait_starts(struct wait *w, const struct handle *h)
{
	share_wait_early(h->waits, w->look_ms);
	if (w->listener && listener_has_heard(w->listener))
		share_wake_early(h->waits);
}

void wait_ends(struct wait *w)
{
	if (w->listener)
		listener_end(w->listener);
	w->listener = NULL;
	w->look_ms = LOOK_FIRST_MS;
}

/* Where nobody can listen, it is looked for good, and in threads that handle no signals no more. */
static void look_less(struct wait *w, const struct handle *h)
{
	if (w->look_ms > 0 && w->look_ms < LOOK_LAST_MS)
		w->look_ms *= LOOK_TIMES;
	else if (w->look_ms > 0 && listener_start(h->waits, &w->listener) >= 0)
		w->look_ms = 0;
	if (w->listener)
		listener_forget(w->listener);
}

int wait_again(struct wait *w, const struct handle *h, int r)
{
	int early = share_wait_early(NULL, 0);

	if (r != SHARE_EINTR || (!early && !h->closed)) {
		wait_ends(w);
		return 0;
	}
	look_less(w, h);
	if (PyErr_CheckSignals() == 0 && !h->closed)
		return 1;
	wait_ends(w);
	if (!PyErr_Occurred())
		handle_refuse(h);
	return -1;
}

void wait_a_moment(int ms)
{
	UNLOCKED(poll(NULL, 0, ms));
}
