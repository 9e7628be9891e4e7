/* SPDX-License-Identifier: MIT */
#pragma once

#include <share/channel.h>

#include "tests/themes/checker/worker.h"

/*
 * What a worker does on channels. Each message carries a note of who sent it and what is in its
 * buffer; and the board has a record of each sender, so that a consumer can tell what it should
 * have received.
 */

#define DELIVERIES_MAX 15
#define BUFFERS_MAX    3 /* of a message */

struct channel_sort {
	const char *name;
	uint32_t mode, when_full, depth, in_flight, deliveries, stall_ms, history;
	uint32_t rejected; /* per cent of its messages */
	uint32_t buffers;  /* of a message at most; up to BUFFERS_MAX */
};
extern const struct channel_sort channel_sorts[CHANNELS];
share_channel_options channel_options(unsigned channel);
/* A queue that drops nothing and delivers more than once: each of its messages ends acknowledged,
 * set aside, or as one that the broker counts as lost. */
bool channel_is_counted(unsigned channel);

/* The data of a message begins with it. */
struct note {
	uint64_t sender; /* ordinal, of those of the channel */
	uint64_t number;
	struct {
		uint64_t serial, size;
	} buffers[BUFFERS_MAX];
	share_fence fence; /* behind which they are filled */
	uint32_t n_buffers;
	uint32_t owner, generation; /* of all of them */
	uint32_t tail;              /* bytes behind this */
	uint64_t sum;               /* of all that */
};

/* A producer's handle. */
struct sending {
	share_channel *channel; /* NULL: none */
	uint64_t ordinal;
	uint64_t sent;
	uint64_t flushed; /* in a queue: all below are known to have been dealt with */
};

/* What a consumer's handle has had of a sender. */
struct view {
	uint64_t ordinal;  /* + 1; 0: nothing */
	uint64_t producer; /* as the library calls it; 0: nothing was received */
	uint64_t begun;    /* when the consumer came: what is sent from there on, it has to get */
	uint64_t next;     /* number */
};

/* A consumer's handle. */
struct receiving {
	share_channel *channel; /* NULL: none */
	bool latest;            /* it gets the latest message alone */
	uint64_t received;
	struct view views[SENDERS];
};

/* A message that is not acknowledged. */
struct loan {
	share_message message;
	unsigned channel;
	unsigned stream; /* that last used it */
	struct note note;
};
#define LOANS_MAX 6

/* A channel that nobody else knows. */
#define DESERTED_HELD 3
struct deserted {
	share_channel *producer, *consumer; /* NULL: none */
	uint64_t sent, next;                /* numbers: to be sent, to be received */
	uint64_t lost;                      /* dropped since the last one left */
	share_message held[DESERTED_HELD];
	unsigned n_held;
};

struct traffic {
	struct deserted deserted;
	struct sending sending[CHANNELS];
	struct receiving receiving[CHANNELS];
	struct loan loans[LOANS_MAX];
	unsigned n_loans;
};

/* traffic.c */
struct traffic *traffic_new(void);
void traffic_step(struct worker *w);
/* Sends it, and lets it go, on whichever channel: false when this worker sends on none. */
bool traffic_give(struct worker *w, const struct held *h);
/* Something that may give memory back to the pool; false when there is nothing. */
bool traffic_make_room(struct worker *w);
/* Reads what it holds. */
void traffic_use(struct worker *w);
void traffic_end(struct worker *w);

/* send.c */
void send_open(struct worker *w, unsigned channel);
void send_close(struct worker *w, unsigned channel);
void send_some(struct worker *w, unsigned channel);
void send_held(struct worker *w, unsigned channel, const struct held *h);
/* What was delivered too often. */
void send_take_back(struct worker *w, unsigned channel);
/* Whether everything it has sent has been dealt with; in a queue it sees to it that it was. */
bool send_is_flushed(struct worker *w, unsigned channel);

/* receive.c */
void receive_open(struct worker *w, unsigned channel);
void receive_close(struct worker *w, unsigned channel);
/* Whether there was something. */
bool receive_some(struct worker *w, unsigned channel, int timeout_ms);
void receive_read(struct worker *w, struct loan *l);
void receive_acknowledge(struct worker *w, unsigned loan);

/* deserted.c */
void deserted_step(struct worker *w);
void deserted_end(struct worker *w);

/* record.c: the rules. Those that say no have reported it. */
uint64_t record_departures(struct board *b, unsigned channel); /* before a sender comes */
uint64_t record_new(struct worker *w, unsigned channel, uint64_t departures); /* its ordinal */
void record_sending(struct worker *w, unsigned channel, const struct sending *s, unsigned n);
void record_sent(struct worker *w, unsigned channel, const struct sending *s);
/* Whether the record of that sender will soon be used for another one. */
bool record_is_old(struct worker *w, unsigned channel, uint64_t ordinal);

void note_write(struct note *n, const struct worker *w, uint64_t sender, uint64_t number);
size_t note_size(const struct note *n);
void note_seal(void *data);
bool note_check(struct worker *w, unsigned channel, const share_message *m, struct note *out);
struct mark note_mark(const struct note *n, unsigned buffer);

/* A consumer of this worker is about to go, and has gone: then the broker knows. */
void record_leaving(struct worker *w, unsigned channel);
void record_left(struct worker *w, unsigned channel);
/* What it gives back comes to somebody late, too. */
void record_rejecting(struct worker *w, unsigned channel);
/* A process, whatever it has: about to go, and gone. */
void record_dying(struct board *b);
void record_dead(struct board *b);

/* A consumer has come; a message has come to it, or none. */
void view_open(struct worker *w, unsigned channel);
void view_receive(struct worker *w, unsigned channel, const share_message *m, const struct note *n);
struct sent_before {
	uint64_t senders;
	uint64_t done[SENDERS / 2];
};
void view_look(struct worker *w, unsigned channel, struct sent_before *out);
void view_nothing(struct worker *w, unsigned channel, const struct sent_before *before);

/* In queues. */
void fate_acknowledging(struct worker *w, unsigned channel, const struct loan *l);
void fate_acknowledged(struct worker *w, unsigned channel, const struct loan *l);
void fate_set_aside(struct worker *w, unsigned channel, const struct note *n);
/* From @first on: the first that was not dealt with. */
uint64_t fate_settled(struct worker *w, unsigned channel, const struct sending *s);
/* When everybody is gone, of a channel that is counted: how many of its messages are known, and how
 * many of these nobody has acknowledged, set aside, or had as often as the channel allows, or once
 * less. With @tell it says which these are. */
void fates_count(struct board *b, unsigned channel, bool tell, uint64_t *known, uint64_t *missing);
