/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CHANNEL_CLAIM_H
#define BROKER_CHANNEL_CLAIM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/buffer/buffer.h"
#include "broker/channel/inside.h"

/* Inside of claims: claim.c has their life, take.c what the broker takes over. */

/* A buffer that was in flight when the broker took it over from its producer: there is one of
 * these, however many consumers may still use the buffer. */
struct inherited {
	struct buffer *buffer; /* NULL: of an orphan without one */
	uint32_t version, ticket;
	uint32_t n_entries;
};

/* What one consumer has of it. The reference on the buffer is the claim's, as the account of
 * another consumer may be gone before this entry ends. */
struct entry {
	TAILQ_ENTRY(entry) link;
	struct inherited *inherited;
	/* Where this buffer is not the first one of its message: the message, of which the claim
	 * has the first one as well. What becomes of that becomes of this. NULL: it ends by
	 * itself. */
	struct orphan *further_of;
	struct referrer referrer;
	uint32_t record;
	/* What it costs beyond what its producer paid for when it came. The consumer pays that,
	 * as it keeps the message back, or the producer does where the consumer has no room. */
	uint32_t price : 31, producer_pays : 1;
};

struct claim {
	LIST_ENTRY(claim) of_producer, of_consumer;
	TAILQ_ENTRY(claim) link; /* in the broker, while it is followed */
	struct member *producer, *consumer;
	uint32_t number;
	uint32_t row;       /* of the consumer's ledger: it is this claim's until this ends */
	bool told_producer; /* the producer was sent the consumer's descriptors */
	bool told_consumer; /* and the consumer the producer's */
	bool over;          /* the consumer will acknowledge nothing more */
	bool taken;         /* the broker looks after what the consumer may still use */
	bool for_fetch;     /* it was made for what the consumer fetches, and has no lane */
	bool followed;
	uint32_t next_ticket; /* to be taken over */
#define CLAIM_FOR_FETCH UINT32_MAX
	uint32_t next_ack;  /* whose fence is to be looked at, once it is over */
	uint32_t n;         /* entries */
	uint32_t n_orphans; /* that it owns */
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
/* The number of the delivery that the consumer has given back; 0: it has given back none. */
uint32_t claim_ask_rejected(const struct claim *claim, uint32_t ticket, uint32_t version);
/* The consumer's word for how many messages of its lane it has received. */
uint64_t claim_taken(const struct claim *claim);
/* Whether the producer has ever let the consumer in, which can have nothing of it otherwise. */
bool claim_is_admitted(const struct claim *claim);
/* The broker looks at the claim now, and again every now and then, until it ends or there is
 * nothing that could change. */
void claim_follow(struct claim *claim);

/* Adds an entry for a buffer of an orphan that the consumer has from now on, at the producer's
 * cost; @buffer may be NULL. NULL without memory. */
struct entry *claim_add_entry(struct claim *claim, uint32_t ticket, uint32_t version,
			      struct buffer *buffer);
/* The entry was made before it was known that its message is an orphan. */
void entry_is_orphans(struct claim *claim, struct entry *entry);
bool entry_is_of(const struct entry *entry, uint32_t ticket, uint32_t version);
/* The consumer is done with this one. */
void entry_give_up(struct claim *claim, struct entry *entry);
/* An entry that an earlier broker had made. 0 or -ENOMEM. */
int claim_restore_entry(struct claim *claim, uint32_t ticket, uint32_t version,
			struct buffer *buffer, bool consumer_pays, uint32_t record);

#endif
