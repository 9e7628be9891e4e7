/* SPDX-License-Identifier: MIT */

/*
 * Agents that outlive their broker. The keeper has the socket and the pidfd of each before it is
 * asked anything, so an agent does not notice that a broker is gone. Only when the keeper is gone
 * as well its socket ends, and then the agent ends, too. The next broker goes on with it: it has
 * the same incarnation, and its segments and events are those of the journal.
 *
 * What the agent has and the journal does not comes from requests of the dead broker, whose answers
 * nobody has got, or is objects that the dead broker could not tell the agent to destroy any more.
 * So the agent is told first which objects are known: it destroys the others. Those of requests
 * that it had not come to are among them, as requests are handled in order.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "broker/device/agent.h"
#include "broker/device/device.h"
#include "broker/device/inside.h"
#include "broker/journal/object.h"
#include "wire/wire.h"

int agents_restore(struct broker *b)
{
	struct device *d;
	int r = objects_restore(b->journal, &agent_kind, b);

	LIST_FOREACH (d, &b->devices->list, link)
		if (r == 0 && d->agent->process)
			r = agent_listen(d->agent);
	return r;
}

#define KNOWN_AT_ONCE 4096 /* the most handles in a message */

/* Frees the message. An agent that cannot destroy something ends, and that is logged there. */
static void on_known(void *data, const struct wire_message *m, struct fd_list *fds, int error,
		     const char *text)
{
	(void)m, (void)fds, (void)error, (void)text;
	free(data);
}

static int tell_known(struct agent *a, enum wire_known what, const uint64_t *handles, size_t n,
		      bool more)
{
	struct wire_message m = {.type = WIRE_AGENT_KNOWN};
	uint64_t *copy = malloc((n + 1) * sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	if (n > 0)
		memcpy(copy, handles, n * sizeof(*copy));
	m.agent_known.what = what;
	m.agent_known.more = more;
	m.agent_known.handles = (struct wire_bytes){copy, (uint32_t)(n * sizeof(*copy))};
	if (agent_ask(a, &m, -1, on_known, copy) == 0)
		return 0;
	free(copy);
	return -ENOMEM;
}

int agent_tell_known(struct agent *a, enum wire_known what, const uint64_t *handles, size_t n)
{
	int r = 0;

	if (!a->is_taken_over)
		return 0;
	do {
		size_t part = n > KNOWN_AT_ONCE ? KNOWN_AT_ONCE : n;

		r = tell_known(a, what, handles, part, n > part);
		handles += part;
		n -= part;
	} while (r == 0 && n > 0);
	return r;
}
