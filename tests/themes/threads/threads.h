/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/status.h"

/*
 * A test is a function that runs in a process of its own, with a private broker of its own: what
 * goes wrong in one is no other's trouble, and what it leaves behind (descriptors, memory, objects
 * in the broker) is seen.
 */
struct thread_test {
	const char *name;
	void (*function)(void);
};

/* PROGRAM [-t TEST] [FACTOR]: prints "N passed, N failed"; 0, or 1 when one failed. */
int threads_main(int argc, char **argv, const struct thread_test *tests, size_t n);
#define TEST(function)                \
	{                             \
#function, (function) \
	}

/* A private broker, the default pool of it, and a second connection to the same. Ends with the
 * test, which has then given up whatever it got; expects that the broker has nothing left. */
extern share_client *client, *second;
extern share_pool *pool;
void start(void);
void stop(void);

/* @n times the FACTOR of the command line. */
unsigned steps(unsigned n);

/* Functions that run at once. They start together; the last line waits for all. */
#define CREW_MAX 16
struct crew {
	struct crew_member {
		struct crew *crew;
		void (*function)(void *data, unsigned index);
		void *data;
		unsigned index;
		pthread_t thread;
	} members[CREW_MAX];
	unsigned n;
	pthread_barrier_t ready;
	atomic_uint busy; /* those that have not said that they are done */
};
/* @n threads with indices from 0. */
void crew_add(struct crew *crew, unsigned n, void (*function)(void *data, unsigned index),
	      void *data);
void crew_start(struct crew *crew);
void crew_join(struct crew *crew);
void together(unsigned n, void (*function)(void *data, unsigned index), void *data);

/* For those who go on as long as others work: crew_work() says how many those are. */
#define crew_is_busy(crew) (atomic_load(&(crew)->busy) > 0)
#define crew_done(crew)    atomic_fetch_sub(&(crew)->busy, 1)

/* Numbers as good as any, the same in each run of the same thread. @state is not 0. */
static inline uint32_t dice(uint32_t *state, uint32_t sides)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state % sides;
}

/* A mark in each of the pool's smallest blocks, so that no two buffers can overlap unseen. */
void mark(void *memory, uint64_t size, uint64_t value);
bool is_marked(const void *memory, uint64_t size, uint64_t value);
/* The mark at the beginning, which all of it must have. */
uint64_t mark_of(share_buffer *b);
share_buffer *marked_buffer(share_pool *p, uint64_t size, uint64_t value);

/* @n times it allocates up to @largest bytes, or gives back what it has, if that is as it was. */
void take_and_give(share_pool *p, unsigned index, uint32_t largest, unsigned n);

/* One of these, 0 included by all. Returns it. */
int one_of(const char *file, int line, int r, const int *errors, size_t n);
#define check_one_of(call, ...)                                  \
	one_of(__FILE__, __LINE__, (call), (int[]){__VA_ARGS__}, \
	       sizeof((int[]){__VA_ARGS__}) / sizeof(int))
