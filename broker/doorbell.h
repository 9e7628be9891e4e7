/* SPDX-License-Identifier: MIT */
#ifndef BROKER_DOORBELL_H
#define BROKER_DOORBELL_H

#include <sys/socket.h>
#include <sys/un.h>

/*
 * How members of a channel wake one that polls: a datagram socket of its own, and for everybody who
 * may ring it another one that is connected to it. Not one end of a pair for all of them: who has a
 * descriptor can shut it down for all that share it.
 */
struct doorbell {
	int ringer; /* the broker's; -1: nobody can be there any more */
	struct sockaddr_un address;
	socklen_t size;
};

/* @out_own: the end that is rung, the caller's. 0 or negative errno. */
int doorbell_new(struct doorbell *d, int *out_own);
/* One more end to ring it by, the caller's; or negative errno. */
int doorbell_connect(const struct doorbell *d);
/* Never waits: a doorbell that takes no more is ringing. */
void doorbell_ring(const struct doorbell *d);
void doorbell_done(struct doorbell *d);

#endif
