/* SPDX-License-Identifier: MIT */

/*
 * Magazines. A block that was released last is taken first. Of small ones the very last is in a
 * pocket: one word that an atomic exchange empties and a compare-and-exchange fills, a few of them
 * for different threads, so that the commonest case takes no lock at all. Behind them is a list a
 * size class, under a lock (stock.c). There goes what was in a pocket and is not for the stream
 * that asks.
 */

#include <string.h>

#include "base/mutation.h"
#include "libshare/buffer/inside.h"
#include "libshare/buffer/magazine.h"

#define MANY_BYTES (64u << 10) /* larger ones are asked for one by one */
#define MANY       16u

/* ------------------------------------------------------------------------------------------- */
/* Sizes                                                                                       */

/* The class of a size and what its blocks have. MAGAZINE_CLASSES or more: none. */
static inline uint32_t class_of(const struct magazine *m, uint64_t size, uint64_t *block)
{
	uint64_t last = ((size + m->alignment - 1) & ~(m->alignment - 1)) - 1;
	uint32_t top, part;

	if (last < MAGAZINE_SMALLEST)
		last = MAGAZINE_SMALLEST - 1;
	top = 63u - (uint32_t)__builtin_clzll(last);
	part = last >> (top - 2) & 3;
	*block = (uint64_t)(5 + part) << (top - 2);
	return (top - 8) * 4 + part - 3;
}

static bool is_keepable(const struct magazine *m, uint64_t size)
{
	return size > 0 && size <= MAGAZINE_MAX &&
	       atomic_load_explicit(&m->open, memory_order_relaxed);
}

/* ------------------------------------------------------------------------------------------- */
/* Taking                                                                                      */

/* Different ones for different threads, mostly. */
static inline uint32_t way(void)
{
#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 11
	uint64_t thread = (uintptr_t)__builtin_thread_pointer(); /* saves a call */
#else
	uint64_t thread = (uint64_t)pthread_self();
#endif

	return (uint32_t)(thread * UINT64_C(0x9e3779b97f4a7c15) >> 62);
}

/* Who wants a block. */
struct taker {
	void *stream;
	bool asked; /* which stream it is; once, as the driver has to say */
	uint64_t id;
};

static bool is_stream_of(share_buffer *b, struct taker *t)
{
	if (!t->asked) {
		t->id = uses_stream(b, t->stream);
		t->asked = true;
	}
	return t->id && t->id == b->uses.late.mark.stream;
}

static bool is_ready_in_use(share_buffer *b, struct taker *t)
{
	return uses_are_over(b) ||
	       (b->uses.late.pending && !b->uses.fences && is_stream_of(b, t)) ||
	       MUTATION(magazine_without_wait);
}

/* Nobody uses it any more, or only the stream itself does. By whoever has it, or the lock. */
static inline bool is_ready(share_buffer *b, struct taker *t)
{
	return (!b->uses.fences && !b->uses.late.pending) || is_ready_in_use(b, t);
}

/* Best is what is ready; else what others use, if the pool allows that and waiting for it does not
 * stop the caller. With the lock held. */
static share_buffer *pick(struct magazine *m, uint32_t class, uint64_t block, struct taker *t,
			  bool *in_use)
{
	share_buffer **at, **used = NULL, *found;
	struct stock *s = &m->stocks[class];

	if (!s->first)
		return NULL;
	for (at = &s->first; *at; at = &(*at)->next) {
		found = *at;
		if (is_ready(found, t)) {
			unlink_block(m, s, at, block);
			*in_use = false;
			return found;
		}
		if (!used)
			used = at;
	}
	if (m->reuse != SHARE_REUSE_GATE || stream_blocks(m->client, (*used)->mapping, t->stream)) {
		uses_signal(*used); /* or nobody would ever see that it is over */
		return NULL;
	}
	found = *used;
	unlink_block(m, s, used, block);
	*in_use = true;
	return found;
}

/* Whose device can use it was decided for who had it first: the calling thread's may be another. */
static inline bool is_within_reach(const struct magazine *m, share_buffer *b)
{
	struct failure failure;

	return m->plain || memory_reach(b->mapping, &failure) == 0;
}

static inline share_buffer *empty_pocket(struct magazine *m, uint32_t class)
{
	_Atomic(share_buffer *) *pocket = &m->pockets[way()][class];
	share_buffer *b = atomic_load_explicit(pocket, memory_order_relaxed);

	if (!b || !handle_is_alone())
		return b ? atomic_exchange_explicit(pocket, NULL, memory_order_acquire) : NULL;
	atomic_store_explicit(pocket, NULL, memory_order_relaxed);
	return b;
}

/* Into a slot in which no handle is as those that the program had of this one. */
static __attribute__((noinline, cold)) share_buffer *move(share_buffer *b)
{
	share_buffer *moved = buffer_new();
	size_t header = sizeof(b->handle);

	if (!moved)
		return b;
	memcpy((char *)moved + header, (const char *)b + header, sizeof(*b) - header);
	handle_free(b);
	return moved;
}

static inline share_buffer *handed_out(share_buffer *b, uint64_t size)
{
	if (handle_is_worn(b))
		b = move(b);
	b->size = size;
	b->ordered = 0;
	atomic_store_explicit(&b->refs, 1, memory_order_relaxed);
	return b;
}

/* @b was in the pocket, if not NULL. */
static __attribute__((noinline)) share_buffer *take_other(struct magazine *m, share_buffer *b,
							  uint32_t class, uint64_t size,
							  void *stream)
{
	struct taker t = {.stream = stream};
	bool in_use = false;

	if (b && is_ready(b, &t) && is_within_reach(m, b))
		return handed_out(b, size);
	if (b)
		magazine_keep(m, b);
	pthread_mutex_lock(&m->lock);
	b = pick(m, class, block_of(class), &t, &in_use);
	pthread_mutex_unlock(&m->lock);
	if (!b)
		return NULL;
	b = handed_out(b, size);
	if (m->plain && !in_use)
		return b;
	/* the maker of the memory may end while the host waits, where a stream cannot wait after
	 * all */
	if ((in_use && uses_order(b, stream) != 0) || !is_within_reach(m, b)) {
		atomic_store_explicit(&b->refs, 0, memory_order_relaxed);
		if (memory_is_lost(b->mapping))
			buffer_give_back(b);
		else
			magazine_put(m, b);
		return NULL;
	}
	return b;
}

share_buffer *magazine_take(struct magazine *m, uint64_t size, void *stream)
{
	share_buffer *b = NULL;
	uint32_t class;
	uint64_t block;

	if (!is_keepable(m, size))
		return NULL;
	if (asked_to_trim(m->client) != atomic_load_explicit(&m->answered, memory_order_relaxed))
		magazines_answer(m->client);
	class = class_of(m, size, &block);
	if (class >= MAGAZINE_CLASSES)
		return NULL;
	if (class < atomic_load_explicit(&m->pockets_open, memory_order_relaxed))
		b = empty_pocket(m, class);
	/* on host memory only what nobody uses was put there */
	if (b && m->plain)
		return handed_out(b, size);
	return take_other(m, b, class, size, stream);
}

share_buffer *magazine_take_at_hand(struct magazine *m, uint64_t size)
{
	share_buffer *b = NULL;
	uint32_t class;
	uint64_t block;

	if (!m->plain || !is_keepable(m, size) ||
	    asked_to_trim(m->client) != atomic_load_explicit(&m->answered, memory_order_relaxed))
		return NULL;
	class = class_of(m, size, &block);
	if (class < atomic_load_explicit(&m->pockets_open, memory_order_relaxed))
		b = empty_pocket(m, class);
	return b ? handed_out(b, size) : NULL;
}

bool magazine_refill(struct magazine *m, uint64_t size, uint64_t *block, uint32_t *count)
{
	struct stock *s;
	uint32_t class;

	if (!is_keepable(m, size))
		return false;
	class = class_of(m, size, block);
	if (class >= MAGAZINE_CLASSES)
		return false;
	*count = 1;
	if (*block > MANY_BYTES)
		return true;
	s = &m->stocks[class];
	pthread_mutex_lock(&m->lock);
	*count = s->refill ? s->refill : 1;
	while (*count > 1 && *count * *block > m->limit - (m->kept < m->limit ? m->kept : m->limit))
		*count /= 2;
	if (s->refill < MANY)
		s->refill = s->refill ? s->refill * 2 : 2;
	pthread_mutex_unlock(&m->lock);
	return true;
}

void magazine_adopt(struct magazine *m, share_buffer *b, uint64_t block)
{
	uint64_t same;

	b->size_class = (uint8_t)class_of(m, block, &same);
	atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
	b->home = m;
	b->plain = m->plain;
}

/* ------------------------------------------------------------------------------------------- */
/* Putting                                                                                     */

/* False: there is something in it, or it is not to be used. */
static inline bool put_into_pocket(struct magazine *m, share_buffer *b)
{
	_Atomic(share_buffer *) *pocket;
	share_buffer *none = NULL;

	if (b->size_class >= atomic_load_explicit(&m->pockets_open, memory_order_relaxed))
		return false;
	pocket = &m->pockets[way()][b->size_class];
	if (atomic_load_explicit(pocket, memory_order_relaxed))
		return false;
	/* the order against shut(): one of the two sees what the other has done */
	if (handle_is_alone())
		atomic_store_explicit(pocket, b, memory_order_relaxed);
	else if (!atomic_compare_exchange_strong(pocket, &none, b))
		return false;
	look_again(m);
	return true;
}

int magazine_put(struct magazine *m, share_buffer *b)
{
	if (!atomic_load_explicit(&m->open, memory_order_relaxed))
		return buffer_give_back(b);
	if (asked_to_trim(b->client) != atomic_load_explicit(&m->answered, memory_order_relaxed))
		magazines_answer(b->client);
	if (!m->plain && put_into_pocket(m, b))
		return 0;
	return magazine_keep(m, b);
}

bool magazine_put_at_hand(struct magazine *m, share_buffer *b)
{
	return !b->uses.fences &&
	       asked_to_trim(b->client) ==
		   atomic_load_explicit(&m->answered, memory_order_relaxed) &&
	       put_into_pocket(m, b);
}
