/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/channel/member.h"

/* What a consumer may have of a producer. */
struct claim {
	LIST_ENTRY(claim) of_producer, of_consumer;
	TAILQ_ENTRY(claim) link; /* in the broker's list, while it is followed */
	struct member *producer, *consumer;
	uint32_t number;
	uint32_t row;       /* of the consumer's ledger: it is this claim's until this ends */
	bool told_producer; /* the producer was sent the consumer's descriptors */
	bool told_consumer; /* the consumer was sent the producer's */
	bool over;          /* the consumer will acknowledge nothing more */
	bool taken;         /* the broker looks after what the consumer may still use */
	bool for_fetch;     /* it was made for what the consumer fetches, and has no lane */
	bool followed;
	uint32_t next_ticket; /* the next one to be taken over; by this the record has for_fetch */
#define CLAIM_FOR_FETCH UINT32_MAX
	uint32_t next_ack;  /* the next one whose fence is looked at, once the claim is over */
	uint32_t n;         /* how many entries it has */
	uint32_t n_orphans; /* how many orphans it owns */
	TAILQ_HEAD(, entry) entries;
	uint32_t record;
};

/* claim.c: claims as they are found */

/* Puts a claim that is filled in into the lists of its producer and its consumer. */
void claim_attach(struct claim *claim);
/* The claims of a member of either role, one after the other. */
struct claim *claims_first(const struct member *m);
struct claim *claims_next(const struct member *m, const struct claim *claim);
/* Returns the member at the other end of one of @m's claims. */
struct member *claim_other(const struct claim *claim, const struct member *m);
/* Finds @m's claim with the member of this identifier; NULL: there is none (any more). */
struct claim *claim_find(const struct member *m, uint64_t other);
/* Has the broker look at the claim soon, and again every now and then, until it ends or there is
 * nothing that could change. */
void claim_follow(struct claim *claim);
void claim_unfollow(struct claim *claim);
/* Frees a claim that nothing is left of. */
void claim_free(struct claim *claim);

/* claim_life.c: how they are made and end */

/* Makes the newcomer's claims, one with each member of the other role, but for consumers that
 * have no row left. 0 or -ENOMEM. */
int claims_make(struct member *newcomer);
/* Undoes claims_make(), as the newcomer does not come after all. */
void claims_unmake(struct member *newcomer);
/* Expels the consumers that had no row left for this producer; true when there were any. */
bool claims_expel(struct member *producer);
/* Makes a claim on a producer that is gone, for a consumer that fetches. NULL: there is no memory
 * or no row. */
struct claim *claim_make_for_fetch(struct member *producer, struct member *consumer);
/* Frees it, and its members and its channel if nothing else is left of them. */
void claim_end(struct claim *claim);
