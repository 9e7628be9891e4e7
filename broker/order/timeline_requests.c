/* SPDX-License-Identifier: MIT */

/* Clients ask for the timeline pages of others, of whose fences they have heard. */

#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "broker/order/records.h"
#include "broker/reply/request.h"

/* The answer is the same if this user has nothing to do with the timeline's owner, so that nobody
 * learns of others. */
static bool fail_unknown(struct request *r)
{
	return request_fail(
	    r, SHARE_ESTALE,
	    "there is no such timeline, its owner has ended too long ago to know how, or is "
	    "a process of another user that shares no pool with this one");
}

/*
 * Answers for a page whose owner has ended. A client that said goodbye had finished its streams, so
 * everything on its page was reached; one that died may have left fences that never will be.
 */
static bool fail_ended(struct request *r, uint64_t page)
{
	switch (order_page_owner(r->broker->order, page)) {
	case OWNER_DIED:
		return request_fail(r, SHARE_EOWNERDEAD, "the fence's owner has died");
	case OWNER_FINISHED:
		return request_fail(r, SHARE_ENOENT,
				    "the fence's owner has finished and said goodbye");
	case OWNER_UNKNOWN:
		break;
	}
	return fail_unknown(r);
}

bool handle_timeline(struct request *r)
{
	struct wire_message m = {.type = WIRE_TIMELINE_PAGE};
	struct broker *b = r->broker;
	uint64_t page = r->m->timeline.page;

	for (uint32_t i = 0; i < b->clients->n_slots; i++) {
		struct client *c = b->clients->by_slot[i];

		if (!c || !c->order->timelines || c->order->timelines->id != page ||
		    c->order->timelines->dead || c->state < CLIENT_READY)
			continue;
		if (!client_may_ask(r->client, c)) {
			request_hide(r,
				     "the fence is of a process of user %u, which shares no pool "
				     "with this one",
				     (unsigned)c->peer.uid);
			return fail_unknown(r);
		}
		m.timeline_page.page = page;
		c->order->timelines->in_place->known = true;
		return request_reply(
		    r, &m, (int[]){c->order->timelines->fd, c->order->timelines->pidfd}, 2);
	}
	return fail_ended(r, page);
}
