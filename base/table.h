/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * An intrusive hash table that grows by one bucket at a time (linear hashing), so that no insertion
 * ever has to move a million entries. Inserting cannot fail: without memory for more buckets the
 * table only gets slower.
 */

struct table_link {
	struct table_link *next;
};

typedef uint64_t (*table_hash)(const struct table_link *link);
typedef bool (*table_match)(const struct table_link *link, const void *key);

#define TABLE_SEGMENTS 27

struct table {
	struct table_link **segments[TABLE_SEGMENTS]; /* each twice as large as the one before */
	struct table_link *first[64]; /* the first segment, which needs no memory of its own */
	table_hash hash;
	size_t n_buckets;
	size_t count;
};

/* The table owns none of its entries: a caller has the link in an object of its own, which must
 * stay where it is while it is in the table. */
void table_init(struct table *t, table_hash hash);
void table_deinit(struct table *t); /* the table must be empty */
void table_insert(struct table *t, struct table_link *link);
/* The entry must be in the table. */
void table_remove(struct table *t, struct table_link *link);
/* Returns the entry that @match accepts for @key, whose hash is @hash; NULL when there is none. */
struct table_link *table_find(const struct table *t, uint64_t hash, table_match match,
			      const void *key);

/* Mixes the bits of keys that are small integers into a 64-bit hash. */
static inline uint64_t table_mix(uint64_t x)
{
	x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
	x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
	return x ^ (x >> 32);
}
