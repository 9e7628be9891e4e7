/* SPDX-License-Identifier: MIT */

/* What the agent says: its answers to the broker, and lines for the log. */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "wire/packet.h"

void agent_log(const char *format, ...)
{
	va_list arguments;
	char line[512];

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	fprintf(stderr, "share-agent: %s\n", line);
}

void agent_reply(struct agent *a, struct wire_message *m, int fd)
{
	char packet[4096];
	size_t size;
	int r;

	m->serial = a->serial;
	size = wire_encode(m, packet, sizeof(packet));
	r = size ? packet_send(a->socket, packet, size, &fd, fd >= 0, true) : -EMSGSIZE;
	if (r < 0 && r != -EPIPE)
		agent_log("answering the broker: %s", strerror(-r));
	if (r < 0)
		a->lost = true;
}

void agent_reply_done(struct agent *a)
{
	struct wire_message m = {.type = WIRE_AGENT_DONE};

	agent_reply(a, &m, -1);
}
