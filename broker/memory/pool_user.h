/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_POOL_USER_H
#define BROKER_MEMORY_POOL_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/accounts/account.h"

struct block;
struct pool;

/*
 * What each user has of a pool, and so what it may have, as users share it who are known
 * (fair_share.h).
 */
struct pool_user {
	LIST_ENTRY(pool_user) link;
	struct account *account; /* a reference */
	uint64_t bytes;          /* charged to it: of buffers, and of what work still runs on */
	uint32_t clients;        /* that have asked for some, and have the pool open */
};

/* Memory that is wanted of a pool: it is paid for, and then looked for. */
struct allocation {
	struct account *account;
	uint64_t size, alignment;
	struct charge charge; /* for @block; who consumes one consumes the other */
	struct block *block;
};

/* A client of the user has asked for memory: 0 or -ENOMEM. And it closes the pool. */
int pool_user_comes(struct pool *p, struct account *account);
void pool_user_goes(struct pool *p, struct account *account);
void pool_users_deinit(struct pool *p); /* nobody has anything of it */

/* As the functions of charges, of the pool's blocks. */
/* That of a block, which says who pays. Here and below, @own: as charge_take_with(). */
struct charge pool_charge_of(const struct block *block, uint64_t own);
/* 0; SHARE_EQUOTA, or SHARE_ESYSTEM without memory, when nothing is charged. @own: as
 * charge_take_with(). */
int pool_charge_take(struct pool *p, struct charge *c, struct account *account, uint64_t bytes,
		     uint64_t own);
/* Of what is wanted: 0, POOL_LIMIT, or SHARE_ESYSTEM. And if that leaves others what is theirs,
 * else POOL_SHARE. */
int pool_pay(struct pool *p, struct allocation *a);
int pool_pay_of_share(struct pool *p, struct allocation *a);
void pool_charge_return(struct pool *p, struct charge *c);
/* Without memory it stays where it is. */
void pool_charge_move(struct pool *p, struct charge *c, struct account *to);

/* Whether so much more leaves others what is theirs. */
bool pool_user_may_have(const struct pool *p, const struct account *account, uint64_t bytes);
void pool_user_explain(const struct pool *p, const struct account *account, uint64_t bytes,
		       struct failure *failure);

#endif
