/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include "agent/handles.h"
#include "memory/kind.h"
#include "wire/wire.h"

struct agent {
	int socket;
	const char *device; /* NULL: this agent only tells which devices there are */
	bool opened;
	bool lost;       /* an answer could not be sent, so the agent ends */
	uint32_t serial; /* of the request that is being served */
	int fd;          /* the descriptor that came with that request; -1: none */
	struct handles segments, events;
};

/* Serves requests until the broker closes its end. Returns the exit code of the program. */
int agent_run(struct agent *a);

/* Answers the request that is being served. @fd is sent along and stays the caller's; -1: there is
 * none. */
void agent_reply(struct agent *a, struct wire_message *m, int fd);
void agent_reply_done(struct agent *a);

/* Writes one line to stderr, for what no answer tells the broker. */
void agent_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The handlers of requests. A handler that succeeds has sent the answer and returns 0. One that
 * fails has sent nothing: it returns a SHARE_E... number and puts the reason into @failure, and its
 * caller sends that. */
int describe_devices(struct agent *a, const struct wire_message *m, struct failure *failure);
int segment_create(struct agent *a, const struct wire_message *m, struct failure *failure);
int segment_destroy(struct agent *a, const struct wire_message *m, struct failure *failure);
int segment_scrub(struct agent *a, const struct wire_message *m, struct failure *failure);
int event_create(struct agent *a, const struct wire_message *m, struct failure *failure);
int event_destroy(struct agent *a, const struct wire_message *m, struct failure *failure);
int known_told(struct agent *a, const struct wire_message *m, struct failure *failure);

/* Destroys one that handles_take_unknown() gave. 0, or a SHARE_E... number with @failure fatal. */
int segment_end(void *segment, struct failure *failure);
int event_end(void *event, bool wedged, struct failure *failure);

/* Ends this process when the broker's end of the socket is closed, by whoever had it, though it may
 * be in the middle of a call. 0 or negative errno. */
int watch_broker(int socket);
