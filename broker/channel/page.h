/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pages/channel_page.h"

struct channel;
struct claim;
struct member;

/* What members' pages say: page.c, and row.c for the rows that are claims'. */

/* Returns the size of a member's page. */
size_t member_page_size(const struct channel *ch, uint32_t role);
/* Makes a table of pointers, all NULL, by tickets of a producer. NULL without memory. */
void *member_table_new(const struct member *producer);
/* Returns how many bytes of a member's page at least, from @at in it on, its owner never wrote; 0:
 * @at was written. Zeros are there; they are not read, as that takes memory for which the owner
 * does not pay. */
size_t member_unwritten(struct member *m, const void *at);
/* Has what is found of so much of the page as a row may take, from @from on, not looked for again
 * before member_forget_looks(): who goes through all of a row looks at each part of it once. What
 * the owner writes meanwhile may not be seen. */
void member_remember_looks(struct member *m, const void *from);
void member_forget_looks(struct member *m);
/* Finds the first of a producer's tickets from *ticket on that may be in use, and sets *ticket to
 * its number. NULL: there is none. */
const struct channel_ticket *member_next_ticket(struct member *producer, uint32_t *ticket);
/* Whether a consumer says that what it has taken is all that it takes. */
bool member_receives_no_more(struct member *consumer);

/* What the ring has of a message, as it was read. */
struct copy {
	uint64_t buffer, number, sequence, value;
	uint32_t version, slot, timeline, deliveries, n_further;
};
/* A buffer behind the first one. */
struct copy_further {
	uint64_t buffer;
	uint32_t ticket, version;
};
/* Reads the copy of a ticket's message. False when this ticket is not in use, or its producer keeps
 * no copies. */
bool copy_ask(struct member *producer, uint32_t ticket, struct copy *out);
/* Reads which buffer is the @i-th behind the first one of the message with this ticket. False:
 * there is none, or it is another message's. */
bool copy_ask_further(struct member *producer, uint32_t ticket, const struct copy *copy, uint32_t i,
		      struct copy_further *out);
/* Finds the claim of the consumer in whose lane the message is; NULL: it is in none, or that
 * consumer's claim has ended. */
struct claim *copy_owner(struct member *producer, const struct copy *copy);
/* Whether the message was in the lane of this claim's consumer, whose slot may be another one's
 * by now. */
bool copy_was_of(const struct copy *copy, const struct claim *claim);

/* What the row says of one ticket. */
enum acknowledgement {
	NOT_ACKNOWLEDGED,
	STILL_RUNS, /* behind a fence that is not reached yet */
	DONE_WITH,
};
enum acknowledgement claim_ask_row(const struct claim *claim, uint32_t ticket, uint32_t version);
/* Returns the number of the delivery that the consumer has given back; 0: there is none. */
uint32_t claim_ask_rejected(const struct claim *claim, uint32_t ticket, uint32_t version);
/* Returns up to which message of its lane the consumer says it has received them. */
uint64_t claim_taken(const struct claim *claim);
/* Whether no fence in the row is still to be reached. The row does not change any more, so a fence
 * that was found reached is not looked at again. False also if there was no time or no memory. */
bool claim_is_quiet(struct claim *claim, int *budget);
/* Whether the producer has let the consumer in, which can have nothing of it otherwise. */
bool claim_is_admitted(const struct claim *claim);
