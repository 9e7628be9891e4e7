/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pages/channel_page.h"

/*
 * The two halves of a channel, over pages of memory and nothing else: no client, no descriptors, no
 * system calls but futex. Neither half is thread-safe; the two run against each other, in different
 * processes or in one. Each takes the other's page for hostile: whatever is in it, no function
 * reads or writes outside of what it was given, or loops for longer than the shape allows.
 */

/* A fence on one of its owner's timelines. */
struct ring_fence {
	uint32_t slot; /* 0: none */
	uint64_t value;
};

/* A buffer of a message behind its first one. */
struct ring_further {
	uint64_t buffer, segment, offset, size;
	uint32_t ticket, version; /* of its own */
};

struct ring_message {
	uint64_t number;
	uint64_t buffer; /* 0: none, and then the next three are 0 */
	uint64_t segment;
	uint64_t offset, size;
	struct ring_fence fence;
	uint32_t deliveries; /* with this one; of a message to be sent: elsewhere before */
	uint32_t ticket, version;
	uint32_t data_size;
	unsigned char *data; /* of a message to be sent: where its data are; to be received: where
			      * they go, with room for `data_max` of the shape */
	uint32_t n_further;  /* buffers behind the first one */
	struct ring_further *further; /* the same as with `data`: room for one less than `buffers`
				       * of the shape. Only where that is more than 1 */
};

/* ------------------------------------------------------------------------------------------- */

struct ring_producer;

/* @ring: mapped for writing, all zeros. In a queue whose ring has no copies by its @layout, they
 * are kept in private memory. 0 or -ENOMEM. */
int ring_producer_new(const struct channel_shape *shape, enum channel_layout layout, void *ring,
		      struct ring_producer **out);
void ring_producer_free(struct ring_producer *p);

/* A consumer, as long as something refers to it: it is the caller's, who keeps it while it is
 * admitted, and then until `fences` is 0. */
struct ring_owner {
	uint64_t member; /* identifier */
	uint32_t fences; /* of this consumer's, in tickets that were not reclaimed yet */
};

struct ring_owned_fence {
	struct ring_owner *owner;
	struct ring_fence fence;
};

enum ring_admission {
	RING_OLDEST = 1 << 0, /* from what is still there */
	RING_LATEST = 1 << 1, /* broadcast: the latest alone, and it keeps nobody waiting */
};
/*
 * A consumer has come: from now on it gets messages, and must acknowledge them. @how: enum
 * ring_admission. @ledger is its page, in which @row is about us.
 */
void ring_producer_admit(struct ring_producer *p, uint32_t consumer, struct ring_owner *owner,
			 const void *ledger, uint32_t row, unsigned how);
/* What is kept for those who come (`history`) can have no more fences than there may be consumers.
 * To be called before admitting somebody to the oldest: @reached says of each whether it is over,
 * and lowers the count of its owner then. */
void ring_producer_forget_fences(struct ring_producer *p,
				 bool (*reached)(void *data, const struct ring_owned_fence *f),
				 void *data);
/* From now on nothing is kept for those who come. */
void ring_producer_end_history(struct ring_producer *p);
/* Nothing is sent from now on while fewer consumers than @n are there; not in CHANNEL_DIRECT. */
void ring_producer_wait_for(struct ring_producer *p, uint32_t n);
/* Our own member identifier, before anybody is admitted. */
void ring_producer_identify(struct ring_producer *p, uint64_t member);

/*
 * A consumer stops counting. @safe: it can use nothing any more (dead, or it has acknowledged all
 * it had and left). Otherwise (left behind, or hung up and alive) what it has taken stays its own
 * until ring_producer_dismiss() is called again with @safe. In a queue its messages go to others,
 * or wait for one to come; those delivered too often are set aside. Its ledger is not looked at
 * after @safe.
 */
void ring_producer_dismiss(struct ring_producer *p, uint32_t consumer, bool safe);

/* That a consumer receives no more (ring_consumer_receives_no_more()) is seen when there is no
 * room, in ring_producer_wake() by whoever has just got something, in ring_producer_reclaim()
 * with `all`, and before a broadcast is sent if that leaves nobody. It counts no longer then, but
 * what it has taken stays its own, unless it is dismissed. */

/* What @member, in slot @consumer (CHANNEL_MEMBERS_MAX: in none any more), may still use: what it
 * has not acknowledged, or has with a fence. @bits: bit by ticket, zeros for all `in_flight`. */
void ring_producer_find_held(const struct ring_producer *p, uint32_t consumer, uint64_t member,
			     unsigned char *bits);
/* Those of the message whose ticket this is. */
void ring_producer_add_tickets(const struct ring_producer *p, uint32_t ticket, unsigned char *bits);
/* Somebody else looks after what this consumer, which does not count any more, has not
 * acknowledged: it is as if it had leases on that. Then it is dismissed as @safe. */
void ring_producer_abandon(struct ring_producer *p, uint32_t consumer);

/*
 * Sends a message (number, ticket and version are filled in here). @reference stands
 * for the message in struct ring_return. @target: the consumer slot in CHANNEL_DIRECT, else
 * ignored. Consumers are woken by ring_producer_wake(), once for several messages. 0; -EAGAIN:
 * there is no room; -ENOENT: no such consumer (direct); -EINVAL: too large.
 *
 * When all tickets are in use, a channel that drops the oldest drops it, but its ticket has to be
 * reclaimed and retired first, by the caller: so reclaim and try once more after -EAGAIN. As long
 * as no consumer is there, every broadcast drops the oldest. In CHANNEL_DIRECT a consumer gets no
 * more while the tickets of `depth` messages that were sent to it are not retired: where there are
 * as many tickets for each, it is in nobody else's way.
 */
int ring_producer_send(struct ring_producer *p, const struct ring_message *m, uint32_t target,
		       void *reference);
/* The same of a message that may have several buffers: each takes a ticket. */
int ring_producer_send_several(struct ring_producer *p, const struct ring_message *m,
			       uint32_t target, void *reference);
/* Whether there is room now for a message of so many buffers (0: as many as the one had that was
 * refused last): 0, -EAGAIN or -ENOENT, as that says. */
int ring_producer_look_for_room(struct ring_producer *p, uint32_t target, uint32_t buffers);

/* Bit by consumer slot: those that sleep on their doorbell, which is the caller's to ring. Those
 * that sleep on a futex have been woken. Each is told of once a sleep. A load for each consumer
 * that got something, and one full barrier if any of them has slept lately (sleep.c). Also due
 * after admit, dismiss and reclaim, which may deliver what had to wait. */
uint64_t ring_producer_wake(struct ring_producer *p);

/* Nothing is sent from now on: every consumer is told, asleep or not. Bit by consumer slot: those
 * whose doorbell is the caller's to ring; all futexes have been rung. */
uint64_t ring_producer_sends_no_more(struct ring_producer *p);

/* After -EAGAIN: fewer consumers are there than are to be. */
bool ring_producer_lacks_consumers(const struct ring_producer *p);
/* After -EAGAIN: whether reclaiming can help; otherwise consumers have to take something first. */
bool ring_producer_lacks_tickets(const struct ring_producer *p);
/* After -EAGAIN: a message that was dropped, or that only those had not taken that get the latest
 * alone, has given way just now. Nobody rings for that: its ticket is to be reclaimed, and it is to
 * be tried once more. */
bool ring_producer_has_made_way(const struct ring_producer *p);
/* Half of the tickets are free: reclaiming is no hurry, unless memory is to come back. */
bool ring_producer_has_plenty(const struct ring_producer *p);

/* No consumer is there: what is sent, as far as there is room, waits for one to come. */
bool ring_producer_is_deserted(const struct ring_producer *p);

/* After -EAGAIN: the consumers that would have to do something. Not who gets the latest alone, with
 * as many messages as it may have. */
uint64_t ring_producer_holdups(struct ring_producer *p);
/* The consumers that have yet to acknowledge something, by slot: those that do not count, too, but
 * not those that get the latest alone. */
uint64_t ring_producer_keepers(struct ring_producer *p);
/* The consumers that have closed the channel and were yet to acknowledge something, by slot. */
uint64_t ring_producer_leaving(const struct ring_producer *p);
/* Whether a consumer has done anything (taken or acknowledged) since the last call for it. */
bool ring_producer_has_moved(struct ring_producer *p, uint32_t consumer);
/* Queue: messages wait for consumers to have room, not only new ones. They go out with the next
 * send or reclaim after that; so have the doorbell rung (ring_producer_sleep()). */
bool ring_producer_has_backlog(const struct ring_producer *p);

/*
 * Going to sleep until consumers have acknowledged or taken something: prepare, look once more
 * whether there is room (ring_producer_reclaim() with `all`, ring_producer_send()), then wait on
 * @word if it still has @value (a futex in a read-only page, of the one consumer that holds it up),
 * or on the doorbell when @word is NULL (as with @doorbell in any case); then awake.
 */
struct ring_sleep {
	const _Atomic uint32_t *word;
	uint32_t value;
	bool unsure; /* others may not see it: look again after a while */
};
void ring_producer_sleep(struct ring_producer *p, bool doorbell, struct ring_sleep *out);
void ring_producer_awake(struct ring_producer *p);

/* A message that everybody has acknowledged, or that nobody can any more. */
struct ring_return {
	void *reference;
	uint64_t buffer;
	uint32_t ticket;
	bool retained;  /* somebody has a lease of its own, or is looked after by the broker */
	bool set_aside; /* it was delivered too often: nobody has acknowledged it, and @message is
			 * what was sent, but for `further` */
	uint32_t n;     /* fences that are behind what consumers do with it */
	struct ring_owned_fence fences[CHANNEL_MEMBERS_MAX]; /* the counts of their owners are the
							      * caller's to lower from now on */
	struct ring_message *message; /* it and its data are valid until the next call */
	/* The message's buffers behind the first one, in their order: whether somebody has a lease
	 * of it. Fences and `ticket` are those of all. */
	uint32_t n_further;
	bool further_retained[CHANNEL_BUFFERS_MAX - 1];
};
/*
 * The next one: true when there was one. Amortized constant, however many are in flight: a call
 * looks at a bounded number of tickets and goes on where the last one stopped; with @all it looks
 * at every one. The ticket stays taken until ring_producer_retire(), when the fences are reached.
 */
bool ring_producer_reclaim(struct ring_producer *p, bool all, struct ring_return *out);
void ring_producer_retire(struct ring_producer *p, uint32_t ticket);
/* The program has one that was set aside: so it is not lost when the producer goes. */
void ring_producer_took_back(struct ring_producer *p);
/*
 * Does both for the oldest messages of each lane, as long as there is nothing in them to be given
 * back or waited for: no buffer, and acknowledged without a fence. How many, at most @limit, and
 * their @references. Whatever is otherwise stays for ring_producer_reclaim().
 */
uint32_t ring_producer_retire_plain(struct ring_producer *p, uint32_t limit, void **references);

struct ring_producer_stats {
	uint64_t sent, dropped, redelivered, set_aside, left_behind, rejected;
	uint32_t in_flight; /* tickets in use, but not those that are there for who comes */
	uint32_t waiting;   /* of these, for a consumer to come or, in a queue, to have room */
	uint64_t done;      /* all with a smaller number are acknowledged, or go to nobody but those
			     * that get the latest alone */
};
void ring_producer_get_stats(const struct ring_producer *p, struct ring_producer_stats *out);

/* ------------------------------------------------------------------------------------------- */

struct ring_consumer;

/* @layout: of the rings. @ledger: mapped for writing, all zeros. @slot: our own, among consumers;
 * @member: our identifier.
 */
int ring_consumer_new(const struct channel_shape *shape, enum channel_layout layout, void *ledger,
		      uint32_t slot, uint64_t member, struct ring_consumer **out);
void ring_consumer_free(struct ring_consumer *c);
/*
 * Of each producer it gets the latest message alone, and all before that is lost. To be called
 * before anybody is attached. Who holds CHANNEL_LATEST_HELD messages is not to receive another.
 */
void ring_consumer_get_latest(struct ring_consumer *c);

/* A producer has come, about which @row is from now on; it starts from zero. What follows calls the
 * producer by its row. @lane: there may be a lane for us; otherwise all that comes is fetched. */
void ring_consumer_attach(struct ring_consumer *c, uint32_t row, uint64_t member, const void *ring,
			  bool lane);
/* Its ring is not looked at any more. */
void ring_consumer_detach(struct ring_consumer *c, uint32_t row);

/*
 * The next message of any producer, in turn, into private memory, and up to @n in one step, as far
 * as they are there and of the only producer, and each after the first is data alone, with nothing
 * to come after. How many; 0: there is none; -ESTALE: the producer of @row has left this consumer
 * behind, or -EPROTO: its ring makes no sense (a ticket that it has sent, and that was not
 * acknowledged, among them). After these two nothing more comes from it until it is attached again.
 */
int ring_consumer_receive_run(struct ring_consumer *c, uint32_t *row, struct ring_message *out,
			      uint32_t n, uint64_t *lost);
/* How many messages of that producer are there, up to @n. 0: nobody has sent anything, has ended or
 * has left us behind. It may say 1 though it is so, where it takes more to find out. */
uint32_t ring_consumer_look(struct ring_consumer *c, uint32_t n);

/* The copy of a message in a queue whose producer is gone, which is ours from now on. False, and it
 * is acknowledged, when it makes no sense. */
bool ring_consumer_fetch(struct ring_consumer *c, uint32_t row, uint32_t ticket, uint32_t version,
			 uint32_t deliveries, struct ring_message *out);

/* False, and nothing is written, when this is not held of @member any more. Producers are woken by
 * ring_consumer_wake(). */
bool ring_consumer_ack(struct ring_consumer *c, uint32_t row, uint64_t member, uint32_t ticket,
		       uint32_t version, struct ring_fence fence, bool retained);
/* Queue: gives the message back, when all work on it is done: somebody else gets it, or this one
 * once more. False as above. */
bool ring_consumer_reject(struct ring_consumer *c, uint32_t row, uint64_t member, uint32_t ticket,
			  uint32_t version, bool retained);
/* Either of these, the latter where @fence is NULL, of a message that has such further buffers.
 * @kept: bit by bit, those of which the consumer has a lease. Those that are not held of @member
 * are left out. */
bool ring_consumer_give_up(struct ring_consumer *c, uint32_t row, uint64_t member, uint32_t ticket,
			   uint32_t version, const struct ring_fence *fence, bool retained,
			   const struct ring_further *further, uint32_t n, uint32_t kept);
/* Whether the producer of this row, if it is there, knows what that means. */
bool ring_consumer_can_reject(const struct ring_consumer *c, uint32_t row);
/* Bit by row: the producers that wait on their doorbell, and those to whom something was given
 * back. Others have been woken, once a sleep. Due after acknowledging, and when there is nothing
 * (more) to receive: having received makes room, too. Costs nothing if nothing was done since the
 * last call. */
uint64_t ring_consumer_wake(struct ring_consumer *c);
/* Nothing is received from now on: producers give what this one has not taken to others (in a
 * queue), and do not wait for it. What it has taken it goes on to acknowledge. Bit by row: the
 * producers to be told by their doorbell; a futex has been rung. */
uint64_t ring_consumer_receives_no_more(struct ring_consumer *c);

/* A producer that has said that it sends no more, and of which everything was received: true, and
 * its row, once for each. To be asked when there is nothing to receive. */
bool ring_consumer_end(struct ring_consumer *c, uint32_t *row);
/* Nothing is left to receive of it now. */
bool ring_consumer_is_empty(struct ring_consumer *c, uint32_t row);
/* The version of a ticket that was received of this producer, and not acknowledged; 0: none. */
uint32_t ring_consumer_holds(const struct ring_consumer *c, uint32_t row, uint32_t ticket);
/* How many those are. */
uint32_t ring_consumer_held(const struct ring_consumer *c, uint32_t row);

/* As for producers: prepare, try ring_consumer_receive_run() once more, wait, awake. @word is NULL
 * when there is not exactly one producer: then it is the doorbell. @doorbell: in any case. */
void ring_consumer_sleep(struct ring_consumer *c, bool doorbell, struct ring_sleep *out);
void ring_consumer_awake(struct ring_consumer *c);

struct ring_consumer_stats {
	uint64_t received, acknowledged, lost, rejected;
};
void ring_consumer_get_stats(const struct ring_consumer *c, struct ring_consumer_stats *out);
