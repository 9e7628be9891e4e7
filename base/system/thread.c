/* SPDX-License-Identifier: MIT */

/* Starts threads that get no signals. A new thread inherits the signal mask of the one that starts
 * it. */

#include "base/system/thread.h"

#include <signal.h>

int thread_start(pthread_t *out, void *(*function)(void *data), void *data)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(out, NULL, function, data);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -error;
}

int thread_start_detached(void *(*function)(void *data), void *data)
{
	pthread_t thread;
	int r = thread_start(&thread, function, data);

	if (r == 0)
		pthread_detach(thread);
	return r;
}
