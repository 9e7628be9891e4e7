/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/* What bridges are measured against: UCX's own ucx_perftest, and TCP with nothing around it. */

/* For all programs of UCX that are started from now on, unless the environment says something
 * else: TCP, by the loopback device. */
void bridge_transport(void);
/* A port of the loopback device that nobody gets who does not ask for it, until what this returns
 * is closed. One that may use it again (SO_REUSEADDR), as bridges may, can listen there. */
int bridge_reserve_port(unsigned *port);

/* A test of ucx_perftest: microseconds for each of @n messages of @size bytes. Returns NONE if
 * there is no such program or no such test, or it fails. @memory: of what type, if not of the
 * host. */
double bridge_perftest(const char *memory, const char *test, uint64_t size, unsigned n,
		       unsigned how);
#define BRIDGE_ASLEEP 1u /* both sides sleep until something comes */
#define BRIDGE_ERRORS 2u /* with error handling, as a bridge needs it: that has ways of its own */

struct bridge_cost {
	double us;     /* for each buffer */
	double cpu_us; /* the same, of both sides together */
};

/* @n buffers of @size bytes from one memfd into another, by a TCP connection between two
 * processes. */
struct bridge_cost bridge_tcp(uint64_t size, unsigned n);
