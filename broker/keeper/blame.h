/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Which requests brokers have died of. A request that crashes each broker is given up with its
 * client. But its user may connect again, and send it again, until the keeper gives up. So the user
 * and the type of the request are noted in memory that outlives brokers and keepers, and after the
 * second crash no such request of this user is tried for a while. Only a broker that has crashed or
 * hung has died of something that it was doing: if one was killed, nobody is to blame.
 */

#define BLAMES        32
#define BLAME_CRASHES 2
#define BLAME_MS      UINT64_C(300000)

struct blames {
	atomic_uint uid, type; /* the request that is being handled; type 0: there is none */
	struct blame {
		uint32_t uid, type;
		uint32_t crashes; /* 0: the entry is free */
		uint64_t last_ms; /* when the last one of these was */
	} all[BLAMES];
};

/* Tells a broker where to note what it handles. With NULL, as it is at first, nothing is noted or
 * refused. */
void blame_at(struct blames *b);
/* Notes that such a request of this user is being handled, until another one is or blame_end() is
 * called. */
void blame_begin(uid_t uid, unsigned type);
void blame_end(void);
bool blame_refuses(uid_t uid, unsigned type, uint64_t now_ms);
/* Whether any request has ever been to blame, which is cheaper to find out than blame_refuses(). */
bool blame_is_known(void);

/* Notes in the keeper that a broker has died. If it has @crashed, what it was handling is to
 * blame. */
void blame_death(struct blames *b, bool crashed, uint64_t now_ms);
