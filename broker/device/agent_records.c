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
#include "broker/client/records.h"
#include "broker/device/agent.h"
#include "broker/device/child.h"
#include "broker/device/device.h"
#include "broker/device/inside.h"
#include "broker/journal/object.h"
#include "wire/wire.h"

static void agent_fields(struct record *r, void *object)
{
	struct agent *a = object;
	int32_t pid = a->process ? a->process->pid : 0;
	int pidfd = a->process ? a->process->pidfd : -1;

	record_text(r, a->device, sizeof(a->device));
	record_u32(r, &a->incarnation);
	record_i32(r, &pid);
	record_fd(r, &a->socket);
	record_fd(r, &pidfd);
	if (!record_reads(r) || pid == 0)
		return;
	a->process = child_new(r->broker);
	if (!a->process) {
		record_fail(r, -ENOMEM);
		return;
	}
	a->process->pid = pid;
	a->process->pidfd = pidfd;
}

static bool is_agent(const struct agent *a)
{
	return !a->process || (a->process->pid > 0 && a->process->pidfd >= 0 && a->socket >= 0);
}

static int agent_attach(struct broker *b, void *object)
{
	struct agent *read = object;
	struct device *d = device_find_any(b, read->device);

	if (!d || d->agent->record || !is_agent(read))
		return -EBADMSG;
	d->agent->record = read->record;
	d->agent->incarnation = read->incarnation;
	d->agent->process = read->process;
	d->agent->socket = read->socket;
	d->agent->is_taken_over = read->process;
	free(read);
	return d->agent->process ? agent_listen(d->agent) : 0;
}

static const struct object_kind agent_kind = {
    .type = RECORD_AGENT,
    .name = "agent",
    .size = sizeof(struct agent),
    .record = offsetof(struct agent, record),
    .fields = agent_fields,
    .attach = agent_attach,
};

void agent_note(struct agent *a)
{
	/* an agent that looks for devices is not missed: the next broker starts another one */
	if (a->device[0] && (a->process || a->incarnation > 0))
		object_put(a->broker->journal, &agent_kind, a);
}

int agents_restore(struct broker *b)
{
	return objects_restore(b->journal, &agent_kind, b);
}

/* ------------------------------------------------------------------------------------------- */

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
