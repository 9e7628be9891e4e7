/* SPDX-License-Identifier: MIT */

/*
 * What is in a magazine: kept, counted, and given back to the broker.
 *
 * A handle in a magazine keeps its reference on the client. So whoever puts it there has nothing
 * more to hold the client by, and must not touch it; the magazine it may, as that memory stays a
 * magazine for ever: it looks once more whether the magazine was closed meanwhile, and then empties
 * it. That does no harm when it is somebody else's by then.
 */

#include "libshare/buffer/inside.h"
#include "libshare/buffer/magazine.h"

#define DEPTH 64u /* of a list */

int magazine_keep(struct magazine *m, share_buffer *b)
{
	uint64_t block = block_of(b->size_class);
	struct stock *s = &m->stocks[b->size_class];
	bool room;

	pthread_mutex_lock(&m->lock);
	room = s->n < DEPTH && m->kept + block <= m->limit;
	if (room) {
		b->next = s->first;
		s->first = b;
		s->n++;
		m->kept += block;
	}
	pthread_mutex_unlock(&m->lock);
	if (!room)
		return buffer_give_back(b);
	look_again(m);
	return 0;
}

void magazine_count(struct magazine *m, share_pool_info *out)
{
	unsigned pockets = atomic_load_explicit(&m->pockets_open, memory_order_relaxed);

	for (uint32_t w = 0; w < MAGAZINE_WAYS; w++)
		for (uint32_t i = 0; i < pockets; i++)
			if (atomic_load_explicit(&m->pockets[w][i], memory_order_relaxed)) {
				out->kept += block_of(i);
				out->kept_buffers++;
			}
	pthread_mutex_lock(&m->lock);
	out->kept += m->kept;
	for (uint32_t i = 0; i < MAGAZINE_CLASSES; i++)
		out->kept_buffers += m->stocks[i].n;
	out->cache = m->bound;
	pthread_mutex_unlock(&m->lock);
}

/* ------------------------------------------------------------------------------------------- */
/* Giving back                                                                                 */

static void give_back_list(share_buffer *b)
{
	while (b) {
		share_buffer *next = b->next;

		b->next = NULL;
		buffer_give_back(b);
		b = next;
	}
}

/* To the broker it is worth nothing before they are done with it; here it can be used behind them.
 */
static bool is_used_by_others(share_buffer *b)
{
	const struct fences *f;

	if (uses_are_over(b))
		return false;
	f = b->uses.fences;
	for (size_t i = 0; f && i < f->n; i++)
		if (f->all[i].peer)
			return true;
	return false;
}

/* Out of the list: what is given back. */
static share_buffer *take_out(struct magazine *m, uint32_t class, bool all)
{
	struct stock *s = &m->stocks[class];
	share_buffer *out = NULL, *b, **at = &s->first;

	pthread_mutex_lock(&m->lock);
	while ((b = *at)) {
		if (!all && is_used_by_others(b)) {
			at = &b->next;
			continue;
		}
		unlink_block(m, s, at, block_of(class));
		b->next = out;
		out = b;
	}
	s->refill = 0;
	pthread_mutex_unlock(&m->lock);
	return out;
}

static void give_back_all(struct magazine *m, bool all)
{
	for (uint32_t w = 0; w < MAGAZINE_WAYS; w++)
		for (uint32_t i = 0; i < MAGAZINE_POCKETS_MANY; i++) {
			share_buffer *b = NULL;

			if (atomic_load(&m->pockets[w][i]))
				b = atomic_exchange(&m->pockets[w][i], NULL);
			if (b && !all && is_used_by_others(b))
				magazine_keep(m, b);
			else
				give_back_list(b);
		}
	for (uint32_t i = 0; i < MAGAZINE_CLASSES; i++)
		give_back_list(take_out(m, i, all));
}

void magazine_empty(struct magazine *m)
{
	DETAIL_STAYS;
	give_back_all(m, true);
}

void magazine_spare(struct magazine *m)
{
	give_back_all(m, false);
}
