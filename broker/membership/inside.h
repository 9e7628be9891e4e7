/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/channel/member.h"
#include "broker/rights/right.h"

struct buffer;
struct memory;

/*
 * How the files of this room know each other. From below to above: what members are supplied with
 * (supply), how they come (join), how what they leave is looked at (claim_look) and taken over
 * (take), how they go (leave), and what the loop does of all that (work). What clients ask for is
 * in channel_open and channel_requests, and how all is restored in restore. None calls one that is
 * above it.
 */

/* join.c */

/* Makes a channel. @shape is valid; @producers is how many there may be at a time. Whoever makes no
 * member afterwards calls channel_end_if_unused(). 0 or negative errno. */
int channel_new(struct broker *b, const void *name, size_t size, struct pool *pool,
		const struct channel_shape *shape, uint32_t producers, bool service,
		struct channel **out);
/* Makes a member. @flags are those of CHANNEL_OPEN. 0, an enum member_error or negative errno. */
int member_new(struct channel *ch, struct client *client, uint32_t role, uint32_t flags,
	       struct member **out);
/* Makes a member that is PREPARING one that is HERE, with the claims that come of that. 0 or
 * negative errno. */
int member_ready(struct member *m);

/* leave.c */

/* Has the member leave, as its client asks for that. A producer stays until it is taken over, and
 * the request with @serial is answered then. True when it is to be answered now. */
bool member_close(struct member *m, uint32_t serial);

/* claim_look.c */

/* Notes that the consumer has received and acknowledged all that it will. */
void claim_is_over(struct claim *claim);
/* Does the same for all claims of a consumer that is GONE. */
void claims_are_over(struct member *consumer);
/* Looks at what the pages of a claim's members say by now. That may end the claim, and its members
 * and channel with it. */
void claim_look(struct claim *claim, int *budget);

/* take.c: claims that the broker takes over */

/* Takes over some of what the producer has in flight; true when that was all, and it is GONE. */
bool member_take_over(struct member *producer, int *budget);
/* Has the loop do the same; the request with this serial is answered when all is taken over. */
void member_take_over_later(struct member *producer, uint32_t serial);
/* Takes over one claim of a producer that goes on. @tickets: bit by ticket, those that the
 * consumer may still use. 0, -ENOMEM, or -EDQUOT if neither's account has room for the entries. */
int claim_abandon(struct claim *claim, const unsigned char *tickets, size_t size);
/* Whether this buffer is in flight at the producer, wherever that is, and may be the consumer's,
 * which has not acknowledged it. */
bool claim_has(const struct claim *claim, struct buffer *buffer);

/* supply.c: what messages lie in */

/* Returns whether a member has segments for writing. */
bool member_writes(const struct member *m);
/* Returns the right that a member needs, RIGHT_READ or RIGHT_WRITE; and whether its user has it,
 * which may have changed since it came. */
enum access_right member_needs(const struct member *m);
bool member_may_take_part(const struct member *m);
/* Sends a consumer what it does not have of its channel's pool; *more is set when not all of it
 * could go out. 0 or -ENOMEM. */
int member_supply(struct member *m, bool *more);
/* Has a new segment sent to all consumers of its pool's channels from now on. When one is returned,
 * those who sleep there are woken, as they have to unmap it. */
void supply_start(struct memory *memory);

/* report.c: words for the numbers of a shape */

const char *channel_mode_name(uint32_t mode);
const char *channel_when_full_name(uint32_t when_full);
