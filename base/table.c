/* SPDX-License-Identifier: MIT */

/*
 * A hash table by linear hashing (Litwin, 1980). With n buckets and the power of two p for which p
 * <= n < 2p, an entry is in bucket hash mod 2p if that bucket exists, else in bucket hash mod p. To
 * grow by one, the table splits bucket n - p between itself and the new bucket n.
 *
 * The table knows links and hashes. It owns nothing of the entries, and must not know what they
 * are.
 */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"

#define FIRST (sizeof(((struct table *)0)->first) / sizeof(struct table_link *))

/* Segment 0 has the buckets 0..63; segment k > 0 has 64 << (k - 1) buckets, from number 64 << (k -
 * 1) on. */
static unsigned segment_with(size_t bucket)
{
	return bucket < FIRST ? 0 : 64 - (unsigned)__builtin_clzll(bucket / FIRST);
}

static struct table_link **slot(const struct table *t, size_t bucket)
{
	unsigned s = segment_with(bucket);

	return &t->segments[s][s == 0 ? bucket : bucket - (FIRST << (s - 1))];
}

static size_t power_below(const struct table *t)
{
	return (size_t)1 << (63 - __builtin_clzll(t->n_buckets));
}

static size_t bucket_of(const struct table *t, uint64_t hash)
{
	size_t p = power_below(t), bucket = hash & (2 * p - 1);

	return bucket < t->n_buckets ? bucket : hash & (p - 1);
}

void table_init(struct table *t, table_hash hash)
{
	memset(t, 0, sizeof(*t));
	t->segments[0] = t->first;
	t->hash = hash;
	t->n_buckets = FIRST;
}

void table_deinit(struct table *t)
{
	assert(t->count == 0);
	for (unsigned s = 1; s < TABLE_SEGMENTS; s++)
		free(t->segments[s]);
}

/* Whether there is memory for the next bucket. */
static bool make_room(struct table *t)
{
	unsigned s = segment_with(t->n_buckets);

	if (s < TABLE_SEGMENTS && !t->segments[s])
		t->segments[s] = calloc(FIRST << (s - 1), sizeof(struct table_link *));
	return s < TABLE_SEGMENTS && t->segments[s];
}

static void grow(struct table *t)
{
	size_t bucket = t->n_buckets, p = power_below(t);
	struct table_link **from, **to;

	if (!make_room(t))
		return;
	from = slot(t, bucket - p);
	to = slot(t, bucket);
	t->n_buckets++;
	while (*from) {
		struct table_link *link = *from;

		if (bucket_of(t, t->hash(link)) == bucket) {
			*from = link->next;
			link->next = *to;
			*to = link;
		} else {
			from = &link->next;
		}
	}
}

void table_insert(struct table *t, struct table_link *link)
{
	struct table_link **head;

	if (t->count >= t->n_buckets)
		grow(t);
	head = slot(t, bucket_of(t, t->hash(link)));
	link->next = *head;
	*head = link;
	t->count++;
}

void table_remove(struct table *t, struct table_link *link)
{
	struct table_link **at = slot(t, bucket_of(t, t->hash(link)));

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	t->count--;
}

struct table_link *table_find(const struct table *t, uint64_t hash, table_match match,
			      const void *key)
{
	struct table_link *link = *slot(t, bucket_of(t, hash));

	while (link && !match(link, key))
		link = link->next;
	return link;
}
