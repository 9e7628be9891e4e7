/* SPDX-License-Identifier: MIT */

/*
 * The users of a pool: what they have of it, and their share when it runs short. Few use the same
 * pool, and mostly the same one comes again, who is at the head of the list then. Of blocks this
 * file knows only the size and the payer.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include <share/error.h>

#include "base/size.h"
#include "broker/accounts/fair_share.h"
#include "broker/accounts/price.h"
#include "broker/log/log.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/segment.h"

static struct pool_user *find(const struct pool *p, const struct account *account)
{
	struct pool_user *u;

	LIST_FOREACH (u, &p->use.users, link)
		if (u->account == account)
			return u;
	return NULL;
}

/* Returns NULL without memory. */
static struct pool_user *find_or_add(struct pool *p, struct account *account)
{
	struct pool_user *u = find(p, account);

	if (!u) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return NULL;
		u->account = account_ref(account);
	} else if (u != LIST_FIRST(&p->use.users)) {
		LIST_REMOVE(u, link);
	} else {
		return u;
	}
	LIST_INSERT_HEAD(&p->use.users, u, link);
	return u;
}

static void forget_if_unused(struct pool_user *u)
{
	if (u->bytes > 0 || u->clients > 0)
		return;
	LIST_REMOVE(u, link);
	account_unref(u->account);
	free(u);
}

int pool_user_comes(struct pool *p, struct account *account)
{
	struct pool_user *u = find_or_add(p, account);

	if (!u)
		return -ENOMEM;
	if (u->clients++ == 0)
		p->use.n_takers++;
	return 0;
}

void pool_user_goes(struct pool *p, struct account *account)
{
	struct pool_user *u = find(p, account);

	if (--u->clients == 0)
		p->use.n_takers--;
	forget_if_unused(u);
}

/* ------------------------------------------------------------------------------------------- */

static void subtract(struct pool *p, const struct account *account, uint64_t bytes)
{
	struct pool_user *u = find(p, account);

	if (!u || u->bytes < bytes) {
		log_bug("uid %u returns more of pool '%s' than it has",
			(unsigned)account_uid(account), p->name);
		return;
	}
	u->bytes -= bytes;
	forget_if_unused(u);
}

int pool_charge_take(struct pool *p, struct charge *c, struct account *account, uint64_t bytes,
		     uint64_t own)
{
	struct pool_user *u = find_or_add(p, account);

	if (!u)
		return SHARE_ESYSTEM;
	if (!charge_take_with(c, account, LIMIT_BYTES, bytes, own)) {
		forget_if_unused(u);
		return SHARE_EQUOTA;
	}
	u->bytes += bytes;
	return 0;
}

struct charge pool_charge_of(const struct block *block, uint64_t own)
{
	struct charge c = {.account = block->payer};

	charge_say(&c, LIMIT_BYTES, block_size(block), own);
	return c;
}

void pool_charge_return(struct pool *p, struct charge *c)
{
	if (c->account)
		subtract(p, c->account, c->amount);
	charge_return(c);
}

void pool_charge_move(struct pool *p, struct charge *c, struct account *to)
{
	struct pool_user *u = find_or_add(p, to);

	if (!u)
		return;
	u->bytes += c->amount;
	subtract(p, c->account, c->amount);
	charge_move(c, to);
}

/* ------------------------------------------------------------------------------------------- */

/* How many bytes the segments have that the account has had adopted and that are active. */
static uint64_t adopted_by(const struct pool *p, const struct account *account)
{
	const struct segment *s;
	uint64_t bytes = 0;

	LIST_FOREACH (s, &p->extent.segments, link)
		if (s->state == SEGMENT_ACTIVE && s->cost.segment.account == account)
			bytes += s->memory.recipe.size;
	return bytes;
}

/* How many bytes an account has. Of adopted memory segments are kept as a whole, however small the
 * buffers in them are, so segments count. */
static uint64_t bytes_of(const struct pool *p, const struct account *account)
{
	const struct pool_user *u = find(p, account);

	if (pool_is_adopted(p))
		return adopted_by(p, account);
	return u ? u->bytes : 0;
}

bool pool_user_may_have(const struct pool *p, const struct account *account, uint64_t bytes)
{
	const struct fair_share share = {
	    .total = p->sizes.limit,
	    .used = pool_is_adopted(p) ? p->extent.reserved : p->extent.used + p->gated.bytes,
	    .users = p->use.n_takers > 0 ? p->use.n_takers : 1,
	};
	uint64_t mine = bytes_of(p, account);

	/* a request that there is no room for is refused for that */
	return share.used + bytes > share.total || mine + bytes <= fair_share_most(&share, mine);
}

int pool_pay(struct pool *p, struct allocation *a, bool of_share)
{
	uint64_t units = (a->size + SUBALLOCATOR_UNIT - 1) / SUBALLOCATOR_UNIT;
	int r;

	if (of_share && !pool_user_may_have(p, a->account, a->size))
		return POOL_SHARE;
	r = pool_charge_take(p, &a->charge, a->account, units * SUBALLOCATOR_UNIT,
			     PRICE_BUFFER_OWN);
	return r == SHARE_EQUOTA ? POOL_LIMIT : r;
}

void pool_user_explain(const struct pool *p, const struct account *account, uint64_t bytes,
		       struct failure *failure)
{
	char wanted[SIZE_EXACT_MAX], limit[SIZE_TEXT_MAX], has[SIZE_TEXT_MAX], share[SIZE_TEXT_MAX],
	    rest[SIZE_TEXT_MAX];

	failure_set(
	    failure, SHARE_EQUOTA,
	    "pool '%s' has no more room for uid %u, which has %s and wants %s: its share is "
	    "%s, as %" PRIu32
	    " users ask for memory of it, and the last %s of its %s are for "
	    "those who have no more than that",
	    p->name, (unsigned)account_uid(account), size_round(bytes_of(p, account), has),
	    size_exact(bytes, wanted), size_round(p->sizes.limit / p->use.n_takers, share),
	    p->use.n_takers, size_round(FAIR_SHARE_RESERVE(p->sizes.limit), rest),
	    size_round(p->sizes.limit, limit));
}
