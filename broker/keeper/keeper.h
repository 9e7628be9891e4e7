/* SPDX-License-Identifier: MIT */
#ifndef BROKER_KEEPER_H
#define BROKER_KEEPER_H

#include <stdbool.h>

#include "broker/keeper/kept.h"

/*
 * The keeper: the process that was started as share-broker. It forks the broker, which does all the
 * work, and keeps what the next broker needs when this one dies: the descriptors and mappings that
 * the broker has handed to it (broker/keeper/kept.h), and the memory of the journal. A broker that
 * is forked has them, and goes on where the other one was.
 *
 * It speaks with nobody but its broker, takes nothing apart, and takes no memory once it runs.
 */
struct keeper {
	struct kept_table *table;
	int journal;         /* a memfd */
	int broker;          /* its socket to the broker: of a broker, to the keeper */
	unsigned generation; /* of brokers: the first one is 1 */
};

/* The exit code of a broker that cannot take over now, for want of memory or descriptors, and has
 * changed nothing: another one is to try, a little later. */
#define KEEPER_TRY_AGAIN 75

/*
 * Takes @listen_fd over, as KEPT_LISTENER. Returns in each broker that it forks, with what that
 * has; and in the keeper, when a broker has ended by itself: true, and @status is what the process
 * is to end with. Without memory or descriptors false, and nothing was forked: the caller is a
 * broker without a keeper.
 */
enum keeper_result { KEEPER_NONE, KEEPER_BROKER, KEEPER_ENDED };
enum keeper_result keeper_run(struct keeper *k, int listen_fd, int *status);

#endif
