/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/buffer/buffer.h"
#include "broker/channel/entry.h"
#include "broker/channel/page.h"

struct object_kind;

/*
 * What is left of producers that are gone: messages of queues that nobody has acknowledged, whose
 * they are, who gets those that wait, and what becomes of those that nobody gets.
 */

/* A buffer of a message behind its first one. */
struct orphan_further {
	struct buffer *buffer;
	struct referrer referrer;
	struct entry *entry; /* the entry of the claim that owns the message; NULL: none does */
	uint32_t ticket, version;
};

/* A message that nobody has acknowledged, of a producer that is gone (orphan.c). */
struct orphan {
	TAILQ_ENTRY(orphan) link; /* in its producer's list, while it waits */
	struct member *producer;
	struct claim *owner;   /* whose entry is of the same ticket and version; NULL: it waits */
	struct buffer *buffer; /* NULL: none */
	struct referrer referrer;
	uint64_t number; /* the producer's number of the message */
	uint64_t
	    position; /* in the owner's lane, + 1; 0: it is in none, as it was fetched or waits */
	uint32_t ticket, version;
	uint32_t deliveries;
	/* its number among those that its owner has fetched; 0: none */
	uint32_t fetch;
	uint64_t rejected_by,
	    rejected_ms;                /* who gave it back last; 0: nobody, or it is not known */
	struct orphan_further *further; /* NULL: there are none */
	uint8_t n_further;
	bool has_entry; /* orphans_have_entries() has found the entry that another broker made */
	uint32_t record;
};

/* Makes some of those of a producer that goes, before its leases go; true when those are all. */
bool orphans_make(struct member *producer, int *budget);
/* Looks at what a claim's consumer says of the message, if it is an orphan that the claim owns.
 * True: the consumer has given it back, and has nothing of it any more. */
bool orphan_look(struct claim *claim, const struct inherited *inherited,
		 enum acknowledgement acknowledged);
/* Finds the orphan of which this is a ticket; NULL: there is none. */
struct orphan *orphan_find(const struct member *producer, uint32_t ticket);
/* Whether the work on the buffer that came before the message was sent is done. */
bool orphan_is_reached(const struct orphan *o);
/* Gives the consumer one that waits, or the one that it was given last if it @had not heard of
 * that. NULL: there is none for it now. */
struct orphan *orphan_fetch(struct member *consumer, uint32_t had);
/* Returns how many orphans may yet come to this consumer, as somebody else may give them back, and
 * how many producers may leave some, in one number. */
uint32_t orphans_of_others(const struct member *consumer);
/* Has this consumer told of what is lost that no consumer was told of. */
void orphans_tell_lost(struct member *consumer);
/* Loses what a producer that goes has set aside, as it takes that back no more. */
void orphans_lose_aside(struct member *producer);
/* Puts a producer that is gone into the list where it belongs, after the number of its messages
 * that wait has changed. A channel keeps a limited number of such producers. */
void producer_sort_in(struct member *producer);
/* Loses, every now and then, orphans that nobody comes for. */
void orphans_look(struct broker *b, int *budget);
/* Loses as many messages of producers that their channels do not keep as there is time for. */
void orphans_leave(struct broker *b, int *budget);
/* Makes room for so much of @resource, which somebody needs who joins a channel: loses the orphans
 * of this account's oldest producers of which nothing else is left. The channel stays. False: all
 * of them would not make enough room, or (*budget is 0) there was no time for all of their
 * messages. */
bool orphans_give_way(struct channel *joined, const struct account *account,
		      enum limit_kind resource, uint64_t amount, int *budget);
/* Ends all orphans that wait, at the end of the broker. */
void orphans_end_all(struct broker *b);
/* Loses messages of the channel of this name: those that wait for a consumer, that @by answers
 * for, and whose producers are gone. *n is how many. False: there was no time for all of them. */
bool channel_drop_messages(struct broker *b, const void *name, size_t size, const struct client *by,
			   uint64_t *n);

void orphan_note(struct orphan *o);
extern const struct object_kind orphan_kind;
/* Whether each orphan that is the claim's has an entry, without which it would never end. It is
 * called when all orphans and entries are restored. */
bool orphans_have_entries(struct claim *claim);
