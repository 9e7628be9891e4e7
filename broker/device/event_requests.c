/* SPDX-License-Identifier: MIT */

/* Requests about interprocess events. */

#include <inttypes.h>
#include <string.h>

#include <share/share.h>

#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/device/device.h"
#include "broker/device/ipc_event.h"
#include "broker/reply/request.h"

static bool reply_event(struct request *r, const struct event_lease *lease)
{
	const struct ipc_event *e = lease->event;
	struct wire_message m = {.type = WIRE_EVENT};

	m.event = (struct wire_event){
	    .event = e->id,
	    .device = wire_text(e->device->uuid),
	    .handle = {e->ipc, sizeof(e->ipc)},
	    .token = {e->token, sizeof(e->token)},
	};
	return request_reply(r, &m, NULL, 0);
}

/* Finds the device that was asked for, or the first that can make events. NULL when answered. */
static struct device *find_device(struct request *r, const struct wire_bytes *uuid)
{
	struct broker *b = r->broker;
	struct device *d;

	if (devices_error(b) != 0) {
		request_fail(r, devices_error(b), "%s", b->devices->text);
		return NULL;
	}
	LIST_FOREACH (d, &b->devices->list, link) {
		if (d->gone)
			continue;
		if (uuid->size == 0 ? d->flags & WIRE_DEVICE_EVENTS
				    : strlen(d->uuid) == uuid->size &&
					  memcmp(d->uuid, uuid->data, uuid->size) == 0)
			break;
	}
	if (!d)
		request_fail(r, SHARE_ENODEV, "there is no device %.*s here (sharectl devices)",
			     uuid->size ? (int)uuid->size : 15,
			     uuid->size ? (const char *)uuid->data : "that has events");
	else if (!(d->flags & WIRE_DEVICE_EVENTS)) {
		request_fail(r, SHARE_ENOTSUP, "%s cannot make interprocess events", d->uuid);
		d = NULL;
	}
	return d;
}

bool handle_event_create(struct request *r)
{
	const struct wire_event_create *m = &r->m->event_create;
	struct broker *b = r->broker;
	struct event_lease *lease;
	struct device *d;

	if (m->name.size && !request_name(r, &m->name))
		return false;
	if (m->name.size && ipc_event_by_name(b, r->client->peer.uid, m->name.data, m->name.size))
		return request_fail(r, SHARE_EEXIST, "there is an event '%.*s' already",
				    (int)m->name.size, (const char *)m->name.data);
	if (!devices_known(b, false))
		return request_defer(r, &b->devices->waits);
	d = find_device(r, &m->device);
	if (!d)
		return false;
	switch (ipc_event_take(d, r->client, m->name.data, m->name.size, &lease)) {
	case 0:
		return reply_event(r, lease);
	case IPC_EVENT_LATER:
		return request_defer(r, &d->event_waits);
	case IPC_EVENT_QUOTA:
		return request_fail_quota(r, LIMIT_EVENTS, "");
	default:
		return request_fail_memory(r);
	}
}

bool handle_event_open(struct request *r)
{
	const struct wire_event_open *m = &r->m->event_open;
	struct event_lease *lease;
	struct ipc_event *e;

	if (m->token.size == IPC_EVENT_TOKEN)
		e = ipc_event_by_token(r->broker, m->token.data);
	else if (!request_name(r, &m->name))
		return false;
	else
		e = ipc_event_by_name(r->broker, r->client->peer.uid, m->name.data, m->name.size);
	if (!e)
		return request_fail(r, SHARE_ENOENT,
				    m->token.size ? "there is no such event (any more)"
						  : "there is no event of that name");
	if (ipc_event_is_lost(e))
		return request_fail(r, SHARE_ESTALE,
				    "the event has ended with its agent, which had to be replaced");
	if (!ipc_event_find_lease(r->client, e->id) &&
	    !account_may_add(r->client->account, LIMIT_MEMORY, PRICE_EVENT_LEASE))
		return request_fail_quota(r, LIMIT_MEMORY, "");
	lease = ipc_event_lease(e, r->client);
	return lease ? reply_event(r, lease) : request_fail_memory(r);
}

bool handle_event_release(struct request *r)
{
	struct event_lease *lease = ipc_event_find_lease(r->client, r->m->event_release.event);

	if (!lease)
		return request_fail(r, SHARE_ESTALE, "this client does not hold that event");
	ipc_event_return(lease, 1, false);
	return request_done(r);
}
