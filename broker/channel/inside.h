/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CHANNEL_INSIDE_H
#define BROKER_CHANNEL_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include <event2/util.h>

#include "base/table.h"
#include "broker/channel/channel.h"
#include "broker/channel/doorbell.h"
#include "broker/client/account.h"
#include "broker/config/right.h"
#include "broker/memory/fence.h"
#include "pages/channel_page.h"
#include "wire/wire.h"

struct broker;
struct buffer;
struct client;
struct pool;
struct member;
struct memory;
struct segment;

/*
 * A channel is who takes part in it, and what they share: messages never pass through the broker.
 * It lasts as long as it has members, those included that are gone and of whose memory something is
 * still with others.
 */
struct channel {
	struct table_link key; /* by name */
	TAILQ_ENTRY(channel) link;
	struct broker *broker;
	uint64_t id;
	struct pool *pool;
	struct channel_shape shape;
	bool service;       /* it is one of a service's two */
	uint32_t producers; /* at a time; the shape has room for some that are gone as well */
	int control_fd;
	struct channel_control *control;
	/* who has the slot: see member_slot(). A consumer's is free when it is gone, a producer's
	 * when all it had sent is back. */
	struct member *slots[2][CHANNEL_MEMBERS_MAX];
	LIST_HEAD(, member) members;  /* all, slot or not */
	LIST_HEAD(, member) departed; /* of these, consumers that are GONE */
	uint32_t n_producers;         /* of these, producers */
	uint32_t left;                /* roles (bits) of which some leave right now */
	size_t size;
	char name[];
};

/*
 *   PREPARING  maps its page, which is not sealed yet
 *   HERE       takes part
 *   LEFT       its connection has ended but the process lives
 *   GONE       has closed the channel, or is dead. A producer has left an estate; a consumer may
 *              have work running behind what it has acknowledged
 */
enum member_state { MEMBER_PREPARING, MEMBER_HERE, MEMBER_LEFT, MEMBER_GONE };

/* What its owner alone writes: a ring or a ledger. Read-only here, and hostile. */
struct member_page {
	int fd;
	void *memory;
	size_t size;
	size_t written; /* where something was found in it, + 1: see member_unwritten() */
};

struct producer {
	bool closed;                   /* it said so, before it went */
	struct estate *estate;         /* from the start */
	LIST_HEAD(, estate) abandoned; /* what consumers have that it left behind */
	uint32_t n_abandoned;
};

struct consumer {
	bool writable, oldest;
	unsigned holds;                             /* estates that refer to it */
	struct departure *departure;                /* of one that is GONE and lives */
	uint64_t abandoned_by[CHANNEL_MEMBERS_MAX]; /* by slot: the producer that waits for it no
						     * more */
	LIST_ENTRY(member) of_departed;
	TAILQ_ENTRY(member) departing; /* of all channels */
};

struct member {
	struct channel *channel;
	LIST_ENTRY(member) of_channel;
	LIST_ENTRY(member) of_client;
	struct client *client; /* NULL once it is GONE */
	uint64_t client_id;    /* for reports */
	pid_t pid;
	uint64_t id;
	uint32_t role; /* enum share_role */
	uint32_t slot;
	bool died; /* GONE, and its process can do nothing any more */
	enum member_state state;
	struct timelines *timelines;
	struct {
		struct charge membership, bytes, descriptors;
	} charges;
	struct member_page page;
	int pidfd;
	int doorbell;                        /* -1: nobody can be there any more */
	uint64_t known[CHANNEL_MEMBERS_MAX]; /* by slot: whose descriptors it was sent */
	/* by its role; the other one is zero */
	struct producer as_producer;
	struct consumer as_consumer;
};

/* ------------------------------------------------------------------------------------------- */
/* channel.c */

struct channel *channel_find(struct broker *b, const void *name, size_t size);
/* @shape is valid. Without members: channel_end_if_unused(). 0 or negative errno. */
int channel_new(struct broker *b, const void *name, size_t size, struct pool *pool,
		const struct channel_shape *shape, bool service, struct channel **out);
void channel_end_if_unused(struct channel *ch);
/* Somebody of this role has come or gone: the others are told. */
void channel_changed(struct channel *ch, uint32_t role);
/* How many of the role count: of producers, those that are GONE do not. */
uint32_t channel_count(const struct channel *ch, uint32_t role);
static inline struct member **channel_slots(struct channel *ch, uint32_t role)
{
	return ch->slots[role - 1];
}

/* ------------------------------------------------------------------------------------------- */
/* member.c */

enum member_error { MEMBER_NO_SLOT = 1, MEMBER_QUOTA, MEMBER_BYTES_QUOTA, MEMBER_NO_DESCRIPTORS };

/* Its page, a pidfd, its doorbell, and one for the channel's own page, which may be the channel's
 * last member's to keep. */
#define MEMBER_DESCRIPTORS 4

/* 0, an enum member_error or negative errno. */
int member_new(struct channel *ch, struct client *client, uint32_t role, bool writable, bool oldest,
	       struct member **out);
/* PREPARING to HERE. 0 or negative errno. */
int member_ready(struct member *m);
/* NULL: the client has no such membership. */
struct member *member_find(const struct client *client, uint64_t id);
/* It closes the channel, or was PREPARING. A producer goes on until its estate is taken: @serial is
 * answered then. True when it is to be answered now. */
bool member_close(struct member *m, uint32_t serial);
/* Not a member any more: of its client, that is. */
void member_detach(struct member *m);
/* Whether it has its slot: a producer that is GONE may have lost it to another one. */
bool member_holds_slot(const struct member *m);
/* How much of its page, from @at in it on, its owner never wrote; 0: it did. Zeros are there, and
 * to read them takes memory, which it would not be its owner that has to pay for. */
size_t member_unwritten(struct member *m, const void *at);
/* The first of a producer's tickets from @ticket on that may be in use; NULL: there is none. */
const struct channel_ticket *member_next_ticket(struct member *producer, uint32_t *ticket);
/* Everything of one that nothing refers to. */
void member_free(struct member *m);

/* ------------------------------------------------------------------------------------------- */
/* estate.c: what a producer has in flight when it goes */

/* From the start, so that memory for it cannot be lacking in the end. NULL without memory. */
struct estate *estate_new(struct member *producer);
void estate_free(struct estate *e);
/* Some of what the producer has in flight; true when that was all, and it is GONE. */
bool estate_take(struct estate *e, int *budget);
/* The same from the loop, and then an answer. */
void estate_take_later(struct estate *e, uint32_t serial);
bool estate_is_being_taken(const struct estate *e);
/* There is something to do for it, soon. */
bool estate_is_at_work(const struct estate *e);
/* Some of what is to be done; true when there is more. Else it may be gone, and its producer. */
bool estate_work(struct estate *e, int *budget);
void estate_goes_last(struct estate *e);
/* Those that wait for work to be done are looked at again. */
void estates_look_again(struct broker *b);

/* A consumer has had all it will have of the producer. */
void estate_drained(struct estate *e, const struct member *consumer);
/* A consumer is GONE, or known to be dead by now. */
void estates_consumer_gone(struct member *consumer);
/* Whether it is yet to say that it has had all of a producer that is GONE. */
bool estate_waits_for(const struct estate *e, const struct member *consumer);
/* Whether this buffer is in flight at the producer, wherever that is. */
bool estate_has(const struct estate *e, const struct buffer *buffer);
/* Whether a consumer has yet to receive something of a producer that is GONE. */
bool estate_has_unreceived(const struct estate *e);
/* When the producer went. */
uint64_t estate_since_ms(const struct estate *e);
void estate_measure(const struct estate *e, uint64_t *buffers, uint64_t *bytes);

/* ------------------------------------------------------------------------------------------- */
/* abandon.c: what a consumer has that its producer waits for no more */

/* @tickets: bit by ticket, those that the consumer may still use. 0, SHARE_EQUOTA or negative
 * errno.
 */
int member_abandon(struct member *producer, struct member *consumer, const unsigned char *tickets,
		   size_t size);

/* ------------------------------------------------------------------------------------------- */
/* departure.c: what runs behind the acknowledgements of a consumer that is GONE */

struct departure *departure_new(struct member *consumer); /* NULL without memory */
void departure_free(struct departure *d);
/* Some more of it. True when nothing runs any more. */
bool departure_look(struct departure *d, int *budget);
/* Whether the consumer has acknowledged @ticket of @version of this producer; @out is its fence
 * then, or none. */
bool member_has_acknowledged(struct member *consumer, const struct member *producer,
			     uint32_t ticket, uint32_t version, struct fence *out);

/* A fence that the consumer names; none (without timelines) where its streams can have no such. */
struct fence member_fence(struct member *consumer, uint32_t slot, uint64_t value);

/* ------------------------------------------------------------------------------------------- */
/* settle.c: what was acknowledged to a producer that has lost its slot */

/* @all: the consumer has nothing else of it. */
void estate_settle(struct estate *e, const struct member *consumer, const struct wire_settled *acks,
		   size_t n, bool all);

/* ------------------------------------------------------------------------------------------- */
/* supply.c: what messages lie in */

/* A GRANT without a buffer, to be sent to @m; *fd is borrowed, -1 when it has the segment already.
 * 0 or -ENOMEM. */
int member_grant(struct member *m, struct segment *s, struct wire_message *out, int *fd);
/* RIGHT_READ or RIGHT_WRITE, and whether its user has it, which may have changed since it came. */
enum access_right member_needs(const struct member *m);
bool member_may_take_part(const struct member *m);
/* Sends a consumer what it does not have of its channel's pool; *more is set when not all of it
 * could go out. 0 or -ENOMEM. */
int member_supply(struct member *m, bool *more);
/* From now on a new segment is sent as well to all consumers of its pool's channels; and when one
 * is returned, those who sleep there are woken, as they have to unmap it. */
void supply_start(struct memory *memory);

/* ------------------------------------------------------------------------------------------- */
/* report.c */

/* How many messages of a producer a consumer has yet to receive, as their pages say. */
uint64_t member_unreceived(struct member *producer, struct member *consumer);
/* Words for the numbers of a shape. */
const char *channel_mode_name(uint32_t mode);
const char *channel_when_full_name(uint32_t when_full);

/* ------------------------------------------------------------------------------------------- */
/* work.c: all this from the loop, a little at a time */

void channels_on_work(evutil_socket_t fd, short what, void *data); /* data is the broker */
void channels_work_soon(struct broker *b);

#endif
