/* SPDX-License-Identifier: MIT */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include <stdbool.h>

#include "agent/handles.h"
#include "memory/kind.h"
#include "wire/wire.h"

struct agent {
	int socket;
	const char *device; /* NULL: a scout, which only tells what devices there are */
	bool opened;
	bool lost;       /* the broker cannot be answered */
	uint32_t serial; /* of the request at hand */
	int fd;          /* that came with it; -1: none */
	struct handles segments, events;
};

/* Serves until the broker closes its end. The exit code. */
int agent_run(struct agent *a);

/* Answers the request at hand. The descriptor stays the caller's; -1: none goes along. */
void agent_reply(struct agent *a, struct wire_message *m, int fd);
void agent_reply_done(struct agent *a);

/* One line on stderr, of what nobody else hears of. */
void agent_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The requests. Each replies when it succeeds; else it returns a SHARE_E... number with the reason
 * in @failure, for the caller to send. */
int describe_devices(struct agent *a, const struct wire_message *m, struct failure *failure);
int segment_create(struct agent *a, const struct wire_message *m, struct failure *failure);
int segment_destroy(struct agent *a, const struct wire_message *m, struct failure *failure);
int segment_scrub(struct agent *a, const struct wire_message *m, struct failure *failure);
int event_create(struct agent *a, const struct wire_message *m, struct failure *failure);
int event_destroy(struct agent *a, const struct wire_message *m, struct failure *failure);

#endif
