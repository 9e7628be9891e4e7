/* SPDX-License-Identifier: MIT */

/*
 * What keeps a connection going: greeting, the sealing of the client's timeline page, goodbye, and
 * the give and take of mappings. The page is the reason for the two steps: it can be sealed
 * against writers only once its one writer has mapped it.
 */

#include <stdio.h>
#include <string.h>

#include <event2/event.h>
#include <share/share.h>

#include "base/text.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/conversation.h"
#include "broker/client/request.h"
#include "broker/keeper/kept.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/memory.h"
#include "broker/memory/segment.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "broker/order/records.h"
#include "pages/timeline.h"

void handle_hello(struct request *r)
{
	const struct wire_hello *hello = &r->m->hello;
	struct wire_message m = {.type = WIRE_WELCOME};
	struct client *c = r->client;
	char label[sizeof(c->label)], why[128];
	int e;

	if (hello->version < hello->oldest || hello->oldest > WIRE_VERSION ||
	    hello->version < WIRE_VERSION_OLDEST) {
		snprintf(why, sizeof(why),
			 "this broker speaks versions %d to %d of the protocol, you %u to %u",
			 WIRE_VERSION_OLDEST, WIRE_VERSION, hello->oldest, hello->version);
		request_fail(r, SHARE_EPROTO, "%s", why);
		client_hang_up(c, SHARE_EPROTO, why);
		return;
	}
	if (!client_greets_as(c, hello->flags & WIRE_HELLO_OPERATOR))
		return;
	e = timelines_new(r->broker->journal, ++r->broker->order->last_page, c->slot, c->peer.pidfd,
			  c->account, &c->order->timelines);
	if (e < 0) {
		request_fail(r, SHARE_ESYSTEM, "cannot create a timeline page: %s", strerror(-e));
		return;
	}
	c->order->timelines->kept->client = c->id;
	memcpy(label, hello->label.data, hello->label.size);
	label[hello->label.size] = '\0';
	text_printable(label, c->label, sizeof(c->label));
	client_set_state(c, CLIENT_GREETED);
	c->version = hello->version < WIRE_VERSION ? hello->version : WIRE_VERSION;
	m.welcome = (struct wire_welcome){
	    .version = c->version,
	    .slots = TIMELINE_SLOTS,
	    .page = c->order->timelines->id,
	    .client = c->id,
	};
	request_reply(r, &m, &c->order->timelines->fd, 1);
}

/* The keeper has what the next broker needs of this client: before the page is sealed, as nobody
 * can map it for writing any more then. 0 or negative errno. */
static int keep(struct client *c)
{
	struct timelines *t = c->order->timelines;
	const int fds[] = {c->socket, c->peer.pidfd, t->fd};
	const size_t sizes[] = {0, 0, sizeof(*t->page)};
	int r = kept_keep(fds, sizes, 3);

	if (r == 0)
		timelines_kept(t);
	return r;
}

void handle_ready(struct request *r)
{
	struct client *c = r->client;
	int e = keep(c);

	if (e < 0) {
		request_fail(r, SHARE_ESYSTEM, "the keeper cannot keep the connection: %s",
			     strerror(-e));
		return;
	}
	e = timeline_seal(c->order->timelines->fd);
	if (e < 0) {
		request_fail(r, SHARE_ESYSTEM, "cannot seal the timeline page: %s", strerror(-e));
		return;
	}
	event_del(c->timer);
	client_set_state(c, CLIENT_READY);
	request_done(r);
}

void handle_ping(struct request *r)
{
	request_done(r);
}

void handle_bye(struct request *r)
{
	client_goodbye(r->client, r->m->serial);
}

/* Or it is nobody's whom this user has anything to do with. */
static void fail_unknown(struct request *r)
{
	request_fail(
	    r, SHARE_ESTALE,
	    "there is no such timeline, its owner has ended too long ago to know how, or is "
	    "a process of another user that shares no pool with this one");
}

/*
 * Whose owner has ended: a client that said goodbye had finished its streams, so everything on its
 * page was reached; one that died may have left things that never will be.
 */
static void fail_ended(struct request *r, uint64_t page)
{
	switch (order_page_owner(r->broker->order, page)) {
	case OWNER_DIED:
		request_fail(r, SHARE_EOWNERDEAD, "the fence's owner has died");
		break;
	case OWNER_FINISHED:
		request_fail(r, SHARE_ENOENT, "the fence's owner has finished and said goodbye");
		break;
	case OWNER_UNKNOWN:
		fail_unknown(r);
		break;
	}
}

void handle_timeline(struct request *r)
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
			fail_unknown(r);
			return;
		}
		m.timeline_page.page = page;
		c->order->timelines->kept->known = true;
		request_reply(r, &m, (int[]){c->order->timelines->fd, c->order->timelines->pidfd},
			      2);
		return;
	}
	fail_ended(r, page);
}

void handle_segment_retired(struct request *r)
{
	struct segment *s = segment_find(r->broker, r->m->segment_retired.segment);

	if (!s || !segment_retired(r->broker, s, r->client))
		client_hang_up(r->client, SHARE_EPROTO,
			       "SEGMENT_RETIRED for a segment it was not asked to unmap");
}
