/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

/* Something that a greedy user does to a broker as often as it can. */
struct flood {
	const char *name;
	const char *words;
	void (*step)(const struct flood *f, const char *socket, _Atomic uint64_t *done);
	unsigned connections; /* of all users together; 0: one connection after the other */
};

extern const struct flood floods[];
extern const unsigned n_floods;
/* Of a broker, of a Redis, and of a server that wants no greeting, whose socket is given. */
extern const struct flood flood_ping, flood_redis, flood_bare;

/* Starts a process of user @uid that floods, with @connections, until it is killed. @done counts
 * the answers that it got. Returns when the flood has begun. */
pid_t flood_start(const struct flood *f, const char *socket, uid_t uid, unsigned connections,
		  _Atomic uint64_t *done);
