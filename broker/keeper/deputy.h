/* SPDX-License-Identifier: MIT */
#ifndef BROKER_KEEPER_DEPUTY_H
#define BROKER_KEEPER_DEPUTY_H

#include <stdatomic.h>
#include <sys/types.h>

/*
 * A second process for the keeper's death. It has the keeper's memory and descriptors, not copies
 * of them (clone(2) with CLONE_VM and CLONE_FILES), so there is nothing that it would have to be
 * told: it sleeps until the keeper dies, and goes on with all that is there. A keeper that hangs it
 * kills, as the keeper does with its broker (broker/keeper/silence.h).
 */

struct deputy_watch {
	pid_t keeper;
	int pidfd; /* of it */
	const atomic_uint *beat, *hang_ms;
	void (*go_on)(void);
};

/* Starts one, which runs go_on() when the process behind the pidfd has died, and ends when that
 * returns. A process id, or negative errno; -ENOTSUP where a sanitizer wants to know all stacks. At
 * most one is alive at a time, and it starts the next one when it goes on. */
pid_t deputy_start(const struct deputy_watch *watch);

#endif
