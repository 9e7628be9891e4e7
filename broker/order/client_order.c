/* SPDX-License-Identifier: MIT */

/*
 * What a client has of the order between processes: its own timelines, and the pages of others that
 * it was sent, which is written down by slot, so that nothing is sent twice. Pages are never
 * refused, as the work that is waited for would have to be refused with them: they are a byte for
 * each connection that there is.
 */

#include <stdlib.h>

#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/monitor/monitor.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "broker/order/records.h"
#include "broker/reply/request.h"
#include "pages/timeline.h"

/* What a client has of the page of another one. */
enum { PAGE_SENT = 1, PAGE_NAMED };

void client_order_deinit(struct client *c)
{
	timelines_unref(c->order->timelines);
	if (c->account)
		account_give_back(c->account, c->order->n_pages);
	free(c->order->pages);
}

bool client_has_page(const struct client *c, uint32_t slot)
{
	return slot == c->slot || (slot < c->order->n_pages && c->order->pages[slot] == PAGE_SENT);
}

int client_reserve_page(struct client *c, uint32_t slot)
{
	void *pages = c->order->pages;
	int r = 0;

	if (slot >= c->order->n_pages) {
		r = paid_grow(c->account, &pages, &c->order->n_pages, slot, 1);
		c->order->pages = pages;
	}
	return r;
}

static void set_page(struct client *c, uint32_t slot, uint8_t what)
{
	c->order->pages[slot] = what;
	c->broker->clients->by_slot[slot]->order->timelines->in_place->known = true;
}

void client_set_page(struct client *c, uint32_t slot)
{
	set_page(c, slot, PAGE_SENT);
}

bool client_let_ask(struct client *c, uint32_t slot)
{
	if (client_has_page(c, slot))
		return true;
	if (client_reserve_page(c, slot) < 0)
		return false;
	set_page(c, slot, PAGE_NAMED);
	return true;
}

/* Whether the client was sent that page, or told of a fence on it. */
static bool knows_page(const struct client *c, uint32_t slot)
{
	return slot < c->order->n_pages && c->order->pages[slot];
}

bool client_may_ask(const struct client *c, const struct client *owner)
{
	return client_answers_for(c, owner->peer.uid) || knows_page(c, owner->slot) ||
	       c->broker->clients->rooms->share_a_pool(c, owner);
}

void client_forget_page(struct client *c)
{
	struct broker *b = c->broker;

	if (!c->order->timelines || !c->order->timelines->in_place->known)
		return;
	for (uint32_t i = 0; i < b->clients->n_slots; i++)
		if (b->clients->by_slot[i] && c->slot < b->clients->by_slot[i]->order->n_pages)
			b->clients->by_slot[i]->order->pages[c->slot] = 0;
}

/* ------------------------------------------------------------------------------------------- */

bool request_fence(struct request *r, uint64_t timeline, uint64_t value, struct fence *out)
{
	struct timelines *t = r->client->order->timelines;
	uint32_t slot = WIRE_TIMELINE_SLOT(timeline);

	*out = (struct fence){0};
	if (timeline == 0)
		return true;
	if (WIRE_TIMELINE_PAGE(timeline) != t->id || slot == 0 || slot >= TIMELINE_SLOTS ||
	    value == 0 || value >= TIMELINE_POISON)
		return request_fail(r, SHARE_EINVAL, "not a fence on a timeline of this client's");
	if ((int64_t)(value - timeline_value(t->page, slot)) > FENCE_AHEAD_MAX)
		return request_fail(r, SHARE_EINVAL,
				    "no stream gets that far: the fence is implausible");
	*out = (struct fence){timelines_ref(t), value, slot};
	if (timeline_is_by_gpu(t->page, slot))
		order_watch_gpus(r->broker);
	return true;
}

void client_end_timelines(struct client *c)
{
	struct broker *b = c->broker;

	if (!c->order->timelines || c->order->timelines->dead)
		return;
	/* this comes first, as a broker that finds the page dead does nothing more about it */
	if (!c->requests.goodbye)
		order_page_died(b->order, c->order->timelines->id);
	timelines_kill(c->order->timelines, c->requests.goodbye);
	if (c->requests.goodbye)
		return;
	b->counters.poisoned++;
	if (monitors_any(b))
		monitors_tell(b, &(struct notice){.action = "poison", .client = c});
}
