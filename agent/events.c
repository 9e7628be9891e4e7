/* SPDX-License-Identifier: MIT */

/* Interprocess events of CUDA. The agent creates them for all clients of the broker, since an event
 * ends with the process that created it, and an agent outlives its clients. */

#include <share/error.h>

#include "agent/agent.h"
#include "memory/device.h"

int event_create(struct agent *a, const struct wire_message *m, struct failure *failure)
{
	struct wire_message reply = {.type = WIRE_AGENT_EVENT};
	struct memory_event *event;
	unsigned char ipc[64];
	int r;

	(void)m;
	r = memory_event_create(&event, ipc, failure);
	if (r < 0)
		return r;
	if (handles_add(&a->events, event, &reply.agent_event.handle) < 0) {
		memory_event_destroy(event, false, failure);
		return failure_set(failure, SHARE_ENOMEM, "no memory for an event");
	}
	reply.agent_event.ipc = (struct wire_bytes){ipc, sizeof(ipc)};
	agent_reply(a, &reply, -1);
	return 0;
}

int event_end(void *event, bool wedged, struct failure *failure)
{
	int r = memory_event_destroy(event, wedged, failure);

	if (r < 0)
		failure->fatal = true; /* with this process the event goes as well */
	return r;
}

int event_destroy(struct agent *a, const struct wire_message *m, struct failure *failure)
{
	struct memory_event *event = handles_take(&a->events, m->agent_event_destroy.handle);
	int r;

	if (!event)
		return failure_set(failure, SHARE_ENOENT, "this agent has made no such event");
	r = event_end(event, m->agent_event_destroy.wedged, failure);
	if (r == 0)
		agent_reply_done(a);
	return r;
}
