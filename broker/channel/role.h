/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct acknowledged;
struct inherited;
struct orphan;

/* What a member has by its role. */

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
	bool expelled; /* it had no row for a new producer, see claim_life.c */
	uint32_t slot;
	uint64_t rows;               /* which rows of its ledger some claim has, a bit for each */
	uint64_t n_paid;             /* how many entries' references its user pays for */
	uint32_t fetched;            /* how many orphans it was given */
	uint64_t lost;               /* how many it was told are lost */
	struct orphan *fetched_last; /* NULL: it is not this consumer's any more */
};
