/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "broker/rights/access.h"
#include "broker/rights/name_owner.h"

/* What decides, as the operator has it. All zero lets only those in who have made something. */
struct rights {
	struct principal_list admins;       /* root and the broker's own user included */
	struct principal_list create_pools; /* root and the broker's own user included */
	struct name_owners names;           /* whose names are */
};

/* What somebody wants. Who may not read a thing is answered as if it were not there. */
enum access_right {
	RIGHT_READ,    /* to find it, to map it for reading, to receive */
	RIGHT_WRITE,   /* the same, and to allocate, to map it for writing, to send */
	RIGHT_PUBLISH, /* to have a name lead to a buffer of one's own choice */
	RIGHT_CREATE,  /* to make a pool or a channel that is called so */
	RIGHT_MANAGE,  /* to end it, whoever made it */
};

/* Returns the right that it takes to use memory in this mode, of enum share_access. */
enum access_right access_right_of(unsigned mode);

/* What somebody wants it of. */
enum access_kind {
	OBJECT_POOL,
	OBJECT_NAME, /* of a buffer, or one that may become that */
	OBJECT_CHANNEL,
	OBJECT_PROCESS, /* what is of a process: a connection, a token, an event; or an account */
	OBJECT_BROKER,  /* its configuration, and what is nobody's */
};

struct access_object {
	enum access_kind kind;
	const void *name; /* the name of a pool, a name, or a channel; NULL: any */
	size_t size;
	bool is_owned; /* it exists, and was made by the owner that follows */
	uid_t owner;
	const struct access_list *access; /* the list of a pool that exists */
	/* the pool that a name or a channel is in, or is to be in */
	const struct access_object *pool;
};

/* Who wants it: a peer's uid and all its groups, the primary one included. */
struct access_who {
	uid_t uid;
	const gid_t *groups;
	size_t n_groups;
};

/**
 * Whether @who may do that with @what, as @rules have it. The only place where that is decided, and
 * pure: the same answer to the same question, and nothing else looked at.
 */
bool access_may(const struct rights *rules, const struct access_who *who, enum access_right right,
		const struct access_object *what);
