/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include <share/error.h>

#include "wire/wire.h"

/*
 * What has happened since the broker started, in numbers that only grow, for whoever watches it
 * over time (sharectl metrics, share-exporter). Counting takes no memory and cannot fail.
 */

/* Times in classes, each twice as long as the one before: the first is up to 1024 ns, the last but
 * one up to 8.6 s, and the last has no end. */
#define LATENCY_FIRST_BITS 10
#define LATENCY_CLASSES    25

struct latency {
	uint64_t n, sum_ns;
	uint64_t in_class[LATENCY_CLASSES];
};

/* The places of errors (SHARE_E...). */
#define COUNTED_ERROR(name, number, text) COUNTED_##name,
enum counted_error { COUNTED_OTHER, SHARE_ERRORS(COUNTED_ERROR) COUNTED_ERRORS };
#undef COUNTED_ERROR

/* The numbers of one message of the protocol. */
struct request_counters {
	uint64_t n;                       /* how many have arrived */
	uint64_t refused[COUNTED_ERRORS]; /* how many were answered with this error */
	/* The times from arrival to answer, of requests that do not wait for other programs. */
	struct latency latency;
};

struct broker_counters {
	uint64_t requests;
	uint64_t clients;     /* clients that have ever connected */
	uint64_t dropped;     /* clients that have broken the protocol */
	uint64_t quarantined; /* clients that have lost their connection and lived on */
	uint64_t left_behind; /* consumers that were left behind in their channels */
	uint64_t stalls;      /* of producers, in their channels, for more than a second */
	uint64_t cut_off;     /* members whose processes have lost their connection and lived on */
	uint64_t messages_lost; /* messages that nobody had, and whose producers were gone */
	uint64_t poisoned;      /* clients whose timelines were poisoned, because they have died */
	struct request_counters by_message[WIRE_TYPE_COUNT];
};

/* A request, from its arrival to its answer. */
struct timed_request {
	uint32_t serial; /* 0: it has its answer */
	enum wire_type type;
	uint64_t arrived_ns;
};

/* Why somebody who asked for memory of a pool got none. */
enum alloc_failure {
	ALLOC_FULL,   /* there is no room in it */
	ALLOC_SHARE,  /* what is left of it is for users who have less */
	ALLOC_LIMIT,  /* the user has reached a limit */
	ALLOC_BUSY,   /* work of others still runs on what is free */
	ALLOC_SYSTEM, /* the system or a driver failed */
	ALLOC_FAILURES
};

void latency_add(struct latency *l, uint64_t ns);
/* Returns the longest time of a class in nanoseconds; UINT64_MAX for the last class. */
uint64_t latency_longest(int class);

/* Counts a request of this type that was answered with @error, which is negative. */
void count_refusal(struct broker_counters *c, enum wire_type type, int error);
