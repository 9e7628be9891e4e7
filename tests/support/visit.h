/* SPDX-License-Identifier: MIT */
#pragma once

#include <sys/types.h>

#include <share/share.h>

/*
 * The pool "test", which scrubs what passes from one user to another, and its users. It has one
 * segment, and no more. Root only.
 */
#define ALICE 4711
#define BOB   4712

share_pool *scrubbed_pool(share_client *c, const char *kind);
share_pool *open_test(share_client *c);
/* All are gone, and so is everything in the pool. Gives up both. */
void all_end(share_client *c, share_pool *p);

/* A process of this user takes so much memory, expects that value in all of it, fills it with
 * another one, and goes. */
#define ANYTHING (-1)
void visit(uid_t user, uint64_t size, int finds, int leaves);

/* Of the first device that has one, 0: none. */
pid_t agent(share_client *c);
/* The same, once there is one: kill() takes 0 for this process and all that was started with it. */
pid_t agent_there(share_client *c);
