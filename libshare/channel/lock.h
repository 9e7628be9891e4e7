/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/channel/state.h"

/*
 * The rule of the lock. A `struct members *`, `struct sender *` or `struct receiver *` is only had
 * by taking the channel's lock: a function that takes one is called with the lock held and returns
 * with it held. If its name ends with `_unlocking`, it lets go of the lock in between, so that
 * whatever was read before the call has to be read again. A function that takes a `share_channel *`
 * is called without the lock, or needs none. `_client_locked` says that the client's lock is held.
 *
 * A channel's lock is taken before the client's. Nobody sends to the broker, gives a buffer back or
 * sleeps with the channel's lock held; the condition variable of the channel lets go of it.
 */

/* Finds the channel of a handle, of which the program has to have this role. */
int channel_resolve_as(share_channel **ch, int role);
/* In a call that has begun when another thread gives the channel up, where it would not wait:
 * SHARE_EINVAL. */
int channel_given_up(void);

/* These take the lock. The last two are for channels of that role. */
struct members *channel_lock(share_channel *ch);
struct sender *sender_lock(share_channel *ch);
struct receiver *receiver_lock(share_channel *ch);
/* This answers NULL if somebody else has the lock. */
struct receiver *receiver_trylock(share_channel *ch);
void channel_unlock(share_channel *ch);
/* Lets go of the lock after a message was given up; the last one of a closed channel ends it. */
void channel_unlock_and_end(share_channel *ch);
/* Before anybody else has the channel, and when nobody has it any more, no lock is needed. */
struct members *channel_unshared(share_channel *ch);
