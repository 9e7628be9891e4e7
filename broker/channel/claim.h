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

/* The same, as one consumer has it: the reference is a claim's, since another one's account may be
 * gone before this ends. */
struct entry {
	TAILQ_ENTRY(entry) link;
	struct inherited *inherited;
	/* It is of a buffer behind the first one of this message, which is the claim's: what
	 * becomes of that becomes of this. NULL: it ends by itself. */
	struct orphan *further_of;
	struct referrer referrer;
	uint32_t record;
	/* What it costs beside what its producer has paid for when it came, and who pays that: the
	 * consumer, who keeps it, or the producer where the former has no room. */
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
/* Which delivery of it the consumer has given back; 0: none. */
uint32_t claim_ask_rejected(const struct claim *claim, uint32_t ticket, uint32_t version);
/* As the consumer says: all below were received, of the lane that it has. */
uint64_t claim_taken(const struct claim *claim);
/* Whether the producer has ever let the consumer in, which can have nothing of it otherwise. */
bool claim_is_admitted(const struct claim *claim);
/* It is looked at now, and every now and then, until it ends or nothing can be seen of it. */
void claim_follow(struct claim *claim);

/* The consumer may use this one, which is of an orphan, at its producer's cost; @buffer may be
 * NULL. NULL without memory. */
struct entry *claim_add_entry(struct claim *claim, uint32_t ticket, uint32_t version,
			      struct buffer *buffer);
/* That it is one was not known. */
void entry_is_orphans(struct claim *claim, struct entry *entry);
bool entry_is_of(const struct entry *entry, uint32_t ticket, uint32_t version);
/* The consumer is done with this one. */
void entry_give_up(struct claim *claim, struct entry *entry);
/* One that another broker had taken over. 0 or -ENOMEM. */
int claim_restore_entry(struct claim *claim, uint32_t ticket, uint32_t version,
			struct buffer *buffer, bool consumer_pays, uint32_t record);

#endif
