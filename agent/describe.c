/* SPDX-License-Identifier: MIT */

/* Answers the question which devices there are: an agent without a device of its own describes all
 * of them, any other only the one that it has opened. */

#include <strings.h>

#include <share/error.h>

#include "agent/agent.h"
#include "memory/device.h"

static uint32_t flags_of(const struct memory_device *d)
{
	return d->kinds | (d->events ? WIRE_DEVICE_EVENTS : 0u) |
	       (d->stream_mem_ops ? WIRE_DEVICE_STREAM_MEM_OPS : 0u) |
	       (d->mig ? WIRE_DEVICE_MIG : 0u) | (d->mig_enabled ? WIRE_DEVICE_MIG_ENABLED : 0u) |
	       (d->mps ? WIRE_DEVICE_MPS : 0u);
}

static void reply_device(struct agent *a, const struct memory_device *d)
{
	struct wire_message m = {
	    .type = WIRE_AGENT_DEVICE,
	    .agent_device = {.total = d->total,
			     .free = d->free,
			     .granularity = d->granularity,
			     .ordinal = d->ordinal,
			     .driver = d->driver,
			     .compute = d->compute,
			     .flags = flags_of(d),
			     .uuid = {d->uuid, sizeof(d->uuid)},
			     .uuid_text = wire_text(d->uuid_text),
			     .name = wire_text(d->name),
			     .pci = wire_text(d->pci)},
	};

	agent_reply(a, &m, -1);
}

/* Goes on after a device that cannot be described, so that it does not hide the others. */
static int describe_all(struct agent *a, uint32_t n, struct failure *failure)
{
	struct memory_device d;
	uint32_t n_described = 0;
	int r = 0;

	for (uint32_t i = 0; i < n; i++) {
		int failed = memory_device_describe(i, &d, failure);

		if (failed < 0) {
			agent_log("device %u: %s", i, failure->text);
			r = failed;
			continue;
		}
		reply_device(a, &d);
		n_described++;
	}
	if (n_described == 0 && r < 0)
		return r;
	agent_reply_done(a);
	return 0;
}

static int describe_opened(struct agent *a, uint32_t n, struct failure *failure)
{
	struct memory_device d;

	for (uint32_t i = 0; i < n; i++) {
		int r = memory_device_describe(i, &d, failure);

		if (r < 0)
			return r;
		/* Both begin with "GPU-" or "MIG-", which may differ, and only the rest is
		 * compared. */
		if (strcasecmp(d.uuid_text + 4, a->device + 4) == 0) {
			reply_device(a, &d);
			return 0;
		}
	}
	failure_set(failure, SHARE_ENODEV, "the device was there before, and is gone");
	failure->fatal = true;
	return SHARE_ENODEV;
}

int describe_devices(struct agent *a, const struct wire_message *m, struct failure *failure)
{
	uint32_t n;
	int r;

	(void)m;
	r = memory_devices_init(&n, failure);
	if (r < 0)
		return r;
	return a->device ? describe_opened(a, n, failure) : describe_all(a, n, failure);
}
