/* SPDX-License-Identifier: MIT */

/*
 * Asks clients to give back what they keep for themselves. A client finds out in two ways: by a
 * message, which is sent only if it would go out at once, and by a counter in its timeline page,
 * which it looks at whenever it allocates or releases. When it has given back what it can, it says
 * so. When all have, nobody has anything left, and a request for memory is told at once that there
 * is none.
 *
 * A client that does not call the library does not answer. That costs the others a short wait, and
 * all such waits within a second together cost no more than one.
 */

#include "broker/pools/trim.h"
#include "base/clock.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/conversation.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "broker/pools/open_pools.h"
#include "broker/reply/deferred.h"
#include "broker/reply/request.h"

#define WINDOW_MS 1000
/* so long may others wait in that time for a client that does not answer */
#define COST_MS 200

static bool has_magazine(const struct client *c, const struct pool *pool)
{
	const struct open_pool *open;

	LIST_FOREACH (open, &c->memory->pools, link)
		if (open->has_magazine && (!pool || open->pool == pool))
			return true;
	return false;
}

static bool has_answered(const struct trim *t)
{
	return t->answered == t->asked;
}

/* Asks a client to give back what it keeps of @pool, or of any pool if that is NULL. */
static void ask(struct client *c, const struct pool *pool, uint32_t flags, uint64_t now)
{
	struct wire_message m = {.type = WIRE_TRIM};
	struct trim *t = &c->memory->trim;

	if (!has_answered(t))
		t->cost_ms += now - t->asked_ms;
	if (t->asked == 0 || now - t->window_ms >= WINDOW_MS) {
		t->window_ms = now;
		t->cost_ms = 0;
	}
	t->asked_ms = now;
	/* the broker counts for itself, as the client may write to the page */
	atomic_store_explicit(&c->order->timelines->page->slots[0].last, ++t->asked,
			      memory_order_relaxed);
	m.trim.pool = pool ? pool->id : 0;
	m.trim.flags = flags;
	if (client_keeps_up(c))
		client_send(c, &m, NULL, 0);
}

static bool is_to_be_asked(const struct trim *t, uint64_t now, uint64_t since_ms)
{
	if (has_answered(t))
		return t->asked == 0 || t->asked_ms < since_ms;
	return now - t->asked_ms >= WINDOW_MS;
}

static bool is_waited_for(const struct trim *t, uint64_t now)
{
	return !has_answered(t) && t->cost_ms + (now - t->asked_ms) < COST_MS;
}

bool trim_ask(struct broker *b, const struct client *except, const struct pool *pool,
	      const struct account *account, uint64_t since_ms)
{
	uint64_t now = clock_ms();
	bool any = false;

	for (uint32_t i = 0; i < b->clients->n_slots; i++) {
		struct client *c = b->clients->by_slot[i];

		/* whoever waits for memory in the pool itself had given back all before it asked */
		if (!c || c == except || c->state != CLIENT_READY ||
		    (account && c->account != account) || !has_magazine(c, account ? NULL : pool) ||
		    deferred_has(&pool->waiting.requests, c))
			continue;
		if (is_to_be_asked(&c->memory->trim, now, since_ms))
			ask(c, account ? NULL : pool, 0, now);
		any = any || is_waited_for(&c->memory->trim, now);
	}
	return any;
}

void trim_end(struct broker *b, const struct pool *pool)
{
	for (uint32_t i = 0; i < b->clients->n_slots; i++)
		if (b->clients->by_slot[i] && b->clients->by_slot[i]->state == CLIENT_READY &&
		    has_magazine(b->clients->by_slot[i], pool))
			ask(b->clients->by_slot[i], pool, WIRE_TRIM_ENDED, clock_ms());
}

bool handle_trimmed(struct request *r)
{
	struct trim *t = &r->client->memory->trim;
	struct pool *p;

	/* an answer to an earlier time: the client is yet to hear of the last one */
	if (has_answered(t) || r->m->trimmed.asked != t->asked)
		return true;
	t->answered = t->asked;
	t->cost_ms += clock_ms() - t->asked_ms;
	LIST_FOREACH (p, &r->broker->memory->pools, link)
		pool_wake(&p->waiting);
	return true;
}
