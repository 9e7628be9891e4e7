/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pages/timeline.h"

struct account;
struct journal;

/*
 * Timelines and fences as the broker sees them. A timeline page outlives its client as long as a
 * fence refers to it.
 */

struct timelines {
	uint64_t id;     /* the page's identifier */
	uint32_t client; /* the owner's slot, while the owner is alive */
	unsigned refs;
	bool dead;
	/* What the journal has of it, which is written in place. */
	struct timelines_record *in_place;
	struct journal *journal; /* NULL: it is not in the journal */
	uint32_t record;
	/* In that: where the owner had got to when it died. This is our own copy, as somebody to
	 * whom the owner gave its mapping could still write to the page. */
	uint64_t *last;
	/* Of what GPUs write, `last` is how far we believe it, which is what counts if the owner
	 * dies; `seen` is what was there at the last look, where we cannot see whether the owner
	 * has begun to exit. */
	uint64_t seen[TIMELINE_SLOTS];
	int stat;  /* see base/system/process.h */
	int fd;    /* sealed: whoever gets it can only read */
	int pidfd; /* the owner's, borrowed; -1 once it is dead */
	struct timeline_page *page;
	struct account *account; /* the owner's, a reference; NULL: nobody pays */
};

/* Makes the timelines of a client. 0 or negative errno. @pidfd has to be open until
 * timelines_kill(). A reference to @account, which may be NULL, is taken. */
int timelines_new(struct journal *journal, uint64_t id, uint32_t client, int pidfd,
		  struct account *account, struct timelines **out);
struct timelines *timelines_ref(struct timelines *t);
void timelines_unref(struct timelines *t);

/* Takes note of how far the owner's GPUs have got. True when they may get further. */
bool timelines_look(struct timelines *t);

/* Releases every waiter, as the owner is gone for good. @finished: the owner had said that its
 * streams were done, so what its GPUs wrote is true. */
void timelines_kill(struct timelines *t, bool finished);

/* A fence is for work that was enqueued: no stream has more of it. */
#define FENCE_AHEAD_MAX (INT64_C(1) << 32)

struct fence {
	struct timelines *timelines; /* NULL: reached */
	uint64_t value;
	uint32_t slot;
};

enum timeline_state fence_query(const struct fence *f);
void fence_deinit(struct fence *f);

/* Returns the timeline as the wire and share_fence have it. */
uint64_t fence_timeline(const struct fence *f);

/* A set of fences that are waited for together, at most one a timeline; NULL is the empty set. */
struct fence_set;

/* What one user may have in a set; more than its streams come to. */
#define FENCE_SET_OF_ONE_MAX 4096

/* Whether @f's owner may add it, @instead of what it gives back: it pays for that. What is reached
 * counts until @set is pruned. */
bool fence_set_may_add(const struct fence_set *set, const struct fence *f, bool instead);
/* Consumes @set and @f. Cannot fail: without memory the result is a set that is never reached, and
 * the memory it gates stays unused until its segment goes, which is safe. Does not look for what is
 * reached in @set: who adds again and again prunes it first. */
struct fence_set *fence_set_add(struct fence_set *set, struct fence *f);
/* Copies what is not reached yet, which is paid for once more. Without memory the copy is a set
 * that is never reached. */
struct fence_set *fence_set_copy(const struct fence_set *set);
/* Makes one set of two, which it consumes. */
struct fence_set *fence_set_merge(struct fence_set *a, struct fence_set *b);
/* Drops the fences that are reached, and those whose owner is dead and can use nothing any more. */
struct fence_set *fence_set_prune(struct fence_set *set);
void fence_set_drop(struct fence_set *set);

size_t fence_set_size(const struct fence_set *set);
size_t fence_set_n_pending(const struct fence_set *set);
const struct fence *fence_set_at(const struct fence_set *set, size_t i);
struct fence_set *fence_set_lost(void); /* a set that is never reached */
bool fence_set_is_lost(const struct fence_set *set);
