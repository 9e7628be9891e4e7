/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Two network namespaces, "far" (192.0.2.1) and "near" (192.0.2.2), and a process that carries each
 * packet from one to the other: late, not at all, or no faster than a rate allows. All that bridges
 * say and send goes this way. It does what netem of the kernel does, which many kernels lack, with
 * TUN devices.
 */

#define CABLE_FAR  "192.0.2.1"
#define CABLE_NEAR "192.0.2.2"

/* How the cable is, in both directions. May be changed at any time. */
struct cable_state {
	_Atomic bool cut;
	_Atomic uint32_t delay_us;
	_Atomic uint32_t lost;         /* of a million packets */
	_Atomic uint32_t bytes_per_ms; /* 0: no limit */
	_Atomic uint64_t carried, dropped;
};

struct cable {
	pid_t pid;
	int far_network, near_network; /* for setns() */
	struct cable_state *state;
};

/* Whether this process may make namespaces and devices. */
bool cable_is_possible(void);
void cable_start(struct cable *c);
void cable_stop(struct cable *c);

/* For a child before exec(): it is in that network, and /sys shows its devices, as UCX looks there.
 */
void cable_enter(int network);
