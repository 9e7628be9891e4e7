/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* What a test and its brokers (later_broker.c) say to each other. */
#define LATER_PLAN_VARIABLE "SHARE_TEST_LATER"
struct later_plan {
	_Atomic uint64_t ahead_ms;     /* of the broker's clock */
	_Atomic uint64_t stopped_ms;   /* what that shows; 0: it goes on */
	_Atomic uint64_t most_dropped; /* records, in a turn of the broker's loop */
	_Atomic uint64_t looks;        /* at what claims have, for one message */
};
