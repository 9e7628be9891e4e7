/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_TRIM_H
#define BROKER_MEMORY_TRIM_H

#include <stdbool.h>
#include <stdint.h>

struct account;
struct broker;
struct client;
struct pool;

/* What a client has to do with that: it was asked `asked` times. */
struct trim {
	uint64_t asked, answered;
	uint64_t asked_ms;  /* the last time */
	uint64_t window_ms; /* since when `cost_ms` is counted */
	uint64_t cost_ms;   /* how long others have waited for it */
};

/*
 * Memory is short in @pool, or, with @account, for that one, of which a request in @pool wants
 * some: asks the clients that keep blocks without using them, but for @except, to give them back.
 * True when one of them is yet to answer: then the request should wait in the pool. @since_ms: when
 * it came; who was asked after that is not asked again.
 */
bool trim_ask(struct broker *b, const struct client *except, const struct pool *pool,
	      const struct account *account, uint64_t since_ms);
/* The pool was destroyed: nobody keeps anything of it any more. */
void trim_end(struct broker *b, const struct pool *pool);

#endif
