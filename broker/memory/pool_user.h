/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/accounts/account.h"

struct block;
struct pool;

/*
 * What each user has of a pool. What a user may have follows from that, as all users who are known
 * share the pool (fair_share.h).
 */
struct pool_user {
	LIST_ENTRY(pool_user) link;
	struct account *account; /* a reference */
	uint64_t bytes; /* charged to the account: of buffers, and of what its work still runs on */
	uint32_t clients; /* its clients that have the pool open and have asked for some of it */
};

/* Why there is no block, and what would have to happen so that there is one. What does not change
 * has a SHARE_E... number instead, which is negative. */
enum pool_result {
	POOL_LATER = 1, /* an agent answers */
	POOL_BUSY,      /* work that is under way ends, or what was retired is unmapped */
	POOL_FULL,      /* somebody gives something back */
	POOL_SHARE,     /* its user gives something back: what is left is others' share */
	POOL_LIMIT      /* its user gives something back, of this pool or of another one */
};

/* Memory that is wanted of a pool. It is paid for first, and then looked for. */
struct allocation {
	struct account *account;
	uint64_t size, alignment;
	struct charge charge; /* for @block; whoever consumes one consumes the other */
	struct block *block;
};

/* Notes that a client of the user has asked for memory (0 or -ENOMEM), and that it closes the
 * pool. */
int pool_user_comes(struct pool *p, struct account *account);
void pool_user_goes(struct pool *p, struct account *account);

/* These are as the functions of charges, but for blocks of the pool. */
/* Makes the charge of a block, which says who pays. Here and below, @own is as in
 * charge_take_with(). */
struct charge pool_charge_of(const struct block *block, uint64_t own);
/* Charges an account for so many bytes. 0; or SHARE_EQUOTA, or SHARE_ESYSTEM without memory, and
 * then nothing is charged. */
int pool_charge_take(struct pool *p, struct charge *c, struct account *account, uint64_t bytes,
		     uint64_t own);
/* Charges what is wanted. 0, POOL_LIMIT, or SHARE_ESYSTEM; or, with @of_share, POOL_SHARE if that
 * does not leave others what is theirs. */
int pool_pay(struct pool *p, struct allocation *a, bool of_share);
void pool_charge_return(struct pool *p, struct charge *c);
/* Moves a charge to another account; without memory it stays where it is. */
void pool_charge_move(struct pool *p, struct charge *c, struct account *to);

/* Whether so much more leaves others what is theirs; and why it does not. */
bool pool_user_may_have(const struct pool *p, const struct account *account, uint64_t bytes);
void pool_user_explain(const struct pool *p, const struct account *account, uint64_t bytes,
		       struct failure *failure);
