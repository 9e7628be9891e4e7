/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <share/share.h>

/*
 * What the processes of a run have in common besides the broker: a page of memory, where they say
 * what they do, and a pipe of tokens. Any of them may be killed at any point, so nothing here is
 * ever locked: numbers are atomic, and a message goes into the pipe, and comes out, as a whole.
 */

#define WORKERS_MAX 64
#define STREAMS_MAX 64
#define NAMES       8 /* "checker/0" and so on */
#define CHANNELS    6 /* see traffic.c */

struct options {
	char kind[16];
	unsigned processes, streams, seconds, stuck_seconds, pause_us;
	uint64_t steps, seed, pool_size;
	uint32_t reuse;       /* enum share_reuse */
	unsigned kill;        /* after so many steps; 0: never */
	unsigned kill_broker; /* percent of those who are killed */
	unsigned freeze_ms;   /* the longest that the broker is stopped; 0: never */
	bool hang_up;
	unsigned channels; /* percent of the steps that have to do with them */
};

/* What a worker is at, for those who want to know why it does not go on. */
#define ACTIONS(X)                                  \
	X(STARTING, "starting")                     \
	X(CHOOSING, "choosing what to do")          \
	X(ALLOCATING, "share_alloc")                \
	X(ENQUEUING, "enqueuing work")              \
	X(RELEASING, "share_release")               \
	X(PUBLISHING, "share_publish")              \
	X(UNPUBLISHING, "share_unpublish")          \
	X(LOOKING_UP, "share_lookup")               \
	X(EXPORTING, "share_export")                \
	X(IMPORTING, "share_import")                \
	X(RECORDING, "share_fence_record")          \
	X(WAITING, "share_fence_wait")              \
	X(OPENING, "share_channel_open")            \
	X(CLOSING, "share_channel_close")           \
	X(SENDING, "share_send")                    \
	X(RECEIVING, "share_recv")                  \
	X(ACKNOWLEDGING, "share_ack")               \
	X(TAKING_BACK, "share_channel_take_back")   \
	X(FLUSHING, "waiting for acknowledgements") \
	X(JUDGING, "judging what was read")         \
	X(SYNCHRONIZING, "synchronizing")           \
	X(HUNG_UP, "living on, having hung up")     \
	X(ENDING, "ending")

enum action {
#define ACTION_NUMBER(name, text) ACTION_##name,
	ACTIONS(ACTION_NUMBER)
#undef ACTION_NUMBER
};

struct worker_state {
	_Atomic uint64_t progress;          /* changes as long as it gets on */
	_Atomic int action;                 /* enum action */
	_Atomic int stream;                 /* of that action; -1: none */
	_Atomic bool kills_itself;          /* it has decided to, and said that it dies */
	_Atomic uint32_t leaving[CHANNELS]; /* consumers that are about to go, until they have */
};

/* What is known of the messages of a producer's handle, beside the channel: record.c. */
#define SENDERS 128  /* of a channel: that many are remembered */
#define WINDOW  1024 /* messages of a sender in a queue, likewise */
struct sender_record {
	_Atomic uint64_t ordinal;    /* of the sender, + 1; 0: it is being made */
	_Atomic uint64_t begun;      /* messages below may have been sent, others have not */
	_Atomic uint64_t done;       /* messages below have been sent */
	_Atomic uint64_t departures; /* of consumers of the channel, when the sender came;
				      * UINT64_MAX: some were just about to go */
	_Atomic uint32_t fates[WINDOW];
};
struct channel_record {
	_Atomic uint64_t senders;    /* that there have been */
	_Atomic uint64_t departures; /* of consumers: counted before they happen */
	struct sender_record sender[SENDERS];
};

struct board {
	struct options options;
	char address[128];        /* of the broker */
	_Atomic uint64_t claimed; /* steps */
	_Atomic bool stop;
	_Atomic bool last; /* all others are gone: what they have left is received */
	/* what was done, of all workers that ever were */
	_Atomic uint64_t fills, reads, kernels, words, discarded, full, hang_ups, wrong, adopted;
	_Atomic uint64_t sent, received, again, lost, stale, set_aside, rejected;
	_Atomic uint64_t exported, imported, imported_late; /* late: when the maker was dead */
	_Atomic uint32_t dying; /* processes of which the broker may not know that they are dead */
	struct worker_state workers[WORKERS_MAX];
	struct channel_record channels[CHANNELS];
};

/* Makes the page; @fd gets a memfd, which only workers are to inherit. Exits when it cannot. */
struct board *board_new(int *fd);
struct board *board_map(int fd);

const char *action_text(int action);

/* A token on its way from one process to another. */
struct passed {
	share_token token;
	pid_t maker;
	share_fence fence; /* behind which it is filled */
	uint64_t buffer, size, serial;
	uint32_t owner, generation;
};
void pipe_new(int fds[2]);
bool pipe_send(int fd, const struct passed *m); /* false: it is full */
bool pipe_receive(int fd, struct passed *m);    /* false: it is empty */

/* Numbers as good as any, the same in each run with the same seed. */
struct dice {
	uint64_t state;
};
struct dice dice_new(uint64_t seed, uint64_t index, uint64_t incarnation);
uint64_t dice_roll(struct dice *d, uint64_t sides);
static inline bool dice_hit(struct dice *d, unsigned percent)
{
	return dice_roll(d, 100) < percent;
}
uint64_t mix(uint64_t x);
