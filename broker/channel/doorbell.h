/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CHANNEL_DOORBELL_H
#define BROKER_CHANNEL_DOORBELL_H

/*
 * How members of a channel wake one that polls: a descriptor that its owner, the broker and all who
 * may ring share. Whoever has not been given it cannot find it, and nothing can be put into it.
 */

/* Makes a doorbell, which the caller closes. Negative errno if that fails. */
int doorbell_new(void);
/* Rings, which never waits. -1: there is nobody who would hear it. */
void doorbell_ring(int doorbell);

#endif
