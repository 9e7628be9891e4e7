/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/channel/members.h"

/* Waiting for the other side, and telling it. */

/* Rings the doorbells of peers, bit by slot. */
void members_ring_doorbells(struct members *members, uint64_t slots);
/* Sets our own doorbell back, and says whether it has rung since the last time. */
bool channel_drain_doorbell(share_channel *ch);

/* The sleeper sleeps as the ring has it, for at most @timeout_ms. 0: it was woken; 1: perhaps not;
 * or an error, as of members_wait_unlocking(). */
int members_sleep_unlocking(struct members *members, const struct ring_sleep *s, int timeout_ms);
/* Waits until somebody says that something has changed, for a thread of the program: 0, or an error
 * when the wait is to end: SHARE_ECANCELED, SHARE_EINTR. */
int members_wait_unlocking(struct members *members, int timeout_ms);
/* Has those that sleep look again. */
void members_wake_others(struct members *members);
/* Tells an event loop to look again later, as nobody will say when what has come is ready. */
#define MEMBERS_LOOK_SOON_MS 1 /* a GPU wakes nobody up */
void channel_look_later(const share_channel *ch, int ms);
