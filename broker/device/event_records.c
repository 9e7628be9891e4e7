/* SPDX-License-Identifier: MIT */

/*
 * Interprocess events and their leases as objects, and their records: of idle events as well, as
 * their agent goes on having them.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/records.h"
#include "broker/device/agent.h"
#include "broker/device/device.h"
#include "broker/device/ipc_event.h"
#include "broker/journal/object.h"

bool ipc_event_is_lost(const struct ipc_event *e)
{
	return e->incarnation != agent_incarnation(e->device->agent);
}

struct event_lease *ipc_event_find_lease(const struct client *client, uint64_t id)
{
	struct event_lease *lease;

	LIST_FOREACH (lease, &client->events, of_client)
		if (lease->event->id == id)
			return lease;
	return NULL;
}

void event_lease_attach(struct event_lease *lease)
{
	LIST_INSERT_HEAD(&lease->event->leases, lease, of_event);
	LIST_INSERT_HEAD(&lease->client->events, lease, of_client);
	lease->client->holds.events++;
	account_must_add(lease->client->account, PRICE_EVENT_LEASE);
}

/* ------------------------------------------------------------------------------------------- */

static struct ipc_event *find(const struct broker *b, uint64_t id)
{
	struct ipc_event *e;
	struct device *d;

	LIST_FOREACH (d, &b->devices->list, link)
		TAILQ_FOREACH (e, &d->events, link)
			if (e->id == id)
				return e;
	return NULL;
}

/* Puts an event into the bank, which has idle ones first, and then the others by identifier. */
static void file(struct device *d, struct ipc_event *e)
{
	struct ipc_event *last = TAILQ_LAST(&d->events, ipc_events);

	while (last && last->id > e->id)
		last = TAILQ_PREV(last, ipc_events, link);
	if (last)
		TAILQ_INSERT_AFTER(&d->events, last, e, link);
	else
		TAILQ_INSERT_HEAD(&d->events, e, link);
}

/* Charges an event again. It stays charged to whoever took it first, as long as the agent has
 * it. */
static int charge_again(struct broker *b, struct ipc_event *e)
{
	struct account *account;
	bool taken;

	if (!e->id && !e->wedged)
		return 0;
	account = account_get(b->accounts, e->uid);
	taken = account && charge_take_with(&e->charge, account, LIMIT_EVENTS, 1,
					    e->name ? strlen(e->name) : 0);
	account_unref(account);
	return taken ? 0 : -ENOMEM;
}

static void record_name(struct record *r, char **name)
{
	const struct iovec text = record_rest(r, *name, *name ? strlen(*name) : 0, 1);

	if (!record_reads(r) || text.iov_len == 0)
		return;
	*name = strndup(text.iov_base, text.iov_len);
	if (!*name)
		record_fail(r, -ENOMEM);
}

static void event_fields(struct record *r, void *object)
{
	struct ipc_event *e = object;

	record_device(r, &e->device);
	record_u64(r, &e->id);
	record_u64(r, &e->handle);
	record_u32(r, &e->incarnation);
	record_flag(r, &e->wedged);
	record_u32(r, &e->uid);
	record_name(r, &e->name);
	record_bytes(r, e->ipc, sizeof(e->ipc), 1);
	record_bytes(r, e->token, sizeof(e->token), 1);
}

static bool is_event(const struct broker *b, const struct ipc_event *e)
{
	return e->device && (!e->name || e->id) && e->id <= b->devices->last_event &&
	       (e->id == 0 || !find(b, e->id)) &&
	       e->incarnation <= agent_incarnation(e->device->agent);
}

static int event_attach(struct broker *b, void *object)
{
	struct ipc_event *e = object;

	if (!is_event(b, e))
		return -EBADMSG;
	file(e->device, e);
	e->device->n_leased += e->id != 0;
	return charge_again(b, e);
}

static const struct object_kind event_kind =
    OBJECT_KIND(RECORD_EVENT, "event", struct ipc_event, event_fields, event_attach);

void event_note(struct ipc_event *e)
{
	object_put(e->device->broker->journal, &event_kind, e);
}

static void lease_fields(struct record *r, void *object)
{
	struct event_lease *lease = object;
	uint64_t id = lease->event ? lease->event->id : 0;

	record_client(r, &lease->client);
	record_u64(r, &id);
	record_u32(r, &lease->count);
	if (record_reads(r) && id != 0)
		lease->event = find(r->broker, id);
}

static int lease_attach(struct broker *b, void *object)
{
	struct event_lease *lease = object;

	(void)b;
	if (!lease->client || !lease->event || lease->count == 0 ||
	    ipc_event_find_lease(lease->client, lease->event->id))
		return -EBADMSG;
	event_lease_attach(lease);
	return 0;
}

static const struct object_kind lease_kind = OBJECT_KIND(
    RECORD_EVENT_LEASE, "lease of an event", struct event_lease, lease_fields, lease_attach);

void event_lease_note(struct event_lease *lease)
{
	object_put(lease->client->broker->journal, &lease_kind, lease);
}

/* Checks that leased events, and no others, have leases, which were in the same commit. */
static int expect_leases(const struct broker *b)
{
	const struct ipc_event *e;
	const struct device *d;

	LIST_FOREACH (d, &b->devices->list, link)
		TAILQ_FOREACH (e, &d->events, link)
			if ((e->id != 0) == LIST_EMPTY(&e->leases))
				return -EBADMSG;
	return 0;
}

int events_restore(struct broker *b)
{
	int r = objects_restore(b->journal, &event_kind, b);

	if (r == 0)
		r = objects_restore(b->journal, &lease_kind, b);
	if (r == 0)
		r = expect_leases(b);
	return r;
}

int events_tell_known(struct device *d)
{
	const struct ipc_event *e;
	uint64_t *handles;
	size_t n = 0;
	int r;

	TAILQ_FOREACH (e, &d->events, link)
		n++;
	handles = malloc((n + 1) * sizeof(*handles));
	if (!handles)
		return -ENOMEM;
	n = 0;
	TAILQ_FOREACH (e, &d->events, link)
		if (!ipc_event_is_lost(e))
			handles[n++] = e->handle;
	r = agent_tell_known(d->agent, WIRE_KNOWN_EVENTS, handles, n);
	free(handles);
	return r;
}
