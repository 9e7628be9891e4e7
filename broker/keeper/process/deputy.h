/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

/*
 * A second process, which goes on when the keeper dies. It has the keeper's memory and descriptors,
 * not copies of them (clone(2) with CLONE_VM and CLONE_FILES), so there is nothing that it would
 * have to be told: it sleeps until the keeper dies, and goes on with all that is there. It kills a
 * keeper that hangs, as the keeper does with its broker (broker/keeper/silence.h).
 */

struct deputy_watch {
	pid_t keeper;
	int pidfd; /* a pidfd of the keeper */
	const atomic_uint *beat, *hang_ms;
	void (*go_on)(void);
};

/* Starts a deputy, which runs go_on() when the process behind the pidfd has died, and ends when
 * that returns. Returns its process id, or negative errno; -ENOTSUP with a sanitizer, which wants
 * to know all stacks. At most one deputy is alive at a time: a deputy that goes on becomes the
 * keeper, and starts the next one. */
pid_t deputy_start(const struct deputy_watch *watch);
