/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>

/*
 * What is to happen to agents, at exactly one step of one request: agent_between runs in the place
 * of share-agent, starts the real one, and passes on what the broker and that one say. The broker
 * sees one process, and it is this process that ends or stands still.
 */

#define BETWEEN_PLAN_VARIABLE  "SHARE_TEST_BETWEEN_PLAN"  /* a file with a struct between_plan */
#define BETWEEN_AGENT_VARIABLE "SHARE_TEST_BETWEEN_AGENT" /* the real one */

enum between_step {
	BETWEEN_UNSEEN,     /* the request is there, and the agent has not seen it */
	BETWEEN_UNANSWERED, /* the agent has done it, and the broker has no answer */
	BETWEEN_ANSWERED,   /* the answer is on its way */
};

struct between_plan {
	_Atomic unsigned request; /* enum wire_type; 0: nothing is to happen */
	_Atomic unsigned step;    /* enum between_step */
	_Atomic int signal;       /* SIGKILL or SIGSTOP */
	_Atomic int times;        /* that often */
	_Atomic unsigned met;     /* how often it has happened */
	_Atomic int victim;       /* pid; 0: the process in the place of the agent */
};
