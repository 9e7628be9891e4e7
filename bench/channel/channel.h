/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>

#include "bench/bench.h"

/*
 * What the benchmarks of channels share.
 */

#define MESSAGE_SIZE 64 /* bytes */
#define BATCH        64 /* messages */
#define RING_SIZE    1024

/* ------------------------------------------------------------------------------------------- */
/* channel_floor.c: memory that two processes have, and what can be done when nothing can go wrong
 */

struct floor_message {
	_Alignas(64) _Atomic uint32_t turn; /* written last */
	_Alignas(64) unsigned char data[MESSAGE_SIZE];
};

struct floor_ring {
	_Alignas(64) _Atomic uint64_t tail;
	_Alignas(64) _Atomic uint64_t head;
	_Alignas(64) unsigned char slots[RING_SIZE][MESSAGE_SIZE];
};

struct channel_floor {
	struct floor_message there, back;
	_Alignas(64) _Atomic uint32_t go; /* for the floors without data: futexes, or to spin on */
	_Alignas(64) _Atomic uint32_t done;
	struct floor_ring ring;
};

/* Returns zeroed memory that this process shares with the children it forks later. */
void *shared_memory(size_t size);

void channel_floor_reset(struct channel_floor *f);

void word_set(_Atomic uint32_t *word, uint32_t value);   /* wakes whoever sleeps for it */
void word_sleep(_Atomic uint32_t *word, uint32_t value); /* returns when the word is @value */
void word_spin(_Atomic uint32_t *word, uint32_t value);

enum floor_way { FLOOR_WORDS, FLOOR_SPIN, FLOOR_FUTEX, FLOOR_ASLEEP };

#define THINK_US 50
void think(void); /* keeps its core busy for that long */

/* Play @n round trips: the first in this process, the second in the one that answers. */
void floor_play(struct channel_floor *f, enum floor_way way, uint32_t n);
void floor_answer(struct channel_floor *f, enum floor_way way, uint32_t n);

/* Send and receive @n messages through the ring, in batches; @n is a multiple of BATCH. */
void floor_ring_send(struct floor_ring *r, uint32_t n);
void floor_ring_receive(struct floor_ring *r, uint32_t n);

/* ------------------------------------------------------------------------------------------- */
/* channel_sides.c: two processes, a broker, and channels between them                          */

struct channel_side;

/* What the two processes do together. */
enum channel_way {
	SPIN,  /* round trips */
	SLEEP, /* round trips, waiting in share_recv() */
	/* The same, but each side thinks before it sends, so that the other one is asleep by
	 * then. */
	ASLEEP,
	BATCHES, /* in one direction, spinning */
	BATCHES_ASLEEP,
	CALLS_SPIN, /* round trips of a service: a request and its answer */
	CALLS,      /* the same, but a side that waits may sleep */
	WORDS_FLOOR,
	SPIN_FLOOR,
	FUTEX_FLOOR,
	ASLEEP_FLOOR,
	RING_FLOOR,
};

struct channel_side *channel_sides_start(void);
void channel_sides_stop(struct channel_side *s);
pid_t channel_sides_other(const struct channel_side *s);
/* Returns the nanoseconds for each of @n round trips, without the time that both have thought; or
 * for each of @n messages, where @n is a multiple of BATCH. */
double channel_sides_time(const struct channel_side *s, enum channel_way way, uint32_t n);
