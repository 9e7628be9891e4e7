/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/channel/loan.h"
#include "libshare/channel/lock.h"
#include "libshare/channel/wait.h"

/*
 * What the files of this room share. None calls one that calls it, as tests/rooms_test.py looks.
 * From below to above:
 *
 *   lock.c, sleep.c        the doors to a channel's state, and waiting for the other side
 *   members.c, sync.c      who else takes part; loan.c
 *   channel.c              what opens and ends, and what services need
 */

/* ------------------------------------------------------------------------------------------- */
/* lock.c                                                                                      */

/* Makes a channel of zeros, with nothing but its lock and its parts; NULL without memory. */
share_channel *channel_alloc(int role);
void channel_free(share_channel *ch);

/* ------------------------------------------------------------------------------------------- */
/* members.c                                                                                   */

/* Of what a member of this role writes: the ring of a producer, the ledger of a consumer. */
size_t channel_page_size(const share_channel *ch, int role);

/* Consumers are found by their slot, which is their lane, and producers by the row of our ledger
 * that is about them. */
static inline uint32_t members_index(const share_channel *ch, const struct wire_member *m)
{
	return ch->role == SHARE_PRODUCER ? m->slot : m->row;
}

/* Applies what the broker has told us unasked. 0 or an error. */
int members_apply_told(struct members *members, struct channel_told *t);
/* Applies one answer of the broker. 0 or an error. */
int members_apply(struct members *members, struct reply *reply);
/* Makes those known to the ring that are only known by name. 0 or an error. */
int members_meet_all_unlocking(struct members *members);
/* Before that, after the last answer to a question: who was not named in any is gone. */
void members_forget_missing(struct members *members);
/* Lets go of all peers when the channel ends. */
void members_deinit(struct members *members);

/* ------------------------------------------------------------------------------------------- */
/* sync.c                                                                                      */

/* The client is told who comes, from the first of these calls to the second. */
void channel_enlist(share_channel *ch);
void channel_delist(share_channel *ch);

/* Waits for an answer that nobody wants any more, when the channel ends. */
void members_sync_deinit(struct members *members);

/* ------------------------------------------------------------------------------------------- */
/* sleep.c                                                                                     */

/* Opens it: @bell, borrowed, is what others ring it by. 0 or negative errno. */
int channel_open_doorbell(share_channel *ch, int bell);
