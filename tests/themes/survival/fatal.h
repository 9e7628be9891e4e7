/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>

/*
 * Where in a request a broker dies, by SIGKILL: in memory that a test shares with its brokers
 * (dying_broker.c). One broker dies of it, and the next one handles the same request to its end.
 * Or it is somebody else who dies there: the broker goes on once that one is dead.
 */
enum fatal_point {
	FATAL_NOWHERE,
	FATAL_RECEIVED,  /* it is in the inbox, and nothing was done */
	FATAL_HANDLED,   /* all is done, and nothing of it counts */
	FATAL_COMMITTED, /* it counts, and nobody was told */
	FATAL_SENT,      /* a packet went out, which the journal takes for one that did not */
	FATAL_POINTS
};

struct fatal_plan {
	atomic_uint request; /* its type, see wire/messages.h */
	atomic_uint point;   /* FATAL_NOWHERE once somebody has died there, and */
	atomic_uint again;   /* so many more have */
	atomic_uint spared;  /* so many requests of the type come before it */
	atomic_int victim;   /* pid; 0: the broker */
};

/* Where brokers find the file that has it. */
#define FATAL_PLAN_VARIABLE "SHARE_TEST_FATAL"
