/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/buffer/buffer.h"
#include "broker/channel/claim.h"

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

/* So many times more, or less, the broker keeps this buffer, which may be NULL, of a producer's
 * messages. */
void producer_count_inherited(struct producer *p, const struct buffer *buffer, int n);
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
