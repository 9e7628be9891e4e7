/* SPDX-License-Identifier: MIT */

/*
 * Agents that outlive their broker. The keeper has the socket and the pidfd of each before it is
 * asked anything, so it does not notice that a broker is gone; only when the keeper is gone as well
 * its socket ends, and it does too. The next broker goes on with it: the same incarnation, whose
 * segments and events are the journal's.
 *
 * What the agent has and the journal does not is of requests that the dead broker has made, whose
 * answers nobody has got, or of objects that it could not tell the agent to destroy any more. So
 * the first that an agent is told is which objects are known: it destroys the others, those of
 * requests that it had not come to among them, as requests are handled in order.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "broker/device/agent.h"
#include "broker/device/child.h"
#include "broker/device/device.h"
#include "broker/device/inside.h"
#include "broker/journal/journal.h"
#include "broker/keeper/kept.h"
#include "wire/wire.h"

struct agent_record {
	char device[64];
	uint32_t incarnation;
	int32_t pid;            /* 0: none is running */
	uint32_t socket, pidfd; /* as the keeper has them */
};

void agent_note(struct agent *a)
{
	struct agent_record r = {.incarnation = a->incarnation};

	/* one that looks for devices is not missed: the next broker starts another */
	if (!a->device[0] || (!a->process && a->incarnation == 0))
		return;
	snprintf(r.device, sizeof(r.device), "%s", a->device);
	if (a->process) {
		r.pid = a->process->pid;
		r.pidfd = kept_id(a->process->pidfd);
		r.socket = kept_id(a->socket);
	}
	journal_put(a->broker->journal, RECORD_AGENT, &a->record, &r, sizeof(r));
}

static int take_over(struct agent *a, const struct agent_record *r)
{
	if (r->pid == 0)
		return 0;
	a->process = child_new(a->broker);
	if (!a->process)
		return -ENOMEM;
	a->process->pid = r->pid;
	a->process->pidfd = kept_take(r->pidfd);
	a->socket = kept_take(r->socket);
	a->is_taken_over = true;
	if (r->pid < 0 || a->process->pidfd < 0 || a->socket < 0)
		return -EBADMSG;
	return agent_listen(a);
}

static int read_agent(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct agent_record r;
	struct device *d = NULL;

	(void)size;
	memcpy(&r, bytes, sizeof(r));
	if (strnlen(r.device, sizeof(r.device)) < sizeof(r.device))
		d = device_find_any(data, r.device);
	if (!d || d->agent->record)
		return -EBADMSG;
	d->agent->record = record;
	d->agent->incarnation = r.incarnation;
	return take_over(d->agent, &r);
}

int agents_restore(struct broker *b)
{
	return journal_read(b->journal, RECORD_AGENT, sizeof(struct agent_record), read_agent, b);
}

/* ------------------------------------------------------------------------------------------- */

#define KNOWN_AT_ONCE 4096 /* handles in a message */

/* One that cannot destroy something ends, which is said there. */
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
	if (agent_ask(a, &m, on_known, copy) == 0)
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
