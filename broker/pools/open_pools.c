/* SPDX-License-Identifier: MIT */

/*
 * The pools that a client has open. Each is open as long as the client says so, and cannot end
 * meanwhile. A user who cannot pay for what is written down of that is refused.
 */

#include <errno.h>
#include <stdlib.h>

#include "base/mutation.h"
#include "base/slab.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/records.h"
#include "broker/order/order.h"
#include "broker/pools/inside.h"
#include "broker/pools/open_pools.h"
#include "broker/pools/pools.h"
#include "broker/reply/request.h"

#define FORGET_COST 16 /* a record that goes, and memory that may */
#define POOL_COST   64 /* it may take a look at gated blocks, and retire segments */

static struct open_pool *find_pool(const struct client *c, uint64_t id)
{
	struct open_pool *open;

	LIST_FOREACH (open, &c->memory->pools, link)
		if (open->pool->id == id)
			return open;
	return NULL;
}

struct open_pool *request_open_pool(struct request *r, uint64_t id)
{
	struct open_pool *open = find_pool(r->client, id);

	if (!open)
		request_fail(r, SHARE_ESTALE, "this client does not have that pool open");
	return open;
}

static void attach(struct open_pool *open)
{
	LIST_INSERT_HEAD(&open->client->memory->pools, open, link);
	open->pool->use.opens++;
	account_must_add(open->client->account, PRICE_OPEN_POOL);
}

static void open_pool_fields(struct record *r, void *object)
{
	struct open_pool *open = object;

	record_client(r, &open->client);
	record_pool(r, &open->pool);
	record_u64(r, &open->count);
	record_flag(r, &open->asks);
	record_flag(r, &open->has_magazine);
}

static int open_pool_attach(struct broker *b, void *object)
{
	struct open_pool *open = object;
	struct client *c = open->client;

	(void)b;
	if (!c || open->count == 0 || find_pool(c, open->pool->id))
		return -EBADMSG;
	attach(open);
	return open->asks && pool_user_comes(open->pool, c->account) < 0 ? -ENOMEM : 0;
}

const struct object_kind open_pool_kind = OBJECT_KIND(
    RECORD_OPEN_POOL, "pool that is open", struct open_pool, open_pool_fields, open_pool_attach);

void open_pool_note(struct open_pool *open)
{
	object_put(open->pool->broker->journal, &open_pool_kind, open);
}

int client_open_pool(struct client *c, struct pool *pool)
{
	struct open_pool *open = find_pool(c, pool->id);

	if (!open) {
		if (!account_may_add(c->account, LIMIT_MEMORY, PRICE_OPEN_POOL) &&
		    !MUTATION(open_unpaid))
			return -EDQUOT;
		open = calloc(1, sizeof(*open));
		if (!open)
			return -ENOMEM;
		open->client = c;
		open->pool = pool;
		attach(open);
	}
	open->count++;
	open_pool_note(open);
	return 0;
}

int client_asks_pool(struct open_pool *open, bool has_magazine)
{
	if (!open->asks && pool_user_comes(open->pool, open->client->account) < 0)
		return -ENOMEM;
	if (open->asks && (open->has_magazine || !has_magazine))
		return 0;
	open->asks = true;
	open->has_magazine = open->has_magazine || has_magazine;
	open_pool_note(open);
	return 0;
}

void client_close_pool(struct open_pool *open)
{
	struct client *c = open->client;
	struct pool *pool = open->pool;

	if (--open->count > 0) {
		open_pool_note(open);
		return;
	}
	journal_drop(c->broker->journal, &open->record);
	LIST_REMOVE(open, link);
	if (open->asks)
		pool_user_goes(pool, c->account);
	free(open);
	account_give_back(c->account, PRICE_OPEN_POOL);
	pool->use.opens--;
	pool_end_if_unused(c->broker, pool);
}

bool clients_share_a_pool(const struct client *c, const struct client *other)
{
	const struct open_pool *open;

	LIST_FOREACH (open, &c->memory->pools, link)
		if (find_pool(other, open->pool->id))
			return true;
	return false;
}

/* ------------------------------------------------------------------------------------------- */

bool client_close_pools(struct client *c, int *budget)
{
	for (; !LIST_EMPTY(&c->memory->pools); *budget -= POOL_COST) {
		if (*budget <= 0)
			return false;
		LIST_FIRST(&c->memory->pools)->count = 1;
		client_close_pool(LIST_FIRST(&c->memory->pools));
	}
	return true;
}

/* The segment of that index; NULL: the client has nothing of it. */
static struct segment *had_segment(const struct client *c, uint32_t i)
{
	const struct possession *has = client_possession(c, i);

	return has && has->what ? slab_at(&c->broker->memory->segments, i) : NULL;
}

void client_give_up(struct client *c)
{
	struct segment *s;

	for (uint32_t i = 0; i < client_possessions_end(c); i++) {
		s = had_segment(c, i);
		if (s)
			segment_give_up(c->broker, s, c);
	}
}

bool client_forget(struct client *c, int *budget)
{
	uint32_t *next = &c->memory->forgotten;
	struct segment *s;

	for (; *next < client_possessions_end(c); ++*next) {
		s = had_segment(c, *next);
		if (!s)
			continue;
		if (*budget <= 0)
			return false;
		segment_forget_client(c->broker, s, c);
		*budget -= FORGET_COST;
	}
	client_forget_page(c);
	return true;
}
