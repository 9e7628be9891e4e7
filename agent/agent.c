/* SPDX-License-Identifier: MIT */

/*
 * The loop of share-agent: it receives one request of the broker, answers it, and receives the
 * next. Nothing here limits how long a request may take: the broker knows how long an answer may
 * take, and kills an agent that takes longer. It need not be the same broker all the time: the
 * socket stays the same when another one goes on (broker/device/agent_records.c). When an error has
 * broken the driver for this process, the agent tells the broker so and ends; the broker starts
 * another agent, and the memory lives on through its descriptors.
 *
 * This file knows the messages and the socket. It must not call the driver itself: memory/ does.
 */

#include <errno.h>
#include <string.h>

#include <share/error.h>

#include "agent/agent.h"
#include "memory/device.h"
#include "wire/packet.h"

static void reply_failed(struct agent *a, const struct failure *failure)
{
	struct wire_message m = {
	    .type = WIRE_AGENT_FAILED,
	    .agent_failed = {.error = failure->error,
			     .fatal = failure->fatal,
			     .text = wire_text(failure->text)},
	};

	agent_reply(a, &m, -1);
}

/* Opens the agent's device when the first request arrives, and not earlier, so that the reason of a
 * failure can be sent as the answer to a request. A failure is fatal, since an agent without its
 * device can do nothing. */
static int open_device(struct agent *a, struct failure *failure)
{
	struct failure why;
	uint32_t n;
	int r;

	if (a->opened || !a->device)
		return 0;
	r = memory_devices_init(&n, &why);
	if (r == 0)
		r = memory_device_open(a->device, &why);
	if (r < 0) {
		failure_set(failure, r, "device %.48s: %.190s", a->device, why.text);
		failure->fatal = true;
		return r;
	}
	a->opened = true;
	return 0;
}

static int serve(struct agent *a, const struct wire_message *m, struct failure *failure)
{
	int r = open_device(a, failure);

	if (r < 0)
		return r;
	switch (m->type) {
	case WIRE_AGENT_DEVICE_GET:
		return describe_devices(a, m, failure);
	case WIRE_AGENT_SEGMENT_CREATE:
		return segment_create(a, m, failure);
	case WIRE_AGENT_SEGMENT_DESTROY:
		return segment_destroy(a, m, failure);
	case WIRE_AGENT_SCRUB:
		return segment_scrub(a, m, failure);
	case WIRE_AGENT_EVENT_CREATE:
		return event_create(a, m, failure);
	case WIRE_AGENT_EVENT_DESTROY:
		return event_destroy(a, m, failure);
	case WIRE_AGENT_KNOWN:
		return known_told(a, m, failure);
	default:
		return failure_set(failure, SHARE_ENOTSUP,
				   "this agent does not know requests of type %d", (int)m->type);
	}
}

/* Receives one request into @m, whose variable fields point into @packet; @fds owns its
 * descriptors. Returns 1; 0 when the broker has closed its end; a negative errno when the socket
 * failed or the packet is not one that a broker sends. */
static int next_request(struct agent *a, char *packet, size_t size, struct wire_message *m,
			struct fd_list *fds)
{
	int r;

	r = packet_receive(a->socket, packet, &size, fds, true);
	if (r == -EPIPE)
		return 0;
	if (r < 0) {
		agent_log("listening to the broker: %s", strerror(-r));
		return r;
	}
	r = wire_decode(m, WIRE_TO_AGENT, packet, size, fds->n);
	if (r != 0) {
		agent_log("what the broker sent makes no sense: %s", wire_error_text(r));
		return -EPROTO;
	}
	return 1;
}

int agent_run(struct agent *a)
{
	char packet[WIRE_PACKET_MAX];
	struct wire_message m;
	int r;

	while (!a->lost) {
		_cleanup_fd_list_ struct fd_list fds = {.n = 0};
		struct failure failure;

		r = next_request(a, packet, sizeof(packet), &m, &fds);
		if (r <= 0)
			return r < 0;
		a->serial = m.serial;
		a->fd = fds.n ? fds.fds[0] : -1;
		if (serve(a, &m, &failure) == 0)
			continue;
		reply_failed(a, &failure);
		if (failure.fatal)
			return 1;
	}
	return 0;
}
