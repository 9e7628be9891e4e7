/* SPDX-License-Identifier: MIT */

/*
 * The magazines of a client: one for each pool that it has open, from the first handle of the pool
 * to the last.
 *
 * Asked to give back what it keeps (TRIM), the client does so with all that it has in any pool, and
 * says when it is done.
 */

#include <stdlib.h>

#include "libshare/buffer/inside.h"
#include "libshare/buffer/magazine.h"

#define SHARE_OF_POOL 16

/* ------------------------------------------------------------------------------------------- */
/* Coming and going                                                                            */

/* Under the lock of the list: nobody revives one that nobody has. */
static struct magazine *find(share_client *c, uint64_t pool)
{
	struct magazine *m;

	LIST_FOREACH (m, &c->buffers->magazines.list, link)
		if (m->pool == pool)
			return m;
	return NULL;
}

static void close_to_blocks(struct magazine *m)
{
	atomic_store(&m->pockets_open, 0);
	atomic_store(&m->open, false);
}

static void set_limit(struct magazine *m, uint64_t bytes)
{
	uint64_t in_pockets = 0;
	unsigned pockets = 0;

	if (!m->plain && bytes > 2 * MAGAZINE_MANY_BYTES) {
		pockets = MAGAZINE_POCKETS_MANY;
		in_pockets = MAGAZINE_MANY_BYTES;
	} else if (bytes > 2 * MAGAZINE_FEW_BYTES) {
		pockets = MAGAZINE_POCKETS_FEW;
		in_pockets = MAGAZINE_FEW_BYTES;
	}
	pthread_mutex_lock(&m->lock);
	m->limit = bytes - in_pockets;
	m->bound = bytes;
	pthread_mutex_unlock(&m->lock);
	atomic_store(&m->pockets_open, pockets);
	atomic_store(&m->open, bytes > 0);
	/* one of the two sees what the other has done */
	if (atomic_load(&m->ended))
		close_to_blocks(m);
}

static void start(struct magazine *m, share_client *c, uint64_t pool,
		  const struct memory_kind *kind, const share_pool_info *info)
{
	uint64_t limit = info->limit / SHARE_OF_POOL;

	m->client = c;
	m->pool = pool;
	m->alignment = info->alignment > MAGAZINE_SMALLEST ? info->alignment : MAGAZINE_SMALLEST;
	m->reuse = info->reuse;
	m->plain = !kind->on_device;
	m->handles = 0;
	atomic_store(&m->answered, asked_to_trim(c));
	atomic_store(&m->ended, false);
	atomic_store(&m->refs, 1); /* ours, until a handle has it */
	set_limit(m, limit < MAGAZINE_MAX ? limit : MAGAZINE_MAX);
}

/* As each pool's is, but for a broker that lies: sizes are rounded up to it, again and again. */
static bool is_power_of_two(uint64_t alignment)
{
	return (alignment & (alignment - 1)) == 0;
}

struct magazine *magazine_open(share_client *c, uint64_t pool, const struct memory_kind *kind,
			       const share_pool_info *info)
{
	struct magazine *m, *fresh;

	if (!c->buffers->magazines.wanted || !kind || !is_power_of_two(info->alignment) ||
	    atomic_load(&c->buffers->ending))
		return NULL;
	fresh = magazine_new();
	if (fresh)
		start(fresh, c, pool, kind, info);
	pthread_mutex_lock(&c->buffers->magazines.lock);
	m = find(c, pool);
	if (!m && fresh) {
		m = fresh;
		fresh = NULL;
		LIST_INSERT_HEAD(&c->buffers->magazines.list, m, link);
	}
	if (m && m->handles++ > 0)
		atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
	pthread_mutex_unlock(&c->buffers->magazines.lock);
	if (fresh)
		magazine_unref(fresh);
	return m;
}

void magazine_limit(struct magazine *m, uint64_t bytes)
{
	if (atomic_load(&m->client->buffers->ending))
		return;
	set_limit(m, bytes < MAGAZINE_MAX ? bytes : MAGAZINE_MAX);
	magazine_empty(m);
}

static void shut(struct magazine *m)
{
	close_to_blocks(m);
	magazine_empty(m);
}

void magazine_close(struct magazine *m)
{
	share_client *c = m->client;
	bool last;

	pthread_mutex_lock(&c->buffers->magazines.lock);
	last = --m->handles == 0;
	if (last)
		LIST_REMOVE(m, link);
	pthread_mutex_unlock(&c->buffers->magazines.lock);
	if (last)
		shut(m);
}

/* ------------------------------------------------------------------------------------------- */
/* Giving back                                                                                 */

/* Each of them once, though they come and go meanwhile. */
static void for_all(share_client *c, void (*function)(struct magazine *m))
{
	struct magazine *few[32], **all = few, *m;
	size_t n = 0, room = 0;

	pthread_mutex_lock(&c->buffers->magazines.lock);
	LIST_FOREACH (m, &c->buffers->magazines.list, link)
		room++;
	if (room > sizeof(few) / sizeof(few[0])) {
		all = malloc(room * sizeof(struct magazine *));
		if (!all) {
			all = few;
			room = sizeof(few) / sizeof(few[0]); /* the rest another time */
		}
	}
	LIST_FOREACH (m, &c->buffers->magazines.list, link) {
		if (n == room)
			break;
		atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
		all[n++] = m;
	}
	pthread_mutex_unlock(&c->buffers->magazines.lock);
	for (size_t i = 0; i < n; i++) {
		function(all[i]);
		magazine_unref(all[i]);
	}
	if (all != few)
		free(all);
}

void magazines_flush(share_client *c)
{
	for_all(c, magazine_spare);
}

static void answer(struct magazine *m)
{
	uint64_t asked = asked_to_trim(m->client);

	if (atomic_exchange(&m->answered, asked) != asked)
		magazine_spare(m);
}

static void empty_if_ended(struct magazine *m)
{
	if (atomic_load(&m->ended))
		magazine_empty(m);
}

/* By one thread for all: when it says that it has given back what there was, it has. */
void magazines_answer(share_client *c)
{
	struct wire_message m = {.type = WIRE_TRIMMED, .trimmed = {.asked = asked_to_trim(c)}};

	if (atomic_exchange(&c->buffers->magazines.answered, m.trimmed.asked) == m.trimmed.asked)
		return;
	DETAIL_STAYS;
	client_ref(c);
	/* the message that comes with it may say more than the counter does */
	rpc_poll(c);
	for_all(c, answer);
	rpc_send(c, &m);
	client_unref(c);
}

void magazines_pool_destroyed(share_client *c)
{
	if (c->buffers->magazines.wanted)
		magazines_answer(c);
}

void magazine_end(struct magazine *m)
{
	atomic_store(&m->ended, true);
	shut(m);
}

void magazines_end(share_client *c)
{
	atomic_store(&c->buffers->ending, true);
	for_all(c, shut);
	buffers_cooled(c, true);
}

/* Dispatch: whoever has an event loop learns of it there. */
static void run_trim(share_client *c, struct task *t)
{
	(void)t;
	pthread_mutex_unlock(&c->lock);
	magazines_answer(c);
	for_all(c, empty_if_ended); /* of which it may have been told after it answered */
	pthread_mutex_lock(&c->lock);
}

/* The pool with this identifier was destroyed. Its blocks go back when nobody is delivering. */
static void note_end(share_client *c, uint64_t pool)
{
	struct magazine *m;

	pthread_mutex_lock(&c->buffers->magazines.lock);
	m = find(c, pool);
	if (m) {
		atomic_store(&m->ended, true);
		close_to_blocks(m);
	}
	pthread_mutex_unlock(&c->buffers->magazines.lock);
}

void magazines_trim(share_client *c, const struct wire_trim *m)
{
	struct task *trim = &c->buffers->magazines.trim;

	if (m->flags & WIRE_TRIM_ENDED)
		note_end(c, m->pool);
	trim->run = run_trim;
	if (!trim->queued)
		dispatch_queue_urgent(c, trim);
}
