/* SPDX-License-Identifier: MIT */

/* The records of interprocess events, of idle ones as well, as their agent goes on having them. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "broker/broker.h"
#include "broker/client/account.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/records.h"
#include "broker/device/agent.h"
#include "broker/device/device.h"
#include "broker/device/ipc_event.h"
#include "broker/journal/journal.h"
#include "broker/log/log.h"

struct event_record {
	char device[64];
	uint64_t id, handle;
	uint32_t incarnation, wedged, uid, name_size; /* the name follows */
	unsigned char ipc[IPC_EVENT_HANDLE], token[IPC_EVENT_TOKEN];
};

void event_note(struct ipc_event *e)
{
	struct event_record r = {
	    .id = e->id,
	    .handle = e->handle,
	    .incarnation = e->incarnation,
	    .wedged = e->wedged,
	    .uid = (uint32_t)e->uid,
	    .name_size = e->name ? (uint32_t)strlen(e->name) : 0,
	};
	const struct iovec parts[] = {{&r, sizeof(r)}, {e->name, r.name_size}};

	memcpy(r.device, e->device->uuid, sizeof(r.device));
	memcpy(r.ipc, e->ipc, sizeof(r.ipc));
	memcpy(r.token, e->token, sizeof(r.token));
	journal_put_parts(e->device->broker->journal, RECORD_EVENT, &e->record, parts, 2);
}

struct event_lease_record {
	uint64_t client, event;
	uint32_t count, unused;
};

void event_lease_note(struct event_lease *lease)
{
	const struct event_lease_record r = {lease->client->id, lease->event->id, lease->count, 0};

	journal_put(lease->client->broker->journal, RECORD_EVENT_LEASE, &lease->record, &r,
		    sizeof(r));
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

/* The bank has idle ones first, and then the others by identifier. */
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

/* It stays charged to whoever took it first, as long as the agent has it. */
static int charge_again(struct broker *b, struct ipc_event *e)
{
	struct account *account;
	bool taken;

	if (!e->id && !e->wedged)
		return 0;
	account = account_get(b->accounts, e->uid);
	taken = account && charge_take(&e->charge, account, LIMIT_EVENTS, 1);
	account_unref(account);
	return taken ? 0 : -ENOMEM;
}

static bool is_event(const struct broker *b, const struct device *d, const struct event_record *r,
		     size_t room)
{
	return d && r->name_size <= room && (r->name_size == 0 || r->id) && r->id <= b->ids.event &&
	       (r->id == 0 || !find(b, r->id)) && r->incarnation <= agent_incarnation(d->agent);
}

static int read_event(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct broker *b = data;
	const char *name = (const char *)bytes + sizeof(struct event_record);
	struct event_record r;
	struct device *d = NULL;
	struct ipc_event *e;

	memcpy(&r, bytes, sizeof(r));
	if (strnlen(r.device, sizeof(r.device)) < sizeof(r.device))
		d = device_find_any(b, r.device);
	if (!is_event(b, d, &r, size - sizeof(r)))
		return -EBADMSG;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	*e = (struct ipc_event){.device = d,
				.id = r.id,
				.handle = r.handle,
				.incarnation = r.incarnation,
				.wedged = r.wedged,
				.uid = r.uid,
				.record = record};
	memcpy(e->ipc, r.ipc, sizeof(e->ipc));
	memcpy(e->token, r.token, sizeof(e->token));
	file(d, e);
	d->n_leased += e->id != 0;
	d->n_lost += e->id == 0 && e->wedged && !ipc_event_is_lost(e);
	if (r.name_size > 0 && !(e->name = strndup(name, r.name_size)))
		return -ENOMEM;
	return charge_again(b, e);
}

static int read_event_lease(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct broker *b = data;
	struct event_lease_record r;
	struct event_lease *lease;
	struct ipc_event *e;
	struct client *c;

	(void)size;
	memcpy(&r, bytes, sizeof(r));
	c = clients_find(b->clients, r.client);
	e = r.event ? find(b, r.event) : NULL;
	if (!c || !e || r.count == 0 || ipc_event_find_lease(c, r.event))
		return -EBADMSG;
	lease = ipc_event_lease(e, c);
	if (!lease)
		return -ENOMEM;
	journal_drop(b->journal, &lease->record);
	lease->record = record;
	lease->count = r.count;
	return 0;
}

/* Each that is leased has its lease in the same commit. */
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
	int r = journal_read(b->journal, RECORD_EVENT, sizeof(struct event_record), read_event, b);

	if (r == 0)
		r = journal_read(b->journal, RECORD_EVENT_LEASE, sizeof(struct event_lease_record),
				 read_event_lease, b);
	if (r == 0)
		r = expect_leases(b);
	if (r < 0)
		log_error("the journal's events cannot be made again: %s", strerror(-r));
	b->devices->last_event = b->ids.event;
	return r;
}

/* 0 or -ENOMEM */
static int tell_known(struct device *d)
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

int events_tell_known(struct broker *b)
{
	struct device *d;
	int r = 0;

	LIST_FOREACH (d, &b->devices->list, link)
		r = r == 0 ? tell_known(d) : r;
	return r;
}
