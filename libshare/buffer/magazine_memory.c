/* SPDX-License-Identifier: MIT */

/*
 * Memory that was once a magazine stays one for ever, though perhaps of another pool of another
 * client: whoever has just put a block into it may still look at it when that block, and with it
 * the client, is gone.
 */

#include <stdlib.h>
#include <string.h>

#include "libshare/buffer/inside.h"
#include "libshare/buffer/magazine.h"

/* Without a pool. */
static LIST_HEAD(, magazine) unused = LIST_HEAD_INITIALIZER(unused);
static pthread_mutex_t unused_lock = PTHREAD_MUTEX_INITIALIZER;

/* In a forked child nobody holds the lock, whatever it looks like. */
static void start_anew(void)
{
	unused_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	LIST_INIT(&unused);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, start_anew);
}

struct magazine *magazine_new(void)
{
	struct magazine *m;

	pthread_mutex_lock(&unused_lock);
	m = LIST_FIRST(&unused);
	if (m)
		LIST_REMOVE(m, link);
	pthread_mutex_unlock(&unused_lock);
	if (m)
		return m;
	m = aligned_alloc(_Alignof(struct magazine), sizeof(*m));
	if (m) {
		memset(m, 0, sizeof(*m));
		pthread_mutex_init(&m->lock, NULL);
	}
	return m;
}

void magazine_unref(struct magazine *m)
{
	if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) > 1)
		return;
	pthread_mutex_lock(&unused_lock);
	LIST_INSERT_HEAD(&unused, m, link);
	pthread_mutex_unlock(&unused_lock);
}
