/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include <share/channel.h>

#include "ring/ring.h"

/*
 * Channels: what ring/ring.h does in memory, with clients, descriptors, streams and threads around
 * it. Here is what both roles have: who takes part, and waiting for them. What a producer has is in
 * libshare/sender, what a consumer has in libshare/receiver.
 */

extern const struct client_room channel_room;

/* ------------------------------------------------------------------------------------------- */
/* For buffers (struct buffer_carrier)                                                         */

/* Between which members a loan is. False: it is none by now. */
bool channel_name_loan(share_buffer *b, uint64_t *member, uint64_t *producer);

/* ------------------------------------------------------------------------------------------- */
/* For services                                                                                */

/* One consumer of a channel in the mode CHANNEL_DIRECT, to which a message can be sent. */
struct channel_target {
	uint64_t member;
	uint64_t page; /* the page of its client's timelines */
	uint32_t slot;
};

/* These are the functions share_channel_...() for an object instead of a handle. */
void channel_close(share_channel *ch);
int channel_get_fd(share_channel *ch);
int channel_get_stats(share_channel *ch, share_channel_stats *out);
void channel_end_waits(share_channel *ch); /* SHARE_ECANCELED, from now on */

/* A channel that is held stays, as with a message that was received and not given up, until it is
 * let go of. The third says how many messages and holds there are. */
void channel_hold(share_channel *ch);
void channel_let_go(share_channel *ch);
uint32_t channel_held(share_channel *ch);

/* This is share_channel_open() with a @mode of enum channel_mode; with 0 the options say it. */
int channel_open(share_client *c, const char *name, int role, uint32_t mode,
		 const share_channel_options *options, share_channel **out);
const struct channel_shape *channel_shape(const share_channel *ch); /* it stays what it is */

/* Says under what our own membership is to be answered. */
void channel_self(share_channel *ch, struct channel_target *out);
void channel_set_call(share_channel *ch, uint32_t index, uint32_t value); /* in our own ring */

/* From now on @timer, of which the channel has a duplicate, runs out whenever it holds less and
 * that was too much before: see channel_owes(). -1: none. Whether it was, it has of @before, which
 * may be itself; NULL: it was not. 0 or negative errno. */
int channel_tell_of_less(share_channel *ch, int timer, share_channel *before);
/* There is less for who asks channel_owes(): the timer runs out if it was too much. Whoever calls
 * this, those two and the next one holds a lock of its own, under which alone that changes. */
void channel_tell_if_less(share_channel *ch);
/* One call more, or less, is to be asked for again soon, as nobody says when it can be had: the
 * timer runs out for it as well. */
void channel_ask_again(share_channel *ch, int more);

/* Gives the channel an owner, until it is dropped, before its hazard_end(). share_ack() calls
 * @before_ack for each message, with no lock held. */
void channel_set_owner(share_channel *ch, void *owner,
		       void (*before_ack)(void *owner, share_message *m));
/* Gives a producer's channel an owner. Its thread calls @came_back, with no lock held, when there
 * may be something for channel_take_back(). Before anything is sent. */
void channel_set_came_back(share_channel *ch, void *owner, void (*came_back)(void *owner));
void channel_drop_owner(share_channel *ch);
void *channel_owner(const share_channel *ch); /* as hazard_set(); or NULL */
