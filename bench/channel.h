/* SPDX-License-Identifier: MIT */
#ifndef BENCH_CHANNEL_H
#define BENCH_CHANNEL_H

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
	_Alignas(64) _Atomic uint32_t go; /* for words alone: futexes, or to spin on */
	_Alignas(64) _Atomic uint32_t done;
	struct floor_ring ring;
};

/* For this process and those it forks; all zeros. */
void *shared_memory(size_t size);

void channel_floor_reset(struct channel_floor *f);

void word_set(_Atomic uint32_t *word, uint32_t value);   /* and wakes who sleeps for it */
void word_sleep(_Atomic uint32_t *word, uint32_t value); /* until it is @value */
void word_spin(_Atomic uint32_t *word, uint32_t value);

enum floor_way { FLOOR_WORDS, FLOOR_SPIN, FLOOR_FUTEX, FLOOR_ASLEEP };

#define THINK_US 50
void think(void); /* takes that long, on its core */

/* @n round trips, in the first process and in the one that answers. */
void floor_play(struct channel_floor *f, enum floor_way way, uint32_t n);
void floor_answer(struct channel_floor *f, enum floor_way way, uint32_t n);

/* @n messages through the ring, in batches; a multiple of BATCH. */
void floor_ring_send(struct floor_ring *r, uint32_t n);
void floor_ring_receive(struct floor_ring *r, uint32_t n);

/* ------------------------------------------------------------------------------------------- */
/* channel_sides.c: two processes, a broker, and channels between them                          */

struct channel_side;

/* What the two do together. */
enum channel_way {
	SPIN,    /* round trips */
	SLEEP,   /* round trips of who waits in share_recv() */
	ASLEEP,  /* the same, and each side thinks before it sends: the other is asleep by then */
	BATCHES, /* one way; spinning */
	BATCHES_ASLEEP,
	CALLS_SPIN, /* round trips of a service: a request, and its answer */
	CALLS,      /* the same; who waits may sleep */
	WORDS_FLOOR,
	SPIN_FLOOR,
	FUTEX_FLOOR,
	ASLEEP_FLOOR,
	RING_FLOOR,
};

struct channel_side *channel_sides_start(void);
void channel_sides_stop(struct channel_side *s);
pid_t channel_sides_other(const struct channel_side *s);
/* Nanoseconds for each of @n round trips, less what both have thought; or for each of @n messages,
 * a multiple of BATCH. */
double channel_sides_time(const struct channel_side *s, enum channel_way way, uint32_t n);

#endif
