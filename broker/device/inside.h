/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct broker;
struct child;
struct event;
struct object_kind;

/* What the files of this room alone know of an agent. */
struct agent {
	struct broker *broker;
	char device[64];       /* "": none */
	struct child *process; /* NULL: none is running */
	pid_t pid_before;
	int socket;
	struct event *readable;
	struct event *timer;
	TAILQ_HEAD(, agent_request) requests;
	bool sent;         /* the first request is with the process */
	uint64_t limit_ms; /* it has to be answered by then */
	uint32_t serial, n_requests;
	bool is_taken_over; /* an earlier broker's request may be answered first */
	uint32_t incarnation;
	uint32_t record;
	unsigned failures; /* how many since it last answered */
	uint64_t not_before_ms;
};

/* Begins to listen to the process. In agent.c. 0 or -ENOMEM. */
int agent_listen(struct agent *a);
/* Gives devices the agents that the broker before had. In agent_records.c. */
extern const struct object_kind agent_kind;
