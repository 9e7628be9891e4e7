/* SPDX-License-Identifier: MIT */

/*
 * Waiting. While the library waits, Python's handlers of signals cannot run. So each wait consists
 * of short ones, with a look at the signals in between. That also lets a thread that waits with a
 * handle notice that another thread has closed it.
 */

#include <math.h>
#include <poll.h>
#include <time.h>

#include "python/src/core.h"

#define SLICE_MS 100

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool wait_begin(struct wait *w, PyObject *timeout)
{
	double seconds;

	*w = (struct wait){.deadline = -1};
	if (!timeout || timeout == Py_None)
		return true;
	seconds = PyFloat_AsDouble(timeout);
	if (seconds == -1.0 && PyErr_Occurred())
		return false;
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

static int left(const struct wait *w, int most)
{
	int64_t ms;

	if (w->once)
		return 0;
	if (w->deadline < 0)
		return most;
	ms = w->deadline - now_ms();
	if (ms < 0)
		ms = 0;
	return ms < most ? (int)ms : most;
}

int wait_slice(const struct wait *w)
{
	return left(w, SLICE_MS);
}

int wait_again(const struct wait *w)
{
	/* The handler of a signal may call the library. So when the time is over, it is left to the
	 * interpreter, after the error was raised. */
	if (w->once || left(w, 1) == 0)
		return 0;
	return PyErr_CheckSignals() < 0 ? -1 : 1;
}

int wait_for(const struct wait *w, const int *fds, size_t n)
{
	struct pollfd polled[4];
	int ms = wait_slice(w), r;

	for (size_t i = 0; i < n; i++)
		polled[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	UNLOCKED(r = poll(polled, n, ms));
	if (r > 0)
		return PyErr_CheckSignals() < 0 ? -1 : 1;
	return wait_again(w);
}

void wait_a_moment(int ms)
{
	UNLOCKED(poll(NULL, 0, ms));
}
