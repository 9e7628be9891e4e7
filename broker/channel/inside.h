/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CHANNEL_INSIDE_H
#define BROKER_CHANNEL_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "base/table.h"
#include "broker/accounts/account.h"
#include "broker/channel/channel.h"
#include "broker/channel/doorbell.h"
#include "broker/order/fence.h"
#include "broker/rights/right.h"
#include "pages/channel_page.h"
#include "wire/wire.h"

struct broker;
struct buffer;
struct claim;
struct client;
struct inherited;
struct pool;
struct acknowledged;
struct member;
struct memory;
struct orphan;

/*
 * A channel is who takes part in it, and what they share: messages never pass through the broker.
 * It lasts as long as it has members. Those count that are gone and have claims or orphans left.
 */
struct channel {
	struct table_link key; /* in the table of names */
	TAILQ_ENTRY(channel) link;
	struct broker *broker;
	uint64_t id;
	struct pool *pool;
	struct channel_shape shape;
	enum channel_layout layout;
	bool service;       /* it is one of a service's two channels */
	uint32_t producers; /* the most that there may be at a time */
	int control_fd;
	struct channel_control *control;
	TAILQ_HEAD(, member) members;                  /* in the order of identifiers */
	struct member *consumers[CHANNEL_MEMBERS_MAX]; /* by slot; one that is GONE has none */
	uint32_t left; /* the roles of those that are leaving right now, a bit for each */
	struct {
		uint64_t waiting, owned;
		uint64_t lost;        /* since the channel was made */
		uint64_t untold;      /* of these, lost since a consumer was last told */
		uint64_t deserted_ms; /* since when some wait that nobody may fetch; 0: none do */
		/* The producers that are gone and have messages that wait, in the order of
		 * identifiers. */
		struct member_list producers;
		uint32_t n_producers;
	} orphans;
	uint32_t record;
	size_t size;
	char name[];
};

/*
 *   PREPARING  maps its page, which is not sealed yet
 *   HERE       takes part
 *   LEFT       its connection has ended but the process lives, or it was expelled
 *   GONE       has closed the channel, or is dead; it stays as long as it has claims or orphans
 */
enum member_state { MEMBER_PREPARING, MEMBER_HERE, MEMBER_LEFT, MEMBER_GONE };

/* What a member that goes takes of a turn's budget, as it has pages to unmap and others to wake. */
#define MEMBER_COST 64

/* A ring or a ledger, which its owner alone writes. It is read-only here, and may be hostile. */
struct member_page {
	int fd;
	void *memory;
	size_t size;
	size_t written[2]; /* where something was found, + 1, so member_unwritten() need not look */
};

/* Where a producer is listed that is gone and has left messages that wait: with its channel,
 * which keeps them, or with those whose messages are about to be lost. */
enum producer_place { PRODUCER_NOWHERE, PRODUCER_STAYS, PRODUCER_LEAVES };

struct producer {
	bool closed;    /* it said before it went that it closes the channel */
	bool closing;   /* it is being taken over, and is in the broker's list of those */
	bool transient; /* its messages do not outlive it */
	/* in the list of those that are closing, or in the one that `place` says */
	TAILQ_ENTRY(member) link;
	enum producer_place place;
	uint32_t serial; /* of the CHANNEL_CLOSE to be answered once it is taken over; 0: none */
	/* by ticket, what was taken over last and somebody still has; NULL: there is none */
	struct inherited **inherited;
	uint64_t n_inherited, bytes_inherited;
	uint64_t stalled_ms; /* when others were last told that it waits; 0: never */

	struct orphan **orphans; /* by ticket; NULL: there never was one */
	TAILQ_HEAD(, orphan) waiting;
	uint32_t n_waiting, n_owned;
	struct orphan *returned_last; /* the last one that was given back and still waits */
	uint32_t next_orphan;         /* the next ticket to be looked at */
	/* All messages have been looked at. From now on each one's copy says whose it is. */
	bool orphans_made;
	struct acknowledged *acknowledged; /* what consumers have that are gone; NULL: nothing */
};

struct consumer {
	bool writable, oldest, latest;
	bool expelled; /* it had no row for a new producer, see claim.c */
	uint32_t slot;
	uint64_t rows;               /* which rows of its ledger some claim has, a bit for each */
	uint64_t n_paid;             /* how many entries' references its user pays for */
	uint32_t fetched;            /* how many orphans it was given */
	uint64_t lost;               /* how many it was told are lost */
	struct orphan *fetched_last; /* NULL: it is not this consumer's any more */
};

struct member {
	struct channel *channel;
	TAILQ_ENTRY(member) of_channel;
	LIST_ENTRY(member) of_client;
	struct client *client; /* NULL once it is GONE */
	uint64_t client_id;    /* for reports */
	pid_t pid;
	uint64_t id;
	uint32_t role; /* enum share_role */
	enum member_state state;
	struct timelines *timelines;
	struct {
		struct charge membership, bytes, descriptors;
	} charges;
	struct member_page page;
	int pidfd;
	int doorbell;              /* -1: nobody can be there any more */
	LIST_HEAD(, claim) claims; /* a consumer's on producers, a producer's of consumers */
	/* one of these, by its role; the other one is zero */
	struct producer as_producer;
	struct consumer as_consumer;
	uint32_t record;
};

/* ------------------------------------------------------------------------------------------- */
/* channel.c */

struct channel *channel_find(struct broker *b, const void *name, size_t size);
/* Makes a channel. @shape is valid; @producers is how many there may be at a time. Whoever makes no
 * member afterwards calls channel_end_if_unused(). 0 or negative errno. */
int channel_new(struct broker *b, const void *name, size_t size, struct pool *pool,
		const struct channel_shape *shape, uint32_t producers, bool service,
		struct channel **out);
/* Puts a channel that is filled in among those of the broker. */
void channel_attach(struct broker *b, struct channel *ch, struct pool *pool);
void channel_end_if_unused(struct channel *ch);
/* Frees a channel that was never attached, or is no more. */
void channel_free(struct channel *ch);
/* Tells the others that a member of @role has come or gone. 0: nothing has changed, but all are to
 * look again. */
void channel_changed(struct channel *ch, uint32_t role);
/* Returns the number of members of this role that are not GONE. */
uint32_t channel_count(const struct channel *ch, uint32_t role);

/* ------------------------------------------------------------------------------------------- */
/* member.c */

/* MEMBER_LATER: what makes room for it is not done yet. */
enum member_error {
	MEMBER_NO_SLOT = 1,
	MEMBER_QUOTA,
	MEMBER_BYTES_QUOTA,
	MEMBER_NO_DESCRIPTORS,
	MEMBER_LATER
};

/* A member's page, pidfd and doorbell, and one for the channel's own page, as it may be the only
 * member that this is kept for. */
#define MEMBER_DESCRIPTORS 4

/* Makes a member. @flags are those of CHANNEL_OPEN. 0, an enum member_error or negative errno. */
int member_new(struct channel *ch, struct client *client, uint32_t role, uint32_t flags,
	       struct member **out);
/* Returns the memory that the broker may keep of a member's messages; and the size of its page. */
uint64_t member_own(const struct channel *ch, uint32_t role);
size_t member_page_size(const struct channel *ch, uint32_t role);
/* Makes a member that is PREPARING one that is HERE, with the claims that come of that. 0 or
 * negative errno. */
int member_ready(struct member *m);
/* Finds a client's membership; NULL: it has no such one. */
struct member *member_find(const struct client *client, uint64_t id);
/* Has the member leave, as its client asks for that. A producer stays until it is taken over, and
 * the request with @serial is answered then. True when it is to be answered now. */
bool member_close(struct member *m, uint32_t serial);
/* Tells those who watch the broker what happens to a member. */
void member_tell(const struct member *m, const char *action);
/* Takes the member out of its client's list of memberships. */
void member_detach(struct member *m);
/* Makes a table of pointers, all NULL, by tickets of a producer. NULL without memory. */
void *member_table_new(const struct member *producer);
/* Returns how many bytes of a member's page, from @at in it on, its owner never wrote; 0: @at was
 * written. Zeros are there; they are not read, as that takes memory for which the owner does not
 * pay. */
size_t member_unwritten(struct member *m, const void *at);
/* Finds the first of a producer's tickets from *ticket on that may be in use, and sets *ticket to
 * its number. NULL: there is none. */
const struct channel_ticket *member_next_ticket(struct member *producer, uint32_t *ticket);
void member_give_slot_back(struct member *m);
/* Frees a member that was detached. */
void member_free(struct member *m);
/* Frees a member that is GONE, and has no claim and no orphan. The channel stays until
 * channel_end_if_unused(). */
void member_free_if_unused(struct member *m);
/* Whether a consumer says that what it has taken is all that it takes. */
bool member_receives_no_more(struct member *consumer);

/* ------------------------------------------------------------------------------------------- */
/* claim.c: what a consumer may have of a producer                                             */

/* Puts a claim that is filled in into the lists of its producer and its consumer. */
void claim_attach(struct claim *claim);
/* Makes the newcomer's claims, one with each member of the other role, but for consumers that
 * have no row left. 0 or -ENOMEM. */
int claims_make(struct member *newcomer);
/* Undoes claims_make(), as the newcomer does not come after all. */
void claims_unmake(struct member *newcomer);
/* Expels the consumers that had no row left for this producer; true when there were any. */
bool claims_expel(struct member *producer);
/* The claims of a member of either role, one after the other. */
struct claim *claims_first(const struct member *m);
struct claim *claims_next(const struct member *m, const struct claim *claim);
/* Returns the member at the other end of one of @m's claims. */
struct member *claim_other(const struct claim *claim, const struct member *m);
/* Finds @m's claim with the member of this identifier; NULL: there is none (any more). */
struct claim *claim_find(const struct member *m, uint64_t other);

/* Notes that the consumer has received and acknowledged all that it will. */
void claim_is_over(struct claim *claim);
/* Does the same for all claims of a consumer that is GONE. */
void claims_are_over(struct member *consumer);
/* Looks at what the pages of a claim's members say by now. That may end the claim, and its members
 * and channel with it. */
void claim_look(struct claim *claim, int *budget);
/* Makes a claim on a producer that is gone, for a consumer that fetches. NULL: there is no memory
 * or no row. */
struct claim *claim_make_for_fetch(struct member *producer, struct member *consumer);

/* ------------------------------------------------------------------------------------------- */
/* take.c: claims that the broker takes over                                                   */

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

/* ------------------------------------------------------------------------------------------- */
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

/* ------------------------------------------------------------------------------------------- */
/* progress.c */

/* Returns how many messages the consumer has yet to receive of the producer, as their pages say; or
 * 1 if it has yet to learn that it was left behind. */
uint64_t claim_unreceived(const struct claim *claim);
/* Returns how many messages a consumer has received and not acknowledged; and how many buffers
 * these have. */
uint64_t member_held(struct member *consumer);
uint64_t member_held_buffers(struct member *consumer);
/* Whether the producer's ring says that it does not wait for the consumer any more. */
bool claim_is_left_behind(const struct claim *claim);

/* ------------------------------------------------------------------------------------------- */
/* report.c */

/* Logs, tells and counts it if the producer waits for the consumer no more. It is called before the
 * claim is over or taken over. */
void claim_tell_left_behind(const struct claim *claim);
/* Does the same for a consumer that is left behind for another reason. */
void member_tell_left_behind(struct member *consumer, const char *why);
/* Logs, tells and counts that a producer waits for room, which it says itself, as far as that may
 * be true. */
void member_tell_stalled(struct member *producer);
/* Return words for the numbers of a shape. */
const char *channel_mode_name(uint32_t mode);
const char *channel_when_full_name(uint32_t when_full);

/* ------------------------------------------------------------------------------------------- */
/* work.c: all this from the loop, a little at a time */

#define CHANNELS_TURN 4096 /* tickets or messages, which take about a millisecond */

void channels_work_soon(struct broker *b);

#endif
