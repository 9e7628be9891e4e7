/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "broker/orphan/orphan.h"

/*
 * How the files of this room know each other. From below to above: what is counted and told of lost
 * messages (loss), of which producers a channel keeps some (producers), whose an orphan is (orphan,
 * records), how they are made (make), lost as nobody comes for them (deserted) or as there is no
 * room (room), and fetched (fetch). None calls one that is above it.
 */

#define PRODUCERS_MAX 64 /* of a channel that are gone and have messages that wait */

/* orphan.c */

/* Makes the producer's table of orphans, if there is none. False without memory. */
bool orphans_prepare(struct member *producer);
/* Whether the orphan's tickets can be: each is of the channel, and no other message's. */
bool orphan_has_tickets(const struct orphan *o);
/* Puts an orphan into that table, with its references on its buffers. It is nobody's yet. */
void orphan_place(struct orphan *o);
/* Makes the claim its owner. */
void orphan_set_owner(struct orphan *o, struct claim *claim);
/* Puts an orphan among those that wait. One that @returns comes before those that nobody has had
 * yet; mostly several return, in the order in which they were sent. */
void orphan_wait(struct orphan *o, bool returns);
/* Puts an orphan that another broker had where it belongs. 0, -EBADMSG or -ENOMEM. */
int orphan_attach(struct broker *b, void *object);
/* Gives the claim entries for all buffers of an orphan; or none, and false, without memory. */
bool orphan_add_entries(struct orphan *o, struct claim *claim);
/* Makes the claim, which has entries for all of it, the owner of an orphan that waits. */
void orphan_give(struct orphan *o, struct claim *claim);
/* Ends an orphan that waits, and counts it among those that are lost. */
void orphan_lose(struct orphan *o);

/* loss.c */

/* Logs, tells and counts that @n messages of producers that are gone are lost, of @producer or
 * (NULL) of several. Of none nothing is said. */
void channel_tell_lost(struct channel *ch, uint64_t n, const struct member *producer,
		       const char *why);
/* Loses messages of a producer that goes or is gone, as they were delivered too often. */
void orphans_lose_often(struct member *producer, uint64_t n);

/* deserted.c */

/* Loses as many of one producer's orphans that wait as there is time for, and returns their number.
 * The producer stays, though it may be unused then. */
uint64_t orphans_lose_waiting(struct member *producer, int *budget);
/* Whether a consumer other than @but (NULL: whichever) may ask for orphans. */
bool anybody_may_fetch(const struct channel *ch, const struct member *but);
