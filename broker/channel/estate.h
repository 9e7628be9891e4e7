/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CHANNEL_ESTATE_H
#define BROKER_CHANNEL_ESTATE_H

#include "broker/buffer/buffer.h"
#include "broker/channel/inside.h"

/* Inside of estates: what a producer leaves behind when it goes, or with a consumer that it does
 * not wait for. */

struct entry {
	struct buffer *buffer; /* NULL once the reference is given up */
	struct keep keep;
	uint64_t open; /* by holder: those that have not acknowledged it */
	uint32_t version;
	uint16_t ticket;
	bool runs; /* work of a consumer that is GONE uses it, and cannot gate its next use */
};

struct holder {
	struct member *consumer; /* NULL: complete */
	bool admitted;           /* else it was only told about the producer, and has to be again */
	bool over;               /* what it has not acknowledged by now, it will not */
	bool busy;               /* entries from `next` on are to be looked at */
	bool unpaid;             /* some of its fences are more than its user may have */
	bool refused; /* the same of those that it has told us of, which are not known again */
	bool told;    /* it has told us of all that it acknowledged (settle.c) */
	uint32_t next;
};

enum phase { PHASE_NONE, PHASE_TAKING, PHASE_SETTLING };

struct estate {
	TAILQ_ENTRY(estate) link;       /* in the broker, while there is something to do */
	LIST_ENTRY(estate) of_producer; /* of one that is partial */
	bool queued;
	bool waits;   /* some of its entries run: they are looked at again later */
	bool waiting; /* it is among those that wait for that */
	bool partial; /* what one consumer has, of a producer that may go on (abandon.c) */
	bool complete;
	enum phase phase;
	struct member *producer;
	struct broker *broker;
	uint32_t serial;      /* of the CHANNEL_CLOSE, 0: none */
	uint32_t next_ticket; /* while it is taken */
	uint32_t next_entry;  /* then: to be looked up at those consumers that went before */
	uint64_t since_ms;
	uint32_t n_holders, n, n_left;
	uint64_t bytes;
	struct holder holders[CHANNEL_MEMBERS_MAX];
	struct entry entries[];
};

/* With room for so many messages; NULL without memory. */
struct estate *estate_with_room(struct member *producer, uint32_t room);
/* There is something to do. */
void estate_queue(struct estate *e);
/* A reference on the buffer that a ticket stands for, if its producer holds it; @keeper's. */
void estate_take_buffer(struct estate *e, uint32_t ticket, const struct channel_ticket *t,
			const struct member *keeper);
/* Gives one up. */
void estate_give_up(struct estate *e, struct entry *entry);
/* The fence of the consumer's acknowledgement now gates the buffer; it may be more than the
 * consumer's user may have. */
enum answer { NOT_ACKNOWLEDGED, ACKNOWLEDGED, UNPAID };
enum answer estate_add_fence(struct estate *e, struct entry *entry, struct member *consumer,
			     int *budget);
/* @fence gates the buffer from now on, and is given up. False: it may not, see UNPAID. */
bool estate_gate(struct entry *entry, struct fence *fence);
/* What a consumer has of it; NULL: nothing, or not yet. */
struct holder *estate_find_holder(const struct estate *e, const struct member *consumer);
/* All is complete: the end of it, and of its producer if that has nothing else. */
void estate_end(struct estate *e);

#endif
