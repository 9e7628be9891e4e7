/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Calls that fail when they are told to. What is linked with --wrap for these functions goes
 * through here (see the CMakeLists), libevent and jansson by their own hooks. Kinds of calls are
 * bits: several can be meant at once.
 */

enum failing {
	FAILING_NOTHING = 0,
	FAILING_MEMORY = 1 << 0, /* malloc, calloc, realloc, reallocarray, strdup, strndup,
				    posix_memalign */
	FAILING_MMAP = 1 << 1,
	FAILING_SEND = 1 << 2, /* send, sendmsg */
	FAILING_RECVMSG = 1 << 3,
	FAILING_SOCKET = 1 << 4, /* socket, socketpair */
	FAILING_EPOLL = 1 << 5,  /* epoll_create1, and epoll_ctl that adds */
	FAILING_EVENTFD = 1 << 6,
	FAILING_FSTAT = 1 << 7,
	FAILING_THREAD = 1 << 8, /* pthread_create */
	FAILING_MEMFD = 1 << 9,
	FAILING_ACCEPT = 1 << 10,
	/* in the broker only (failing_broker.c) */
	FAILING_EVENT = 1 << 11, /* event_add */
	FAILING_DUP = 1 << 12,   /* fcntl(F_DUPFD_CLOEXEC) */
	FAILING_SEAL = 1 << 13,  /* fcntl(F_ADD_SEALS) */
	FAILING_PIDFD = 1 << 14, /* pidfd_open, SO_PEERPIDFD */
	FAILING_PEER = 1 << 15,  /* what else getsockopt says of a peer */
	FAILING_OPEN = 1 << 16,
	FAILING_SPAWN = 1 << 17,  /* posix_spawn */
	FAILING_RESIZE = 1 << 18, /* ftruncate, fallocate */
};

/* Which calls fail, and how many there were. May lie in memory that a test shares with the program
 * in which they fail. */
struct failing_plan {
	atomic_uint what;
	unsigned long nth;
	int error;
	bool all_after;
	atomic_ulong count; /* of that kind, since the plan was made */
};
extern struct failing_plan *failing_plan;

/* From now on the @nth call of its kind fails (from 1; 0: none), with @error; and all later ones
 * if @all_after. */
void failing_plan_set(struct failing_plan *plan, unsigned what, unsigned long nth, int error,
		      bool all_after);
void failing_set(enum failing what, unsigned long nth, int error, bool all_after);
/* How many calls of that kind there were since. */
unsigned long failing_count(void);

/* For wrappers: counts a call, and sets errno when it is the one that fails. */
bool failing_now(enum failing what);

/* Where failing_broker.c finds the file that has its plan. */
#define FAILING_PLAN_VARIABLE "SHARE_TEST_FAILING"

/* Exit codes of failure_runner, to which the number of its runs is added. */
#define RUNNER_ENDED         100
#define RUNNER_PAST_THE_LAST 150

void *failing_malloc(size_t size);
void *failing_realloc(void *old, size_t size);
