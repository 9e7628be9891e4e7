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
	uint64_t number;   /* the producer's */
	uint64_t position; /* in the owner's lane, + 1; 0: in none, it was fetched or waits */
	uint32_t ticket, version;
	uint32_t deliveries;
	/* its number among those that its owner has fetched; 0: none */
	uint32_t fetch;
	uint64_t rejected_by, rejected_ms; /* who has given it back last; 0: not so, or unknown */
	struct orphan_further *further;    /* NULL: there are none */
	uint8_t n_further;
	bool has_entry; /* of another broker's: orphans_have_entries() has found it */
	uint32_t record;
};

/* Of a producer that is there, by ticket: the version that a consumer has acknowledged that is
 * gone. */
struct acknowledged {
	struct member *producer;
	bool is_noted;
	uint32_t record;
	size_t size; /* of all versions, bytes */
	uint32_t versions[];
};

/* ------------------------------------------------------------------------------------------- */
/* copy.c: what the producer says of a message                                                 */

struct copy {
	uint64_t buffer, number, sequence, value;
	uint32_t version, slot, timeline, deliveries, n_further;
};
/* A buffer behind the first one. */
struct copy_further {
	uint64_t buffer;
	uint32_t ticket, version;
};
/* False when this ticket is not in use, or its producer keeps no copies. */
bool copy_ask(struct member *producer, uint32_t ticket, struct copy *out);
/* The @i-th behind the first one of the message with this ticket. False: there is none, or it is
 * another message's. */
bool copy_ask_further(struct member *producer, uint32_t ticket, const struct copy *copy, uint32_t i,
		      struct copy_further *out);
/* The claim of the consumer in whose lane the message is; NULL: it is in none, or that one is
 * gone. */
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
/* A consumer that is gone has acknowledged this, and its claim is about to end. False without
 * memory. */
bool orphan_note_acknowledged(const struct claim *claim, uint32_t ticket, uint32_t version);
/* A claim ends for which that was noted. */
void producer_note_acknowledged(const struct member *producer);
/* All orphans of the producer are made, so nobody asks any more which messages are none. */
void producer_forget_acknowledged(struct member *producer);
/* What an earlier broker had noted. 0 or -EBADMSG. */
int acknowledged_attach(struct acknowledged *a);

/* ------------------------------------------------------------------------------------------- */
/* orphan.c: how they come, and whose they are                                                 */

/* Makes some of those of a producer that goes, before its leases go; true when those are all. */
bool orphans_make(struct member *producer, int *budget);
bool producer_has_orphans(const struct member *producer);
/* Looks at what its owner says of an orphan. True: the owner has given it back, and has nothing
 * of it any more. */
bool orphan_look(struct claim *claim, const struct inherited *inherited,
		 enum acknowledgement acknowledged);
/* The message of which this is a ticket; NULL: there is none. */
struct orphan *orphan_find(const struct member *producer, uint32_t ticket);
/* The claim gets entries for all of it, or (false) there is no memory for that. */
bool orphan_add_entries(struct orphan *o, struct claim *claim);
/* An orphan that waits becomes the claim's, which has entries for all of it. */
void orphan_give(struct orphan *o, struct claim *claim);
/* An orphan that waits is lost, and counted among those. */
void orphan_lose(struct orphan *o);
/* Frees what orphans there are of a member that is freed. */
void producer_end_orphans(struct member *producer);
/* One that another broker had. 0, -EBADMSG or -ENOMEM. */
int orphan_attach(struct orphan *o);
/* When all of these are there: whether each one that is the claim's has an entry, without which it
 * would never end. */
bool orphans_have_entries(struct claim *claim);

/* ------------------------------------------------------------------------------------------- */
/* orphan_fetch.c: who gets them */

/* Gives the consumer one that waits, or the one that it was given last if it @had not heard of
 * that. NULL: there is none for it now. */
struct orphan *orphan_fetch(struct member *consumer, uint32_t had);
/* Those that may yet come to this consumer because somebody else gives them back, and producers
 * that may leave some. */
uint32_t orphans_of_others(const struct member *consumer);

/* ------------------------------------------------------------------------------------------- */
/* orphan_lost.c: those that nobody gets */

/* So many messages of producers that are gone are lost, of this one or (NULL) of several: that is
 * logged, told and counted. 0: nothing. */
void channel_tell_lost(struct channel *ch, uint64_t n, const struct member *producer,
		       const char *why);
/* Messages of this one that were delivered too often, which are lost when it is gone. */
void orphans_lose_often(struct member *producer, uint64_t n);
/* When the producer goes: loses those of them that were set aside, and that it has not taken
 * back. */
void orphans_lose_aside(struct member *producer);
/* Those that nobody comes for are lost, every now and then. */
void orphans_look(struct broker *b, int *budget);
/* Loses as many of one producer's that wait as there is time for; their number. The producer
 * stays, though it may be unused then. */
uint64_t orphans_lose_waiting(struct member *producer, int *budget);
/* At the end of the broker. */
void orphans_end_all(struct broker *b);
/* Whether a consumer that is not @but (NULL: any) may ask for some. */
bool anybody_may_fetch(const struct channel *ch, const struct member *but);
/* What is lost that no consumer was told of is told to this one. */
void orphans_tell_lost(struct member *consumer);

/* ------------------------------------------------------------------------------------------- */
/* orphan_room.c: whose are kept */

/* Puts a producer that is gone into the list where it belongs, after the number of its messages
 * that wait has changed. A channel keeps a limited number of such producers. */
void producer_sort_in(struct member *producer);
/* Loses as many messages of producers that their channels do not keep as there is time for. */
void orphans_leave(struct broker *b, int *budget);
/* To make room for who joins a channel, which stays, and needs so much of @resource, those of this
 * account's oldest producers that have nothing else are lost. False: all of them would not make
 * enough, or (*budget is 0) there was no time for all of their messages. */
bool orphans_give_way(struct channel *joined, const struct account *account,
		      enum limit_kind resource, uint64_t amount, int *budget);

#endif
