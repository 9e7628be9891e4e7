/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include <share/share.h>

/*
 * A function that runs in a process of its own, step by step: at each point it waits until the test
 * lets it go on, or kills it there. Points carry bytes to the test, going on carries bytes back. A
 * child has none of the test's descriptors, and dies with the test.
 */
#define CHILD_BYTES_MAX 4096

struct child {
	pid_t pid;
	int channel;
};

typedef void (*child_function)(struct child *self, void *data);

/* @data is the test's memory as it is now. */
struct child *child_start(child_function function, void *data);

/* In the child. */
void child_point(struct child *self, const char *name);
void child_point_with(struct child *self, const char *name, const void *data, size_t size);
/* The same, and takes what the test sends along. */
void child_exchange(struct child *self, const char *name, const void *data, size_t size,
		    void *answer, size_t answer_size);
/* A connection of its own. */
share_client *child_connect(const char *label);
/* From now on this is somebody else, in @group as well (0: in none), who needs no entry in any
 * database. Root's children only. */
void child_become(uid_t uid, gid_t group);

/* In the test: waits until the child is at this point, and for no other. */
void child_wait(struct child *c, const char *name);
void child_wait_with(struct child *c, const char *name, void *data, size_t size);
void child_go(struct child *c);
void child_go_with(struct child *c, const void *data, size_t size);
/* SIGKILL wherever it is; it is dead and reaped on return. Frees. */
void child_kill(struct child *c);
/* The same, without waiting for the end. child_reap() is still due. */
void child_shoot(struct child *c);
void child_reap(struct child *c);
/* Lets it go on (if it waits) to its end, which must be a good one. Frees. */
void child_finish(struct child *c);
/* Its end without checking: the wait status. Frees. */
int child_status(struct child *c);
