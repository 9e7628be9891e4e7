/* SPDX-License-Identifier: MIT */

/* Reports of devices and of the interprocess events that were made there. */

#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/device/agent.h"
#include "broker/device/device.h"
#include "broker/device/ipc_event.h"
#include "broker/reply/request.h"
#include "broker/report/report.h"
#include "memory/kind.h"

static void flag_names(const struct device *d, json_t *out)
{
	static const struct {
		uint32_t flag;
		const char *name;
	} flags[] = {
	    {WIRE_DEVICE_EVENTS, "events"}, {WIRE_DEVICE_STREAM_MEM_OPS, "stream_mem_ops"},
	    {WIRE_DEVICE_MIG, "mig"},       {WIRE_DEVICE_MIG_ENABLED, "mig_enabled"},
	    {WIRE_DEVICE_MPS, "mps"},
	};
	const struct memory_kind *kind;

	for (size_t i = 0; (kind = memory_kind_at(i)); i++)
		if (d->flags & kind->ability)
			json_array_append_new(out, json_string(kind->name));
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (d->flags & flags[i].flag)
			json_array_append_new(out, json_string(flags[i].name));
}

static struct device *nth_device(struct broker *b, uint64_t n)
{
	struct device *d = LIST_FIRST(&b->devices->list);

	while (d && n-- > 0)
		d = LIST_NEXT(d, link);
	return d;
}

void report_devices(struct page *p)
{
	uint64_t i = report_cursor(p->r);
	struct device *d;

	for (; (d = nth_device(p->r->broker, i)); i++) {
		json_t *can = json_array();

		flag_names(d, can);
		if (!report_add_at(
			p, i,
			json_pack("{s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:I, "
				  "s:I, s:I, s:I, s:b}",
				  "ordinal", report_integer(d->ordinal), "device",
				  report_text(d->uuid), "name", report_text(d->name), "pci",
				  report_text(d->pci), "compute", report_integer(d->compute),
				  "driver", report_integer(d->driver), "total",
				  report_integer(d->total), "free",
				  d->free == UINT64_MAX ? (json_int_t)-1 : report_integer(d->free),
				  "granularity", report_integer(d->granularity), "can", can,
				  "agent", report_integer((uint64_t)agent_pid(d->agent)),
				  "agent_failures", report_integer(agent_failures(d->agent)),
				  "events", report_integer(d->n_leased), "events_lost",
				  report_integer(ipc_events_wedged(d)), "gone", d->gone)))
			return;
	}
}

/* Reports what is known without asking a driver. So whoever looks again and again starts no process
 * by that, and waits for none. */
void report_agents(struct page *p)
{
	uint64_t i = report_cursor(p->r);
	const struct device *d;

	for (; (d = nth_device(p->r->broker, i)); i++) {
		if (!report_add_at(
			p, i,
			json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:b}", "device",
				  report_text(d->uuid), "name", report_text(d->name), "agent",
				  report_integer((uint64_t)agent_pid(d->agent)), "replaced",
				  report_integer(agent_incarnation(d->agent)), "total",
				  report_integer(d->total), "events", report_integer(d->n_leased),
				  "events_lost", report_integer(ipc_events_wedged(d)), "gone",
				  d->gone)))
			return;
	}
}

/* A cursor says in one number of which device the event was, and which event it was: identifiers
 * will not need more bits than these. */
#define EVENT_BITS 48

static json_t *describe_event(const struct ipc_event *e)
{
	const struct event_lease *lease;
	json_int_t leases = 0;

	LIST_FOREACH (lease, &e->leases, of_event)
		leases += lease->count;
	return json_pack("{s:o, s:s?, s:s, s:I, s:I, s:b, s:b}", "event", report_identifier(e->id),
			 "name", e->name, "device", e->device->uuid, "uid", report_integer(e->uid),
			 "leases", leases, "wedged", e->wedged, "lost", ipc_event_is_lost(e));
}

/* A device's bank is in the order of identifiers, so the cursor's one is where it goes on. */
void report_events(struct page *p)
{
	uint64_t cursor = report_cursor(p->r), i = cursor >> EVENT_BITS;
	uint64_t after = cursor & ((UINT64_C(1) << EVENT_BITS) - 1);
	const struct client *c = p->r->client;
	const struct ipc_event *e;
	struct device *d;

	for (; (d = nth_device(p->r->broker, i)); i++, after = 0) {
		TAILQ_FOREACH (e, &d->events, link) {
			if (e->id <= after || !client_answers_for(c, e->uid))
				continue;
			if (!report_add_at(p, i << EVENT_BITS | after, describe_event(e)))
				return;
			after = e->id;
		}
	}
}
