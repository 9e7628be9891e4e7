/* SPDX-License-Identifier: MIT */

/*
 * What a client has of memory. It has those segments that it was sent; they are written down by
 * index, so that nothing is sent twice. A pool is open as long as the client says so, and cannot
 * end meanwhile. Both are refused to a user who cannot pay for what is written down of them.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#include "base/mutation.h"
#include "base/slab.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/conversation.h"
#include "broker/client/request.h"
#include "broker/journal/journal.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/inside.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/pools.h"
#include "broker/memory/records.h"
#include "broker/memory/segment.h"
#include "broker/monitor/monitor.h"
#include "broker/order/order.h"
#include "pages/timeline.h"

#define UNMAPPING_MAX 256
#define OVERDUE_MAX   4096
#define POOL_COST     64 /* it may take a look at gated blocks, and retire segments */

#define GROUP_SIZE (POSSESSION_GROUP * sizeof(struct possession))

void client_memory_deinit(struct client *c)
{
	struct client_memory *m = c->memory;
	uint64_t bytes = m->n_groups * sizeof(struct possession *);

	for (uint32_t i = 0; i < m->n_groups; i++) {
		bytes += m->groups[i] ? GROUP_SIZE : 0;
		free(m->groups[i]);
	}
	if (c->account)
		account_give_back(c->account, bytes);
	free(m->groups);
}

struct possession *client_possession(const struct client *c, uint32_t segment)
{
	const struct client_memory *m = c->memory;
	uint32_t group = segment / POSSESSION_GROUP;

	if (group >= m->n_groups || !m->groups[group])
		return NULL;
	return &m->groups[group][segment % POSSESSION_GROUP];
}

static int add_group(struct client *c, uint32_t group)
{
	struct client_memory *m = c->memory;
	void *groups = m->groups;

	if (group >= m->n_groups) {
		if (paid_grow(c->account, &groups, &m->n_groups, group,
			      sizeof(struct possession *)) < 0)
			return -ENOMEM;
		m->groups = groups;
	}
	m->groups[group] = calloc(1, GROUP_SIZE);
	if (!m->groups[group])
		return -ENOMEM;
	account_must_add(c->account, GROUP_SIZE);
	return 0;
}

int client_reserve_possession(struct client *c, uint32_t segment)
{
	const struct possession *has = client_possession(c, segment);
	uint32_t n = c->memory->n_groups, group = segment / POSSESSION_GROUP;
	uint64_t price = PRICE_POSSESSION;

	if (has && has->what)
		return 0;
	if (!has)
		price += GROUP_SIZE;
	if (group >= n)
		price += (paid_room(n, group) - n) * sizeof(struct possession *);
	if (!account_may_add(c->account, LIMIT_MEMORY, price) && !MUTATION(map_unpaid))
		return -EDQUOT;
	return has ? 0 : add_group(c, group);
}

static bool is_in_a_pool_with(const struct client *c, const struct client *other)
{
	const struct open_pool *open;

	LIST_FOREACH (open, &c->memory->pools, link)
		if (client_find_pool(other, open->pool->id))
			return true;
	return false;
}

bool client_may_ask(const struct client *c, const struct client *owner)
{
	return client_answers_for(c, owner->peer.uid) || client_knows_page(c, owner->slot) ||
	       is_in_a_pool_with(c, owner);
}

void client_ask_to_unmap(struct client *c, uint64_t segment)
{
	struct wire_message m = {.type = WIRE_SEGMENT_RETIRE};

	m.segment_retire.segment = segment;
	client_send(c, &m, NULL, 0);
}

bool client_is_overdue(struct client *c)
{
	/* libshare unmaps before it makes its next request; a client that never does piles up
	 * segments */
	return c->memory->n_unmapping > UNMAPPING_MAX && ++c->memory->n_overdue > OVERDUE_MAX;
}

uint32_t client_possessions_end(const struct client *c)
{
	return c->memory->n_groups * POSSESSION_GROUP;
}

static bool possesses(const struct client *c, uint32_t segment)
{
	const struct possession *has = client_possession(c, segment);

	return has && has->what;
}

bool client_has_segments(const struct client *c)
{
	for (uint32_t i = 0; i < client_possessions_end(c); i++)
		if (possesses(c, i))
			return true;
	return false;
}

/* ------------------------------------------------------------------------------------------- */

struct open_pool *client_find_pool(const struct client *c, uint64_t id)
{
	struct open_pool *open;

	LIST_FOREACH (open, &c->memory->pools, link)
		if (open->pool->id == id)
			return open;
	return NULL;
}

void client_has_open(struct open_pool *open)
{
	LIST_INSERT_HEAD(&open->client->memory->pools, open, link);
	open->pool->use.opens++;
	account_must_add(open->client->account, PRICE_OPEN_POOL);
}

int client_open_pool(struct client *c, struct pool *pool)
{
	struct open_pool *open = client_find_pool(c, pool->id);

	if (!open) {
		if (!account_may_add(c->account, LIMIT_MEMORY, PRICE_OPEN_POOL) &&
		    !MUTATION(open_unpaid))
			return -EDQUOT;
		open = calloc(1, sizeof(*open));
		if (!open)
			return -ENOMEM;
		open->client = c;
		open->pool = pool;
		client_has_open(open);
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

bool client_forget(struct client *c, int *budget)
{
	struct broker *b = c->broker;

	(void)budget;
	for (uint32_t i = 0; i < client_possessions_end(c); i++) {
		struct segment *s = possesses(c, i) ? slab_at(&b->memory->segments, i) : NULL;

		if (s)
			segment_forget_client(b, s, c);
	}
	client_forget_page(c);
	return true;
}
