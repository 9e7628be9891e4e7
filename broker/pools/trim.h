/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct account;
struct broker;
struct client;
struct pool;

/*
 * Asks clients to give back the blocks that they keep without using them, because memory is short
 * in @pool or, with @account, for that account, of which a request in @pool wants some. @except is
 * not asked. True when one of them is yet to answer: then the request should wait in the pool.
 * @since_ms is when the request came; a client that was asked after that is not asked again.
 */
bool trim_ask(struct broker *b, const struct client *except, const struct pool *pool,
	      const struct account *account, uint64_t since_ms);
/* Asks clients to give back all that they keep of a pool, as it was destroyed. */
void trim_end(struct broker *b, const struct pool *pool);
