/* SPDX-License-Identifier: MIT */

/*
 * The bank of interprocess events. Each costs the driver one of the 4096 slots that a process has,
 * and asking the driver about an event that a killed process had recorded can block for ever. So
 * such events are never touched again. When they have used the slots up and no other event is
 * leased, the agent is replaced, which frees them all.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <share/share.h>

#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/device/agent.h"
#include "broker/device/device.h"
#include "broker/device/ipc_event.h"
#include "broker/journal/journal.h"
#include "wire/wire.h"

uint32_t ipc_events_wedged(const struct device *d)
{
	const struct ipc_event *e;
	uint32_t n = 0;

	TAILQ_FOREACH (e, &d->events, link)
		n += e->id == 0 && e->wedged && !ipc_event_is_lost(e);
	return n;
}

static void tell_agent(const struct ipc_event *e)
{
	struct wire_message m = {.type = WIRE_AGENT_EVENT_DESTROY};

	m.agent_event_destroy.handle = e->handle;
	m.agent_event_destroy.wedged = e->wedged;
	agent_ask_to_destroy(e->device->agent, &m, "an event");
}

static void free_ipc_event(struct ipc_event *e)
{
	TAILQ_REMOVE(&e->device->events, e, link);
	journal_drop(e->device->broker->journal, &e->record);
	charge_return(&e->charge);
	free(e->name);
	free(e);
}

void ipc_events_deinit(struct device *d)
{
	while (!TAILQ_EMPTY(&d->events))
		free_ipc_event(TAILQ_FIRST(&d->events));
}

/* Frees events without a lease that an earlier process of the agent made, as they are gone with
 * it. */
static void drop_lost(struct device *d)
{
	struct ipc_event *e = TAILQ_FIRST(&d->events);

	while (e) {
		struct ipc_event *next = TAILQ_NEXT(e, link);

		if (e->id == 0 && ipc_event_is_lost(e))
			free_ipc_event(e);
		e = next;
	}
}

/* ------------------------------------------------------------------------------------------- */

static int add_to_bank(struct device *d, const struct wire_agent_event *m)
{
	struct ipc_event *e;

	if (m->ipc.size != IPC_EVENT_HANDLE)
		return -EPROTO;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->device = d;
	e->handle = m->handle;
	e->incarnation = agent_incarnation(d->agent);
	memcpy(e->ipc, m->ipc.data, IPC_EVENT_HANDLE);
	LIST_INIT(&e->leases);
	TAILQ_INSERT_HEAD(&d->events, e, link);
	event_note(e);
	return 0;
}

static struct ipc_event *find_idle(struct device *d)
{
	struct ipc_event *e;

	TAILQ_FOREACH (e, &d->events, link)
		if (e->id == 0 && !e->wedged && !ipc_event_is_lost(e))
			return e;
	return NULL;
}

static void on_event(void *data, const struct wire_message *m, struct fd_list *fds, int error,
		     const char *text);

/* Asks for one event at a time, however many requests wait. */
static int make_one(struct device *d)
{
	const struct wire_message m = {.type = WIRE_AGENT_EVENT_CREATE};

	if (d->making_event)
		return 0;
	if (agent_ask(d->agent, &m, -1, on_event, d) < 0)
		return -ENOMEM;
	d->making_event = true;
	return 0;
}

/* Wakes as many requests as there are events for. The next event is asked for by the first request
 * that finds none. */
static void serve(struct device *d)
{
	struct deferred_list *waits = &d->event_waits;

	while (!TAILQ_EMPTY(waits) && find_idle(d))
		deferred_wake_first(d->broker, waits);
	if (!TAILQ_EMPTY(waits) && make_one(d) < 0)
		deferred_fail(waits, SHARE_ESYSTEM, "the broker is out of memory");
}

static void on_event(void *data, const struct wire_message *m, struct fd_list *fds, int error,
		     const char *text)
{
	struct device *d = data;
	int r = m && m->type == WIRE_AGENT_EVENT ? add_to_bank(d, &m->agent_event) : -EPROTO;

	(void)fds;
	d->making_event = false;
	if (error == SHARE_EQUOTA && ipc_events_wedged(d) > 0 && d->n_leased == 0 &&
	    d->n_of_agents == 0) {
		agent_replace(d->agent, "processes have died with all the events it can make");
		serve(d);
	} else if (error) {
		deferred_fail(&d->event_waits, error, text);
	} else if (r < 0) {
		deferred_fail(&d->event_waits, SHARE_ESYSTEM,
			      r == -ENOMEM ? "the broker is out of memory"
					   : "the agent did not make an event");
	} else {
		serve(d);
	}
}

int ipc_event_take(struct device *d, struct client *client, const void *name, size_t name_size,
		   struct event_lease **out)
{
	struct event_lease *lease;
	struct device *any;
	struct ipc_event *e;
	char *copy = NULL;

	/* the user may have paid for some of them until now */
	LIST_FOREACH (any, &client->broker->devices->list, link)
		drop_lost(any);
	if (!account_may_add(client->account, LIMIT_EVENTS, 1))
		return IPC_EVENT_QUOTA;
	e = find_idle(d);
	if (!e)
		return make_one(d) < 0 ? -ENOMEM : IPC_EVENT_LATER;
	if (getrandom(e->token, sizeof(e->token), 0) != (ssize_t)sizeof(e->token))
		return -EIO;
	if (name_size > 0 && !(copy = strndup(name, name_size)))
		return -ENOMEM;
	if (!charge_take_with(&e->charge, client->account, LIMIT_EVENTS, 1, name_size)) {
		free(copy);
		return IPC_EVENT_QUOTA;
	}
	e->id = client->broker->devices->last_event + 1;
	lease = ipc_event_lease(e, client);
	if (!lease) {
		e->id = 0;
		charge_return(&e->charge);
		free(copy);
		return -ENOMEM;
	}
	client->broker->devices->last_event++;
	/* identifiers only grow, so the bank stays in their order */
	TAILQ_REMOVE(&d->events, e, link);
	TAILQ_INSERT_TAIL(&d->events, e, link);
	e->name = copy;
	e->uid = client->peer.uid;
	d->n_leased++;
	event_note(e);
	*out = lease;
	return 0;
}

/* ------------------------------------------------------------------------------------------- */

struct ipc_event *ipc_event_by_name(struct broker *b, uid_t uid, const void *name, size_t size)
{
	struct ipc_event *e;
	struct device *d;

	LIST_FOREACH (d, &b->devices->list, link)
		TAILQ_FOREACH (e, &d->events, link)
			if (e->id && e->name && e->uid == uid && strlen(e->name) == size &&
			    memcmp(e->name, name, size) == 0)
				return e;
	return NULL;
}

/* Takes the same time for every near miss. */
static bool is_token(const struct ipc_event *e, const unsigned char *token)
{
	unsigned char difference = 0;

	for (size_t i = 0; i < IPC_EVENT_TOKEN; i++)
		difference |= e->token[i] ^ token[i];
	return difference == 0;
}

struct ipc_event *ipc_event_by_token(struct broker *b, const unsigned char *token)
{
	struct ipc_event *e;
	struct device *d;

	LIST_FOREACH (d, &b->devices->list, link)
		TAILQ_FOREACH (e, &d->events, link)
			if (e->id && is_token(e, token))
				return e;
	return NULL;
}

struct event_lease *ipc_event_lease(struct ipc_event *e, struct client *client)
{
	struct event_lease *lease;

	LIST_FOREACH (lease, &e->leases, of_event)
		if (lease->client == client)
			break;
	if (lease && lease->count == UINT32_MAX)
		return NULL;
	if (!lease) {
		lease = calloc(1, sizeof(*lease));
		if (!lease)
			return NULL;
		lease->event = e;
		lease->client = client;
		event_lease_attach(lease);
	}
	lease->count++;
	event_lease_note(lease);
	return lease;
}

void ipc_event_return(struct event_lease *lease, uint32_t count, bool died)
{
	struct ipc_event *e = lease->event;
	struct device *d = e->device;

	if (died && !e->wedged) {
		e->wedged = true;
		event_note(e);
	}
	lease->count -= count;
	if (lease->count > 0) {
		event_lease_note(lease);
		return;
	}
	LIST_REMOVE(lease, of_event);
	LIST_REMOVE(lease, of_client);
	lease->client->holds.events--;
	account_give_back(lease->client->account, PRICE_EVENT_LEASE);
	journal_drop(d->broker->journal, &lease->record);
	free(lease);
	if (!LIST_EMPTY(&e->leases))
		return;
	d->n_leased--;
	e->id = 0;
	free(e->name);
	e->name = NULL;
	event_note(e);
	if (!d->agent || ipc_event_is_lost(e)) {
		free_ipc_event(e);
		return;
	}
	tell_agent(e);
	/* the slot of a wedged event is not free before the agent ends, so it stays charged to
	 * whoever took it */
	if (!e->wedged)
		free_ipc_event(e);
}

bool client_return_events(struct client *c, int *budget)
{
	for (; *budget > 0; --*budget) {
		struct event_lease *lease = LIST_FIRST(&c->events);

		if (!lease)
			return true;
		/* a client that said goodbye had finished with them */
		ipc_event_return(lease, lease->count, !c->requests.goodbye);
	}
	return false;
}
