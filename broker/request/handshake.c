/* SPDX-License-Identifier: MIT */

/*
 * The beginning and the end of a connection: greeting, the sealing of the client's timeline page,
 * and goodbye. The page is the reason why there are two steps at the beginning: it can be sealed
 * against writers only when its one writer has mapped it.
 */

#include <stdio.h>
#include <string.h>

#include <event2/event.h>
#include <share/share.h>

#include "base/text.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/conversation.h"
#include "broker/keeper/kept.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "broker/order/records.h"
#include "broker/reply/request.h"
#include "pages/timeline.h"

bool handle_hello(struct request *r)
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
		return false;
	}
	if (!client_greets_as(c, hello->flags & WIRE_HELLO_OPERATOR))
		return false;
	e = timelines_new(r->broker->journal, ++r->broker->order->last_page, c->slot, c->peer.pidfd,
			  c->account, &c->order->timelines);
	if (e < 0)
		return request_fail(r, SHARE_ESYSTEM, "cannot create a timeline page: %s",
				    strerror(-e));
	c->order->timelines->in_place->client = c->id;
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
	return request_reply(r, &m, &c->order->timelines->fd, 1);
}

/* Has the keeper keep what the next broker needs of this client. That is done before the page is
 * sealed, as nobody can map it for writing any more then. 0 or negative errno. */
static int keep(struct client *c)
{
	struct timelines *t = c->order->timelines;
	const int fds[] = {c->socket, c->peer.pidfd, t->fd};
	const size_t sizes[] = {0, 0, sizeof(*t->page)};
	int r = kept_keep(fds, sizes, 3);

	if (r == 0)
		t->in_place->fd = kept_id(t->fd);
	return r;
}

bool handle_ready(struct request *r)
{
	struct client *c = r->client;
	int e = keep(c);

	if (e < 0)
		return request_fail(r, SHARE_ESYSTEM, "the keeper cannot keep the connection: %s",
				    strerror(-e));
	e = timeline_seal(c->order->timelines->fd);
	if (e < 0)
		return request_fail(r, SHARE_ESYSTEM, "cannot seal the timeline page: %s",
				    strerror(-e));
	event_del(c->end.timer);
	client_set_state(c, CLIENT_READY);
	return request_done(r);
}

bool handle_ping(struct request *r)
{
	return request_done(r);
}

bool handle_bye(struct request *r)
{
	client_goodbye(r->client, r->m->serial);
	return true;
}
