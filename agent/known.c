/* SPDX-License-Identifier: MIT */

/*
 * A broker that goes on for one that died says what it knows of. Other objects are of requests
 * whose answers the dead one did not get, or of which it could not say any more that they are to be
 * destroyed. No program has them. (A broker never forgets an event that a process has died with
 * while it was recorded, so the driver may be asked about these.)
 */

#include <string.h>

#include "agent/agent.h"

static int destroy_unknown(struct handles *h, bool events, struct failure *failure)
{
	void *object;
	int r = 0;

	while (r == 0 && (object = handles_take_unknown(h)))
		r = events ? event_end(object, false, failure) : segment_end(object, failure);
	return r;
}

int known_told(struct agent *a, const struct wire_message *m, struct failure *failure)
{
	const struct wire_agent_known *known = &m->agent_known;
	bool events = known->what == WIRE_KNOWN_EVENTS;
	struct handles *h = events ? &a->events : &a->segments;
	const unsigned char *bytes = known->handles.data;
	uint64_t handle;
	int r = 0;

	for (size_t i = 0; i + sizeof(handle) <= known->handles.size; i += sizeof(handle)) {
		memcpy(&handle, bytes + i, sizeof(handle));
		handles_mark(h, handle);
	}
	if (!known->more)
		r = destroy_unknown(h, events, failure);
	if (r == 0)
		agent_reply_done(a);
	return r;
}
