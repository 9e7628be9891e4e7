/* SPDX-License-Identifier: MIT */

/*
 * Which devices there are. The broker cannot look for itself, as it never calls CUDA: it starts an
 * agent without a device, a scout, which describes them all and is let go. Each device has an agent
 * of its own for what is to be done there.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <share/share.h>

#include "base/clock.h"
#include "broker/broker.h"
#include "broker/device/agent.h"
#include "broker/device/child.h"
#include "broker/device/device.h"
#include "broker/device/ipc_event.h"
#include "broker/journal/object.h"
#include "broker/log/log.h"
#include "memory/kind.h"
#include "wire/wire.h"

#define GOOD_FOR_MS 1000

static void copy_text(char *out, size_t size, const struct wire_bytes *in)
{
	snprintf(out, size, "%.*s", (int)in->size, (const char *)in->data);
}

/* Puts a device last among the others. 0, or -ENOMEM when nothing has changed. */
static int add_in_order(struct broker *b, struct device *d)
{
	struct device *last = NULL, *each;
	int r = agent_new(b, d->uuid, &d->agent);

	if (r < 0)
		return r;
	d->broker = b;
	TAILQ_INIT(&d->events);
	TAILQ_INIT(&d->event_waits);
	LIST_FOREACH (each, &b->devices->list, link)
		last = each;
	if (last)
		LIST_INSERT_AFTER(last, d, link);
	else
		LIST_INSERT_HEAD(&b->devices->list, d, link);
	return 0;
}

static struct device *add(struct broker *b, const char *uuid)
{
	struct device *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	snprintf(d->uuid, sizeof(d->uuid), "%s", uuid);
	d->gone = d->was_gone = true;
	if (add_in_order(b, d) < 0) {
		free(d);
		return NULL;
	}
	return d;
}

static void describe(struct broker *b, const struct wire_agent_device *m)
{
	const struct memory_kind *kind;
	char uuid[64];
	struct device *d;

	copy_text(uuid, sizeof(uuid), &m->uuid_text);
	d = device_find(b, uuid);
	if (!d && !(d = add(b, uuid))) {
		log_warning("no memory for device %s", uuid);
		return;
	}
	copy_text(d->name, sizeof(d->name), &m->name);
	copy_text(d->pci, sizeof(d->pci), &m->pci);
	d->total = m->total;
	d->free = m->free;
	/* it is a divisor and a mask, with which no process is trusted */
	d->granularity = m->granularity & (m->granularity - 1) ? 0 : m->granularity;
	d->ordinal = m->ordinal;
	d->driver = m->driver;
	d->compute = m->compute;
	d->flags = m->flags;
	for (size_t i = 0; d->granularity == 0 && (kind = memory_kind_at(i)); i++)
		if (kind->device_granularity)
			d->flags &= ~kind->ability;
	d->found = true;
}

static void start_over(struct broker *b)
{
	struct device *d;

	LIST_FOREACH (d, &b->devices->list, link)
		d->found = false;
}

/* Called when all devices have been described. */
static void all_described(struct broker *b)
{
	struct device *d;

	b->devices->known = true;
	LIST_FOREACH (d, &b->devices->list, link)
		d->gone = !d->found;
}

static void finish(struct broker *b, int error, const char *text)
{
	struct devices *all = b->devices;
	struct device *d;

	all->looking = false;
	all->looked_ms = clock_ms();
	all->error = error;
	snprintf(all->text, sizeof(all->text), "%s", text ? text : "");
	LIST_FOREACH (d, &all->list, link) {
		if (d->gone != d->was_gone)
			log_info("device %s: %s, %llu MiB%s", d->uuid, d->name,
				 (unsigned long long)(d->total >> 20), d->gone ? ", gone" : "");
		d->was_gone = d->gone;
		device_note(d);
	}
	if (error)
		log_debug("no devices: %s", text);
	if (error != SHARE_ECANCELED)
		agent_replace(all->scout, NULL);
	deferred_wake(b, &all->waits);
}

static void on_answer(void *data, const struct wire_message *m, struct fd_list *fds, int error,
		      const char *text)
{
	struct broker *b = data;

	(void)fds;
	if (!m) {
		finish(b, error, text);
	} else if (m->type == WIRE_AGENT_DEVICE) {
		describe(b, &m->agent_device);
	} else {
		all_described(b);
		finish(b, 0, NULL);
	}
}

bool devices_known(struct broker *b, bool fresh)
{
	const struct wire_message m = {.type = WIRE_AGENT_DEVICE_GET};
	struct devices *all = b->devices;

	if (!fresh && all->known)
		return true;
	if (!all->looking && all->looked_ms && clock_ms() - all->looked_ms < GOOD_FOR_MS)
		return true;
	if (all->looking)
		return false;
	if (agent_ask(all->scout, &m, -1, on_answer, b) < 0) {
		all->looked_ms = clock_ms();
		all->error = SHARE_ESYSTEM;
		snprintf(all->text, sizeof(all->text), "the broker is out of memory");
		return true;
	}
	all->looking = true;
	start_over(b);
	return false;
}

int devices_error(const struct broker *b)
{
	return b->devices->known ? 0 : b->devices->error;
}

void devices_look_at_agents(struct broker *b)
{
	const struct device *d;

	children_look(b);
	agent_look(b->devices->scout);
	LIST_FOREACH (d, &b->devices->list, link)
		agent_look(d->agent);
}

unsigned devices_processes(const struct broker *b)
{
	unsigned n = children_count(b) + (agent_pid(b->devices->scout) > 0);
	const struct device *d;

	LIST_FOREACH (d, &b->devices->list, link)
		n += agent_pid(d->agent) > 0;
	return n;
}

int devices_init(struct broker *b)
{
	LIST_INIT(&b->devices->list);
	LIST_INIT(&b->devices->children);
	TAILQ_INIT(&b->devices->waits);
	return agent_new(b, NULL, &b->devices->scout);
}

void devices_stop(struct broker *b)
{
	struct device *d;

	/* whatever was asked is answered before anything goes that the answers lead to */
	agent_free(b->devices->scout);
	b->devices->scout = NULL;
	LIST_FOREACH (d, &b->devices->list, link) {
		agent_free(d->agent);
		d->agent = NULL;
	}
}

void devices_free(struct broker *b)
{
	struct device *d;

	while ((d = LIST_FIRST(&b->devices->list))) {
		ipc_events_deinit(d);
		LIST_REMOVE(d, link);
		free(d);
	}
	children_forget(b);
}

/* ------------------------------------------------------------------------------------------- */

static void device_fields(struct record *r, void *object)
{
	struct device *d = object;

	record_u64(r, &d->total);
	record_u64(r, &d->free);
	record_u64(r, &d->granularity);
	record_u32(r, &d->ordinal);
	record_u32(r, &d->driver);
	record_u32(r, &d->compute);
	record_u32(r, &d->flags);
	record_flag(r, &d->gone);
	record_text(r, d->uuid, sizeof(d->uuid));
	record_text(r, d->name, sizeof(d->name));
	record_text(r, d->pci, sizeof(d->pci));
}

static int device_attach(struct broker *b, void *object)
{
	struct device *d = object;

	if (d->granularity & (d->granularity - 1) || device_find(b, d->uuid))
		return -EBADMSG;
	d->was_gone = d->gone;
	b->devices->known = true;
	return add_in_order(b, d);
}

static const struct object_kind device_kind =
    OBJECT_KIND(RECORD_DEVICE, "device", struct device, device_fields, device_attach);

void device_note(struct device *d)
{
	object_put(d->broker->journal, &device_kind, d);
}

int devices_restore(struct broker *b)
{
	int r = objects_restore(b->journal, &device_kind, b);

	if (r == 0)
		r = agents_restore(b);
	if (r == 0)
		r = objects_restore(b->journal, &child_kind, b);
	return r;
}
