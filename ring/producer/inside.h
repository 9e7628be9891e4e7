/* SPDX-License-Identifier: MIT */
#pragma once

#include <share/channel.h>

#include "base/mutation.h"
#include "ring/inside.h"
#include "ring/ring.h"

/*
 * Inside of the producing half: its parts are producer.c (sending), wait.c (waking and sleeping),
 * room.c (where a message goes, and what is dropped for it), latest.c (who gets the latest
 * alone), ticket.c (what is in flight, and how it comes back) and member.c (who comes and goes).
 */

/*
 * A ticket is in one list at a time, or in none. There is a list for each lane, of what was sent
 * there and is not done, oldest first.
 */
enum {
	LIST_BACKLOG = CHANNEL_MEMBERS_MAX, /* of a queue: to be sent when somebody has room */
	LIST_LIMBO,                         /* of a queue: somebody who does not count any more may
					     * still use it, otherwise it is done */
	LIST_DONE,                          /* waits to be reclaimed */
	LISTS,
	LIST_RETURNED, /* reclaimed, not retired */
	LIST_FREE,
	LIST_FURTHER, /* of a buffer that goes with another one's message */
};

#define TICKET_NONE UINT16_MAX

struct ring_ticket {
	uint64_t pending;  /* consumers that have it, or will, and have not acknowledged it */
	uint64_t refused;  /* queue: consumers that have rejected it */
	uint64_t sequence; /* in its lane */
	uint64_t number;
	uint64_t buffer;
	void *reference;
	uint32_t version;
	uint16_t next, previous;
	uint16_t further; /* the ticket of the message's next buffer, + 1; 0: there is none */
	uint8_t list;
	uint8_t n_fences; /* in `fences`: of those who have acknowledged it */
	uint8_t consumer; /* not in broadcast: whose lane it is in */
	bool acknowledged, retained, set_aside;
};

struct ring_list {
	uint16_t first, last, cursor;
	uint32_t n;
};

struct ring_lane {
	struct channel_lane *shared;
	unsigned char *entries;
	uint16_t *tickets; /* by position */
	uint64_t tail;
	uint64_t limit; /* there is room up to here, as far as we know */
	uint64_t head;
	uint64_t base; /* broadcast without consumers: what was sent from here on is unclaimed */
};

struct ring_peer {
	struct channel_admission *admission;
	const struct channel_ledger *ledger;
	const struct channel_row *row;
	struct ring_owner *owner;
	uint64_t taken; /* as far as we know */
	uint64_t head;  /* of who gets the latest alone: what is below is not for it */
	uint64_t acknowledged, progress;
	uint64_t rejected; /* of its count: what it had given back when we looked last */
	uint32_t load;     /* messages that were sent to it alone: of a queue, those it has to
			    * acknowledge; direct, those whose tickets are in use */
	uint64_t since;    /* the number of the first message that could be sent to it */
	uint32_t rung;     /* for which of its sleeps */
	bool known;        /* its row is about us */
};

struct ring_producer {
	struct channel_shape shape;
	struct { /* that we write */
		void *ring;
		struct channel_ring *header;
		size_t stride; /* of entries in a lane */
		uint32_t mask; /* of their places */
	} page;
	uint64_t member;
	uint64_t sent; /* which is the number of the next message */

	struct {                    /* sets of consumers, bit by slot */
		uint64_t admitted;  /* those that count */
		uint64_t leaving;   /* those that receive no more, and have yet to acknowledge */
		uint64_t lingering; /* those that count no more, but may use what they have */
		uint64_t fresh;     /* those that got something and were not woken for it */
		uint64_t latest;    /* of those that count, those that get the latest alone */
	} consumers;
	uint64_t busy; /* bit by lane: those with something in flight */
	uint32_t turn; /* queue: the last that got something */
	uint32_t look; /* the next lane for reclaim to look at */

	bool ordered; /* who sleeps can count on us to pass a barrier */
	struct ring_sleeper sleeper;

	struct {                    /* why there was no room last time */
		bool for_consumers; /* fewer are there than `wait_for` */
		bool for_tickets;   /* all tickets were in use; otherwise a lane was full */
		bool comes_back;    /* one that was in use has gone for it by now */
		uint32_t target;    /* to whom the message was to go */
	} full;
	uint32_t wanted;   /* tickets, by the message that was refused last */
	uint32_t wait_for; /* nothing is sent while fewer consumers than this are there */
	uint64_t untold;   /* broadcast: dropped since the last one left, for who comes to know */

	/* The ticket that was free first is used first: so the line with its acknowledgement has
	 * long been written by all, and is read once for all tickets in it. */
	struct {
		uint32_t n, first;
		uint16_t *tickets; /* round */
	} free;
	struct ring_ticket *tickets;
	struct channel_ticket *shared_tickets;
	struct ring_owned_fence *fences; /* [ticket][as many as there are consumers] */
	struct {                         /* what does not lie in entries */
		unsigned char *all;      /* by ticket; NULL: nothing of a message lies there */
		size_t size;
	} far;
	struct {                    /* in a queue */
		unsigned char *all; /* by ticket; of the ring, or: */
		size_t stride;
		void *own; /* NULL: they are of the ring */
	} copies;
	struct ring_message aside; /* the last that was set aside */
	struct ring_list lists[LISTS];
	struct ring_lane lanes[CHANNEL_MEMBERS_MAX];
	struct ring_peer peers[CHANNEL_MEMBERS_MAX];
};

static inline struct ring_owned_fence *ring_fences_of(const struct ring_producer *p,
						      uint32_t ticket)
{
	return &p->fences[(size_t)ticket * p->shape.consumers];
}

static inline bool ring_is_queue(const struct ring_producer *p)
{
	return p->shape.mode == CHANNEL_QUEUE;
}

/* Broadcast: it was sent when nobody was there, and waits for the first that comes. */
static inline bool ring_is_unclaimed(const struct ring_producer *p, const struct ring_ticket *t)
{
	return p->shape.mode == CHANNEL_BROADCAST && p->consumers.admitted == 0 &&
	       t->sequence >= p->lanes[0].base;
}

/* A broadcast without consumers keeps nobody waiting: what waits goes, the oldest first. */
static inline bool ring_is_deserted_broadcast(const struct ring_producer *p)
{
	return p->shape.mode == CHANNEL_BROADCAST && p->consumers.admitted == 0;
}

/* Broadcast: it stays though all have acknowledged it, for those who come. */
static inline bool ring_is_history(const struct ring_producer *p, const struct ring_ticket *t)
{
	return t->sequence >= p->lanes[0].head &&
	       t->sequence + p->shape.history >= p->lanes[0].tail;
}

/* The next of a message's tickets; false: it was the last. */
static inline bool ring_next_further(const struct ring_producer *p, uint16_t *ticket)
{
	uint16_t next = p->tickets[*ticket].further;

	*ticket = (uint16_t)(next - 1);
	return next != 0;
}

/* Of a message; one without a buffer has one. */
static inline uint32_t ring_count_tickets(const struct ring_producer *p, uint16_t ticket)
{
	uint32_t n = 1;

	while (ring_next_further(p, &ticket))
		n++;
	return n;
}

/* Direct: its ticket is free for another one. Who was in the place before has a load of its own. */
static inline void ring_unload(struct ring_producer *p, const struct ring_ticket *t)
{
	struct ring_peer *peer = &p->peers[t->consumer];

	if (p->shape.mode == CHANNEL_DIRECT && !MUTATION(load_ends_with_ack) &&
	    (t->number >= peer->since || MUTATION(load_of_who_was_before)))
		peer->load--;
}

static inline bool ring_is_there(const struct ring_producer *p, uint32_t consumer)
{
	return consumer < p->shape.consumers && p->consumers.admitted & RING_BIT(consumer);
}

static inline bool ring_drops(const struct ring_producer *p)
{
	return p->shape.when_full == SHARE_FULL_DROP;
}

static inline uint16_t ring_take_free(struct ring_producer *p)
{
	uint16_t ticket = p->free.tickets[p->free.first];

	p->free.first = p->free.first + 1 < p->shape.in_flight ? p->free.first + 1 : 0;
	p->free.n--;
	return ticket;
}

/* The one that is taken after so many others. */
static inline uint16_t ring_peek_free(const struct ring_producer *p, uint32_t others)
{
	return p->free.tickets[(p->free.first + others) % p->shape.in_flight];
}

static inline void ring_put_free(struct ring_producer *p, uint16_t ticket)
{
	uint32_t at = p->free.first + p->free.n++;

	p->tickets[ticket].list = LIST_FREE;
	p->free.tickets[at < p->shape.in_flight ? at : at - p->shape.in_flight] = ticket;
}

/* Tickets in use, for those who look at the channel. */
static inline void ring_show_in_flight(struct ring_producer *p)
{
	atomic_store_explicit(&p->lanes[0].shared->in_flight, p->shape.in_flight - p->free.n,
			      memory_order_relaxed);
}

/* Lists. */
static inline void ring_set_busy(struct ring_producer *p, uint32_t list)
{
	if (list >= CHANNEL_MEMBERS_MAX)
		return;
	if (p->lists[list].n > 0)
		p->busy |= RING_BIT(list);
	else
		p->busy &= ~RING_BIT(list);
}

static inline void ring_append(struct ring_producer *p, uint32_t list, uint16_t ticket)
{
	struct ring_list *l = &p->lists[list];
	struct ring_ticket *t = &p->tickets[ticket];

	t->list = (uint8_t)list;
	t->next = TICKET_NONE;
	t->previous = l->last;
	if (l->last == TICKET_NONE)
		l->first = ticket;
	else
		p->tickets[l->last].next = ticket;
	l->last = ticket;
	l->n++;
	ring_set_busy(p, list);
}

void ring_unlink(struct ring_producer *p, uint16_t ticket);
/* Nobody is waited for any more (or only who does not count): to where it belongs. */
void ring_finish(struct ring_producer *p, uint16_t ticket);
/* Only if that is so: in a lane, the one it was sent to (in broadcast all) are done with it. */
bool ring_finish_if_through(struct ring_producer *p, uint16_t ticket);

/* Takes notice of acknowledgements and rejections. Stops at the first of those who count that is
 * missing, unless
 * @thoroughly. Whether the ticket has left its lane. */
bool ring_observe(struct ring_producer *p, uint16_t ticket, bool thoroughly);
/* The one of @consumer: whether it has acknowledged, or given it back. */
bool ring_observe_one(struct ring_producer *p, uint16_t ticket, uint32_t consumer);

/* Whether its row is about us by now. */
static inline bool ring_is_known(struct ring_producer *p, struct ring_peer *peer)
{
	if (!peer->known)
		peer->known =
		    atomic_load_explicit(&peer->row->producer, memory_order_acquire) == p->member;
	return peer->known;
}

/* How far a consumer says to have got, if that can be. */
uint64_t ring_taken(struct ring_producer *p, uint32_t consumer);

/* Queue: the copy of the message with this ticket; and what is in it. */
static inline struct channel_entry *ring_copy_of(const struct ring_producer *p, uint16_t ticket)
{
	return (void *)(p->copies.all + ticket * p->copies.stride);
}
void ring_read_copy(const struct ring_producer *p, uint16_t ticket, struct ring_message *out);
/* Queue: to a consumer that has room, the message with this ticket, which is @m; from the backlog
 * to all who have. */
void ring_deliver(struct ring_producer *p, uint16_t ticket, uint32_t consumer,
		  const struct ring_message *m, uint32_t deliveries);
void ring_deliver_backlog(struct ring_producer *p);
/* Queue: the consumer in whose lane it is is not the one to acknowledge it any more. @had: it had
 * received it. */
void ring_give_to_others(struct ring_producer *p, uint16_t ticket, bool had);

/* Where the next message goes: a lane that has room, or LIST_BACKLOG. 0, -EAGAIN, -ENOENT. */
int ring_find_room(struct ring_producer *p, uint32_t target, uint32_t *lane);
bool ring_has_room(struct ring_producer *p, uint32_t lane);
/* The same, as far as it is known without a look at anybody's page. */
static inline bool ring_is_known_to_have_room(const struct ring_producer *p, uint32_t lane)
{
	return p->lanes[lane].tail < p->lanes[lane].limit;
}
/* Queue: the least loaded consumer, of those that have room or of all; one of @rather_not only if
 * there is no other. CHANNEL_MEMBERS_MAX: none. */
uint32_t ring_choose(struct ring_producer *p, bool with_room, uint64_t rather_not);
/* Those of @consumers that receive no more: others get what they have not taken. Whether there was
 * any. */
bool ring_notice_leaving(struct ring_producer *p, uint64_t consumers);
static inline bool ring_receives_no_more(const struct ring_producer *p, uint32_t consumer)
{
	return atomic_load_explicit(&p->peers[consumer].ledger->receives_no_more,
				    memory_order_acquire);
}
/* Broadcast, before a message is sent: all may have left by now, so that it waits for the next one.
 * Mostly this is a look at one of them, which does receive. */
void ring_notice_desertion(struct ring_producer *p);
static inline void ring_look_for_desertion(struct ring_producer *p)
{
	uint64_t admitted = p->consumers.admitted;

	if (admitted != 0 && ring_receives_no_more(p, (uint32_t)__builtin_ctzll(admitted)))
		ring_notice_desertion(p);
}
/* Those that get the latest alone: where they have got to at least, when the rest is not for them
 * any more. Nothing that is looked at for others goes for it. */
uint64_t ring_pass_over_for_room(struct ring_producer *p);
void ring_pass_over_old(struct ring_producer *p);
static inline void ring_pass_over(struct ring_producer *p)
{
	if (p->consumers.latest != 0)
		ring_pass_over_old(p);
}
/* So many tickets are not free: the latest goes, too, if they are by that. Whether one comes back.
 */
bool ring_pass_over_for_tickets(struct ring_producer *p, uint32_t tickets);
/* Those that get the latest alone, and have no more of it than they may. */
uint64_t ring_who_is_modest(struct ring_producer *p);
/* So many tickets are not free: drops what no one has taken, so that they are when that is
 * reclaimed. Nothing, if they would not be, or if @target would get no message nevertheless. */
void ring_drop_for_tickets(struct ring_producer *p, uint32_t target, uint32_t tickets);
