/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Layout of what the members of a channel share. Every page has one writer, enforced by the kernel:
 *
 *   control page   written by the broker, read by all
 *   ring           written by one producer, read by all consumers
 *   ledger         written by one consumer, read by all producers
 *
 * The broker makes them, keeps a mapping, and seals them once their writer has mapped them. Nobody
 * trusts what is in another's page: each value is read once, into private memory, and checked.
 *
 * A ring has lanes: one in broadcast, one for each consumer otherwise. A lane is a ring of entries;
 * an entry is a message, in place. Its position can be used again once all consumers of the lane
 * have taken it (or it was dropped); what they have taken they hold by its *ticket*, of which a
 * producer has `in_flight`. A ticket's version tells its uses apart. A consumer acknowledges by
 * writing the ticket's version into its ledger, together with a fence on one of its own timelines.
 * The ticket is free again when all who got the message have acknowledged it and the fences are
 * reached: until then the ring says which buffer it stands for, so that the broker can look after
 * it when the producer is gone. In a queue, the ring also has a copy of each message in flight, by
 * ticket, and says in whose lane it is: a lane's position is used again while what was taken from
 * it is not acknowledged yet, and what no consumer has room for is in no lane.
 *
 * Data of more than CHANNEL_DATA_NEAR bytes lie *far*, by ticket as well, in channels that may have
 * such: so they are written once, whatever lane their message goes through, and a lane of entries
 * stays as small as it is. If a message's entry is still its own after what is far was read, and
 * its consumer is not to leave it out for another reason, that is whole.
 *
 * A message of several buffers has a ticket for each. The first one's is that of the message: by it
 * everything is known that is known of a message. The others lie far, by that ticket. They are
 * acknowledged before the first one is, so that whoever sees that sees theirs. In a queue the
 * copies of these tickets are finished from the start: they are no messages.
 */

/*
 * What a ring consists of, of a channel that lives: one that a broker before this one has made goes
 * on as it was. A layout has all that the one before has, in the same places, so that a library
 * which does not know it reads and writes the rest; but what is far is behind all else, as whoever
 * knows of that knows the layouts. Rings of services have no copies, since nobody answers requests
 * of who is gone.
 */
enum channel_layout {
	CHANNEL_WITHOUT_COPIES,
	CHANNEL_WITH_COPIES, /* in a queue, of the messages in flight */
	CHANNEL_LAYOUTS,
};

#define CHANNEL_MEMBERS_MAX    64 /* of each role */
#define CHANNEL_DEPTH_MAX      4096
#define CHANNEL_IN_FLIGHT_MAX  8192
#define CHANNEL_DATA_MAX       65535
#define CHANNEL_DATA_NEAR      256 /* of a message: they are in its entry. More of them lie far */
#define CHANNEL_FAR_MAX        (64 << 20) /* bytes of a ring */
#define CHANNEL_BUFFERS_MAX    32         /* of a message */
#define CHANNEL_DELIVERIES_MAX 65535
#define CHANNEL_LATEST_HELD    2 /* messages at once, by who gets the latest alone */

enum channel_mode {
	CHANNEL_BROADCAST = 1, /* these two as enum share_channel_mode */
	CHANNEL_QUEUE = 2,
	CHANNEL_DIRECT = 3, /* the producer says which consumer: replies of a service */
};

/* What all members agree on; it comes from the broker. */
struct channel_shape {
	uint32_t mode;      /* enum channel_mode */
	uint32_t when_full; /* enum share_when_full */
	uint32_t depth;     /* entries of a lane, a power of two */
	uint32_t in_flight; /* tickets of a producer */
	uint32_t data_max;  /* bytes */
	uint32_t rows;      /* of a ledger */
	uint32_t consumers; /* at a time */
	uint32_t deliveries;
	uint32_t history; /* messages that a producer keeps for consumers to come (broadcast) */
	uint32_t buffers; /* of a message, at most; 0 is 1 */
};
/* CHANNEL has so much of it, as ever, and the rest in a field of its own. */
#define CHANNEL_SHAPE_SENT 36
_Static_assert(offsetof(struct channel_shape, buffers) == CHANNEL_SHAPE_SENT, "in the protocol");
_Static_assert(sizeof(struct channel_shape) == CHANNEL_SHAPE_SENT + 4, "nothing else is");

/* Whether it is within the limits above (in_flight at least 1, depth a power of two, and so on).
 * Every message of the history has its entry and its ticket, and leaves a ticket to others. */
bool channel_shape_is_valid(const struct channel_shape *s);

struct channel_control {
	_Atomic uint32_t epoch; /* grows whenever somebody comes or goes */
};
#define CHANNEL_CONTROL_SIZE 4096

/* -------------------------------------------------------------------------------------------
 * A ring: header, an admission for each consumer slot, lanes, tickets, entries, copies, far data.
 */

/*
 * Who sleeps says so in its own page. Above the state there is whether it sleeps at all, now and
 * then: as long as it does not, nobody who has something for it needs a barrier before looking here
 * (ring/sleep.c); and a number of this sleep, so that one ring is enough for it.
 */
enum channel_sleep { CHANNEL_AWAKE, CHANNEL_ON_FUTEX, CHANNEL_ON_DOORBELL };
#define CHANNEL_SLEEP_STATE 3u
#define CHANNEL_MAY_SLEEP   4u
#define CHANNEL_SLEEP_ONE   8u /* the number counts in these */

struct channel_ring {
	/* The producer waits for acknowledgements, on the `bell` of some consumer's ledger, or for
	 * its own doorbell. */
	_Alignas(64) _Atomic uint32_t waiting; /* enum channel_sleep and so on */
	/* Not 0: it has closed the channel, and every message of it is in the ring. It is where
	 * older libraries have nothing: they leave it 0 and never look at it, and learn of the end
	 * from the broker alone. */
	_Atomic uint32_t sends_no_more;
	/* Counts of messages, and of consumers, for people who look at the channel. They change so
	 * rarely that they are not in the way of those who look at the above. */
	_Atomic uint64_t dropped, redelivered, set_aside, left_behind, rejected;
	/* What it understands of what consumers write: enum channel_heeds. Older libraries leave it
	 * 0, and take a rejection for an acknowledgement. */
	_Atomic uint32_t heeds;
	/* Of those set aside, those that its program has. */
	_Atomic uint64_t taken_back;
};
enum channel_heeds {
	CHANNEL_HEEDS_REJECTIONS = 1 << 0,
	/* That a consumer gets the latest alone: it is told by `head` of its admission. */
	CHANNEL_HEEDS_LATEST = 1 << 1,
	/* That the broker looks how many it has not taken back when it goes. */
	CHANNEL_COUNTS_TAKEN_BACK = 1 << 2,
};
_Static_assert(sizeof(struct channel_ring) == 64, "one cache line");
_Static_assert(offsetof(struct channel_ring, dropped) == 8, "as in older libraries");
_Static_assert(offsetof(struct channel_ring, taken_back) == 56, "where these have nothing");

/* From which sequence number of its lane a consumer gets messages. */
struct channel_admission {
	_Alignas(64) _Atomic uint64_t consumer; /* member id; another one: not admitted (yet) */
	_Atomic uint64_t start;                 /* valid once `consumer` says so */
	_Atomic uint64_t left_behind;           /* member id of who is not waited for any more */
	_Atomic uint64_t lost; /* messages before `start` that were dropped, as nobody was there */
	_Atomic uint64_t head; /* of who gets the latest alone: what is below is not for it */
};

struct channel_lane {
	_Alignas(64) _Atomic uint32_t bell; /* futex of sleeping consumers; counts wake-ups */
	_Atomic uint32_t in_flight; /* messages, of all lanes, for people; only in the first */
	_Atomic uint64_t head;      /* what is below was dropped or is done */
	_Atomic uint64_t tail;      /* next sequence number */
};

/* `version` is written last when a ticket is put to use (release), and `buffer` is 0 while it is
 * free. */
#define CHANNEL_NO_BUFFER UINT64_MAX
struct channel_ticket {
	_Atomic uint64_t buffer; /* identifier; 0: none. Where there are copies, a message without
				  * one has CHANNEL_NO_BUFFER, as the ticket is in use */
	_Atomic uint32_t version;
	_Atomic uint32_t call; /* services: which call this index stands for, 0: none. Has nothing
				* to do with the ticket beside it */
};

/* A header of one cache line, so that a message with 64 bytes of data takes two. */
struct channel_entry {
	_Alignas(64) _Atomic uint64_t sequence; /* sequence number + 1 once it is complete; below
						 * that it is being written, or an older one */
	uint64_t number;                        /* of the producer's messages */
	uint64_t buffer;                        /* identifier, 0: none */
	uint64_t segment;
	uint64_t offset_data_size; /* of the buffer in the segment; CHANNEL_PACK() */
	uint64_t size_deliveries;  /* of the buffer, bytes */
	uint64_t value;            /* of the fence */
	uint32_t version;          /* of the ticket */
	uint16_t ticket;
	uint16_t timeline; /* slot of the fence in its producer's timeline page; 0: none. Above the
			    * slot: how many more buffers the message has; CHANNEL_TIMELINE() */
	unsigned char data[];
};
#define CHANNEL_TIMELINE(slot, more) ((uint16_t)((slot) | (more) << 8))
#define CHANNEL_SLOT(timeline)       ((timeline)&0xffu)
#define CHANNEL_MORE(timeline)       ((uint32_t)(timeline) >> 8)
_Static_assert(sizeof(struct channel_entry) == 64, "one cache line");

/*
 * A copy is an entry that is found by its ticket, and that nobody reads while its producer goes on.
 * It is written before its ticket is put to use, and is about what the ticket stands for if both
 * have the same version. `sequence` is in which position of a lane the message is, + 1, and
 * `ticket` is whose lane that is; both are written before the entry is, the former last (release).
 */
#define CHANNEL_COPY_WAITS 0 /* in no lane, for a consumer to come or to have room */
/* The same, by who had it: it waits for its next delivery, whose number is in the other bits. */
#define CHANNEL_COPY_RETURNED (UINT64_C(1) << 63)
#define CHANNEL_COPY_FINISHED UINT64_MAX /* acknowledged, set aside or dropped */

/*
 * A buffer of a message behind its first one. `ticket` is that, below the lowest bits of the
 * version of the message's ticket, below its own version: one word, so that who is late with
 * reading it does not take the ticket of another message for one of this one.
 */
struct channel_further {
	uint64_t ticket;
	uint64_t buffer, segment, offset, size;
};
#define CHANNEL_FURTHER(ticket, first, version) \
	((uint64_t)(ticket) | (uint64_t)((first)&0xffff) << 16 | (uint64_t)(version) << 32)

/* 48 bits and 16. */
#define CHANNEL_PACK(large, small) ((uint64_t)(large) | (uint64_t)(small) << 48)
#define CHANNEL_LARGE(packed)      ((packed)&0xffffffffffff)
#define CHANNEL_SMALL(packed)      ((uint32_t)((packed) >> 48))

/* -------------------------------------------------------------------------------------------
 * A ledger: header, and rows. A row is about one producer, from when both are there until the
 * consumer is done with it; the broker says which is whose.
 */

struct channel_ledger {
	_Alignas(64) _Atomic uint32_t sleeping; /* enum channel_sleep: on the bell of a lane, or
						 * for its own doorbell */
	/* Not 0: `taken` is final. What it has taken is its own until it has acknowledged it, the
	 * rest is not. Beside what producers look at in any case. */
	_Atomic uint32_t receives_no_more;
	/* Messages that it has given back, which are among the acknowledged. A queue's producer
	 * looks at it before it sends, so it is counted after that is said of the message. */
	_Atomic uint64_t rejected;
	_Alignas(64) _Atomic uint32_t bell; /* futex of producers that wait; counts */
	/* Messages, for people who look; beside what nobody looks at all the time. */
	_Atomic uint64_t received, acknowledged, lost;
	/* Buffers behind the first ones of the messages that it has received and not acknowledged:
	 * if it is left behind, its user pays for these as well. Older libraries have none. */
	_Atomic uint64_t further;
};
_Static_assert(sizeof(struct channel_ledger) == 128, "two cache lines");

#define CHANNEL_ACK_RETAINED (UINT64_C(1) << 31) /* the consumer has a lease of its own now */
/* In a queue: the consumer gives the message back, and its work on it is done. In place of the slot
 * there is which delivery it means: it may get the same again, by the same ticket and version. */
#define CHANNEL_ACK_REJECTED (UINT64_C(1) << 30)
#define CHANNEL_ACK_DELIVERY 0xffffu
/* version << 32 | flags | slot of the fence in the consumer's timeline page, 0: none */
struct channel_ack {
	_Atomic uint64_t word;  /* written last (release) */
	_Atomic uint64_t value; /* of the fence */
};

struct channel_row {
	_Alignas(64) _Atomic uint64_t producer; /* member id it is about; the rest is zero then */
	_Atomic uint64_t taken; /* sequence number in the lane: all below are received */
	_Alignas(64) struct channel_ack acks[];
};

/* ------------------------------------------------------------------------------------------- */

/* One of the counts above, by its only writer. */
static inline void channel_add(_Atomic uint64_t *count, uint64_t n)
{
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

bool channel_has_copies(const struct channel_shape *s, enum channel_layout layout);

/* Sizes in bytes, of a valid shape. */
size_t channel_ring_size(const struct channel_shape *s, enum channel_layout layout);
size_t channel_ledger_size(const struct channel_shape *s);

uint32_t channel_lanes(const struct channel_shape *s);
/* The lane that the consumer in this slot receives from. */
uint32_t channel_lane_of(const struct channel_shape *s, uint32_t consumer);

/* Where things are; indices must be in range. */
struct channel_admission *channel_admission_at(void *ring, const struct channel_shape *s,
					       uint32_t consumer);
struct channel_lane *channel_lane_at(void *ring, const struct channel_shape *s, uint32_t lane);
struct channel_ticket *channel_ticket_at(void *ring, const struct channel_shape *s,
					 uint32_t ticket);
struct channel_entry *channel_entry_at(void *ring, const struct channel_shape *s, uint32_t lane,
				       uint64_t sequence);
/* Only where there are copies. */
struct channel_entry *channel_copy_at(void *ring, const struct channel_shape *s, uint32_t ticket);
/* Of an entry, with the data that may be in it. */
size_t channel_entry_size(const struct channel_shape *s);
/* Of a message, what may lie far; 0: nothing. Only where that is not 0 there is such a place: the
 * further buffers that it may have, then data. */
size_t channel_far_size(const struct channel_shape *s);
size_t channel_far_data(const struct channel_shape *s); /* where they begin */
unsigned char *channel_far_at(void *ring, const struct channel_shape *s, enum channel_layout layout,
			      uint32_t ticket);
/* How many buffers a message has at most. */
static inline uint32_t channel_buffers(const struct channel_shape *s)
{
	return s->buffers ? s->buffers : 1;
}
struct channel_row *channel_row_at(void *ledger, const struct channel_shape *s, uint32_t row);
