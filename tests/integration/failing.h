/* SPDX-License-Identifier: MIT */
#ifndef TESTS_INTEGRATION_FAILING_H
#define TESTS_INTEGRATION_FAILING_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Calls that fail when they are told to. What is linked with --wrap for these functions goes
 * through here (see the CMakeLists), libevent and jansson by their own hooks.
 */

enum failing {
	FAILING_NOTHING,
	FAILING_MEMORY, /* malloc, calloc, realloc, reallocarray, strdup, strndup, posix_memalign */
	FAILING_MMAP,
	FAILING_SENDMSG,
	FAILING_RECVMSG,
	FAILING_SOCKET,
	FAILING_EPOLL, /* epoll_create1, epoll_ctl */
	FAILING_EVENTFD,
	FAILING_FSTAT,
	FAILING_THREAD, /* pthread_create */
	FAILING_MEMFD,
	FAILING_ACCEPT,
};

/* From now on the @nth call of its kind fails (from 1; 0: none), with @error; and all later ones
 * if @all_after. */
void failing_set(enum failing what, unsigned long nth, int error, bool all_after);
/* How many calls of that kind there were since. */
unsigned long failing_count(void);

/* Exit code of failure_runner. */
#define RUNNER_PAST_THE_LAST 10

void *failing_malloc(size_t size);
void *failing_realloc(void *old, size_t size);

#endif
