/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>
#include <sys/queue.h>

#include "libshare/buffer/buffer.h"
#include "libshare/channel/channel.h"
#include "libshare/client/rpc.h"
#include "libshare/order/order.h"
#include "libshare/program/struct.h"

/*
 * What a channel consists of, by who may touch it:
 *
 *   share_channel       does not change between open and end, so everybody may read it
 *   .in_client          is guarded by the client's lock
 *   struct members      who else takes part; struct sender, of a producer; struct receiver, of a
 *                       consumer: all three are guarded by the channel's lock
 *
 * The last three lie where only lock.c finds them. So whoever has a pointer to one of them has
 * taken the lock (lock.h has the rule), and the compiler refuses the rest.
 */

/* A member that the broker has told us of before we have asked. */
struct channel_told {
	STAILQ_ENTRY(channel_told) link;
	struct wire_member member;
	struct fd_list fds;
	bool after; /* it was told after the last answer */
};
STAILQ_HEAD(channel_told_list, channel_told);

/* What the client's dispatch and its channel share. */
struct channel_in_client {
	LIST_ENTRY(share_channel) link;
	struct channel_told_list told;
	bool told_lost;      /* there was no memory to keep what was told */
	struct call call;    /* the question to the broker; one thread asks at a time */
	struct reply answer; /* its answer, which is the asking thread's once it has come */
	bool has_background;
	uint64_t looked; /* the count client->looks when the thread looked last */
};

struct share_channel {
	struct handle handle;
	share_client *client;
	struct channel_in_client in_client;
	bool enlisted; /* the client knows of it */
	int role;
	struct channel_shape shape;
	enum channel_layout layout;
	uint64_t member, pool;
	uint32_t slot;
	int send_timeout_ms;
	void *own; /* our page: the ring of a producer, the ledger of a consumer */
	const struct channel_control *control;
	int doorbell; /* an epoll that is readable when our bell has rung, or the broker is lost */
	int epoll;    /* has the doorbell, `wakeup`, pidfds of peers and the timer */
	int wakeup;   /* wakes the background thread of a producer */
	_Atomic int timer; /* for the event loop of a consumer; -1 until that asks */
	int less; /* a service's timer, which runs out when less is owed than was too much; or -1 */
	_Atomic(void *) owner;
	void (*before_ack)(void *owner, share_message *m);
	void (*came_back)(void *owner);
	void (*end)(void *channel); /* gives up all of it when nobody has it any more (channel.c) */

	pthread_mutex_t lock;
	struct bell changed; /* whoever waits looks again */
};
HANDLES_OF(share_channel, channel, HANDLE_CHANNEL);
