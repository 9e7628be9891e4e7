/* SPDX-License-Identifier: MIT */

/* The records of agents, which outlive their broker: see agent_takeover.c. */

#include <errno.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/client/records.h"
#include "broker/device/agent.h"
#include "broker/device/child.h"
#include "broker/device/device.h"
#include "broker/device/inside.h"
#include "broker/journal/object.h"

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
	struct device *d = device_find(b, read->device);

	if (!d || d->agent->record || !is_agent(read))
		return -EBADMSG;
	d->agent->record = read->record;
	d->agent->incarnation = read->incarnation;
	d->agent->process = read->process;
	d->agent->socket = read->socket;
	d->agent->is_taken_over = read->process;
	free(read);
	return 0;
}

const struct object_kind agent_kind =
    OBJECT_KIND(RECORD_AGENT, "agent", struct agent, agent_fields, agent_attach);

void agent_note(struct agent *a)
{
	/* an agent that looks for devices is not missed: the next broker starts another one */
	if (a->device[0] && (a->process || a->incarnation > 0))
		object_put(a->broker->journal, &agent_kind, a);
}
