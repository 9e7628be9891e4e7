/* SPDX-License-Identifier: MIT */
#ifndef BROKER_KEEPER_BLAME_H
#define BROKER_KEEPER_BLAME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Which requests brokers have died of. A request that crashes each broker is given up with its
 * client; but who sends it may connect again, and send it again, until the keeper gives up. So who
 * it was, and what type of request, is noted in memory that outlives brokers and keepers, and after
 * the second time no such request of this user is tried for a while. Only a broker that has crashed
 * or hung has died of something that it was doing: for one that was killed nobody is to blame.
 */

#define BLAMES        32
#define BLAME_CRASHES 2
#define BLAME_MS      UINT64_C(300000)

struct blames {
	atomic_uint uid, type; /* of the request that is being handled; type 0: none is */
	struct blame {
		uint32_t uid, type;
		uint32_t crashes; /* 0: the entry is free */
		uint64_t last_ms; /* of these */
	} all[BLAMES];
};

/* In a broker: where they are. NULL, as at first: nothing is noted or refused. */
void blame_at(struct blames *b);
/* Such a request of this user is handled from now on, until another one is or blame_end(). */
void blame_begin(uid_t uid, unsigned type);
void blame_end(void);
bool blame_refuses(uid_t uid, unsigned type, uint64_t now_ms);
/* Whether anything is to blame at all. */
bool blame_is_known(void);

/* In the keeper, when a broker has died: what it was handling is to blame if it has @crashed. */
void blame_death(struct blames *b, bool crashed, uint64_t now_ms);

#endif
