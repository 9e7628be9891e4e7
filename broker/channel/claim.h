/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CHANNEL_CLAIM_H
#define BROKER_CHANNEL_CLAIM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/buffer/buffer.h"
#include "broker/channel/inside.h"

/* What is inside claims. Their life is in claim.c, and what the broker takes over in take.c. */

/* A buffer that was in flight when the broker took it over from its producer: there is one of
 * these, however many consumers may still use the buffer. */
struct inherited {
	struct buffer *buffer; /* NULL: it is an orphan's that has none */
	uint32_t version, ticket;
	uint32_t n_entries;
};

/* What one consumer has of an inherited buffer. Each entry has its own reference on the buffer,
 * which an account pays for: that of another consumer may be gone before this entry ends. */
struct entry {
	TAILQ_ENTRY(entry) link;
	struct inherited *inherited;
	/* The message, if this buffer is not its first one. The claim has an entry for the first
	 * one as well, and what becomes of that becomes of this. NULL: the entry ends by itself. */
	struct orphan *further_of;
	struct referrer referrer;
	uint32_t record;
	/* What the entry costs beyond what its producer paid for when it came. The consumer pays
	 * that, as it keeps the message back, or the producer does where the consumer has no
	 * room. */
	uint32_t price : 31, producer_pays : 1;
};

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
/* Whether the producer has let the consumer in, which can have nothing of it otherwise. */
bool claim_is_admitted(const struct claim *claim);
/* Whether no fence in the row is still to be reached. The row does not change any more, so a fence
 * that was found reached is not looked at again. False also if there was no time or no memory. */
bool claim_is_quiet(struct claim *claim, int *budget);
/* Has the broker look at the claim soon, and again every now and then, until it ends or there is
 * nothing that could change. */
void claim_follow(struct claim *claim);
void claim_unfollow(struct claim *claim);
/* Frees a claim that nothing is left of. */
void claim_free(struct claim *claim);
/* Does so, and frees its members and its channel with it if nothing else is left of them. */
void claim_end(struct claim *claim);

/* Returns the account of the claim's producer, or of its consumer. */
struct account *claim_account(const struct claim *claim, bool producer);
/* Adds an entry for a buffer that the claim's consumer may use. @payer is whose the reference on
 * the buffer is. 0, -ENOMEM, or -EDQUOT if no account has room for @price. */
int entry_add(struct claim *claim, uint32_t ticket, uint32_t version, struct buffer *buffer,
	      struct account *payer, uint32_t price, struct entry **out);
/* Adds an entry for a buffer of an orphan that the consumer has from now on, at the producer's
 * cost; @buffer may be NULL. NULL without memory. */
struct entry *claim_add_entry(struct claim *claim, uint32_t ticket, uint32_t version,
			      struct buffer *buffer);
/* Gives back what the entry costs, which was made before it was known that its message is an
 * orphan: the producer paid for that when it came. */
void entry_is_orphans(struct claim *claim, struct entry *entry);
bool entry_is_of(const struct entry *entry, uint32_t ticket, uint32_t version);
/* Frees an entry that the consumer is done with. */
void entry_give_up(struct claim *claim, struct entry *entry);

#endif
