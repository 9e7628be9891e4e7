/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CHANNEL_ORPHAN_H
#define BROKER_CHANNEL_ORPHAN_H

#include "broker/channel/claim.h"

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

/* The versions that consumers that are gone have acknowledged, by the tickets of a producer that is
 * there. */
struct acknowledged {
	struct member *producer;
	bool is_noted;
	uint32_t record;
	size_t size; /* bytes of all versions */
	uint32_t versions[];
};

/* ------------------------------------------------------------------------------------------- */
/* copy.c: what the producer says of a message                                                 */

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
bool producer_has_copy(struct member *producer, uint32_t ticket);
/* Whether the work on the buffer that came before the message was sent is done. */
bool orphan_is_reached(const struct orphan *o);

/* ------------------------------------------------------------------------------------------- */
/* acknowledged.c                                                                              */

bool producer_has_noted(const struct member *producer, uint32_t ticket, uint32_t version);
/* Remembers that a consumer has acknowledged this whose claim is about to end, as its row goes and
 * the producer may not have looked at it. False without memory. */
bool orphan_note_acknowledged(const struct claim *claim, uint32_t ticket, uint32_t version);
/* Puts what was remembered of a claim that ends into the journal. */
void producer_note_acknowledged(const struct member *producer);
/* Forgets that, when all orphans of the producer are made, so that nobody asks any more which
 * messages are none. */
void producer_forget_acknowledged(struct member *producer);

/* ------------------------------------------------------------------------------------------- */
/* orphan_make.c */

/* Makes some of those of a producer that goes, before its leases go; true when those are all. */
bool orphans_make(struct member *producer, int *budget);

/* ------------------------------------------------------------------------------------------- */
/* orphan.c: whose they are                                                                    */

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

bool producer_has_orphans(const struct member *producer);
/* Looks at what a claim's consumer says of the message, if it is an orphan that the claim owns.
 * True: the consumer has given it back, and has nothing of it any more. */
bool orphan_look(struct claim *claim, const struct inherited *inherited,
		 enum acknowledgement acknowledged);
/* Finds the orphan of which this is a ticket; NULL: there is none. */
struct orphan *orphan_find(const struct member *producer, uint32_t ticket);
/* Gives the claim entries for all buffers of an orphan; or none, and false, without memory. */
bool orphan_add_entries(struct orphan *o, struct claim *claim);
/* Makes the claim, which has entries for all of it, the owner of an orphan that waits. */
void orphan_give(struct orphan *o, struct claim *claim);
/* Ends an orphan that waits, and counts it among those that are lost. */
void orphan_lose(struct orphan *o);
/* Puts an orphan that another broker had where it belongs. 0, -EBADMSG or -ENOMEM. */
int orphan_attach(struct broker *b, void *object);
/* Whether each orphan that is the claim's has an entry, without which it would never end. It is
 * called when all orphans and entries are restored. */
bool orphans_have_entries(struct claim *claim);

/* ------------------------------------------------------------------------------------------- */
/* orphan_fetch.c: who gets them */

/* Gives the consumer one that waits, or the one that it was given last if it @had not heard of
 * that. NULL: there is none for it now. */
struct orphan *orphan_fetch(struct member *consumer, uint32_t had);
/* Returns how many orphans may yet come to this consumer, as somebody else may give them back, and
 * how many producers may leave some, in one number. */
uint32_t orphans_of_others(const struct member *consumer);

/* ------------------------------------------------------------------------------------------- */
/* orphan_count.c and orphan_lost.c: those that nobody gets */

/* Logs, tells and counts that @n messages of producers that are gone are lost, of @producer or
 * (NULL) of several. Of none nothing is said. */
void channel_tell_lost(struct channel *ch, uint64_t n, const struct member *producer,
		       const char *why);
/* Loses messages of a producer that goes or is gone, as they were delivered too often. */
void orphans_lose_often(struct member *producer, uint64_t n);
/* Loses what a producer that goes has set aside, as it takes that back no more. */
void orphans_lose_aside(struct member *producer);
/* Loses, every now and then, orphans that nobody comes for. */
void orphans_look(struct broker *b, int *budget);
/* Loses as many of one producer's orphans that wait as there is time for, and returns their number.
 * The producer stays, though it may be unused then. */
uint64_t orphans_lose_waiting(struct member *producer, int *budget);
/* Ends all orphans that wait, at the end of the broker. */
void orphans_end_all(struct broker *b);
/* Whether a consumer other than @but (NULL: whichever) may ask for orphans. */
bool anybody_may_fetch(const struct channel *ch, const struct member *but);
/* Has this consumer told of what is lost that no consumer was told of. */
void orphans_tell_lost(struct member *consumer);

/* ------------------------------------------------------------------------------------------- */
/* orphan_keep.c and orphan_room.c: whose are kept */

#define PRODUCERS_MAX 64 /* of a channel that are gone and have messages that wait */

/* Puts a producer that is gone into the list where it belongs, after the number of its messages
 * that wait has changed. A channel keeps a limited number of such producers. */
void producer_sort_in(struct member *producer);
/* Loses as many messages of producers that their channels do not keep as there is time for. */
void orphans_leave(struct broker *b, int *budget);
/* Makes room for so much of @resource, which somebody needs who joins a channel: loses the orphans
 * of this account's oldest producers of which nothing else is left. The channel stays. False: all
 * of them would not make enough room, or (*budget is 0) there was no time for all of their
 * messages. */
bool orphans_give_way(struct channel *joined, const struct account *account,
		      enum limit_kind resource, uint64_t amount, int *budget);

#endif
