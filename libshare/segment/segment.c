/* SPDX-License-Identifier: MIT */

/*
 * The segments of this process: who holds them, and what has come ahead of buffers in them.
 *
 * Consumers of channels are sent segments ahead, so that no message needs the broker. Most of these
 * wait for their first buffer like all others; beyond a number of them the oldest are mapped, as
 * mappings cost a process less than descriptors do. In a client that has had a pool mapped ahead
 * none waits.
 */

#include "libshare/segment/inside.h"

struct segment *segments_at(struct segments *t, uint64_t id)
{
	uint32_t index = (uint32_t)id;
	struct segment *s = index < t->room ? t->all[index] : NULL;

	return s && s->id == id ? s : NULL;
}

void segments_not_ahead(struct segments *t, struct segment *s)
{
	if (!s->is_ahead)
		return;
	TAILQ_REMOVE(&t->ahead, s, of_ahead);
	t->n_ahead--;
	s->is_ahead = false;
}

/* ------------------------------------------------------------------------------------------- */
/* Holding                                                                                     */

static struct segment *find_and_ref(share_client *c, uint64_t id)
{
	struct segments *t = c->segments;
	struct segment *s;

	pthread_mutex_lock(&t->lock);
	s = segments_at(t, id);
	if (s) {
		s->refs++;
		segments_not_ahead(t, s);
	}
	pthread_mutex_unlock(&t->lock);
	return s;
}

int segment_get(share_client *c, const struct wire_grant *m, bool writable, struct segment **out,
		struct memory_mapping **mapping)
{
	struct segment *s = find_and_ref(c, m->segment);
	int r;

	if (!s || m->offset > s->size || m->size > s->size - m->offset) {
		segment_put(c, s);
		return fail(SHARE_EPROTO, "the broker sent a buffer outside of its segment");
	}
	r = segment_import(c, s, writable, mapping);
	if (r != 0) {
		segment_put(c, s);
		return r;
	}
	*out = s;
	return 0;
}

bool segment_get_recipe(share_client *c, uint64_t id, struct memory_recipe *out)
{
	struct segment *s = find_and_ref(c, id);

	if (s)
		*out = s->recipe;
	segment_put(c, s);
	return s != NULL;
}

void segments_count(share_client *c, uint64_t pool, uint64_t *bytes, uint64_t *blocks)
{
	struct segments *t = c->segments;

	*bytes = *blocks = 0;
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < t->room; i++)
		if (t->all[i] && t->all[i]->pool == pool) {
			*bytes += atomic_load_explicit(&t->all[i]->ours, memory_order_relaxed);
			*blocks += atomic_load_explicit(&t->all[i]->n_ours, memory_order_relaxed);
		}
	pthread_mutex_unlock(&t->lock);
}

int segment_find(share_client *c, uint64_t id, uint64_t pool, bool writable, struct segment **out,
		 struct memory_mapping **mapping)
{
	struct segment *s = find_and_ref(c, id);
	int r;

	*out = NULL;
	if (!s)
		return 0;
	if (s->pool != pool) {
		segment_put(c, s);
		return fail(SHARE_EPROTO, "a producer sent a buffer of another pool");
	}
	r = segment_import_if_here(c, s, writable, mapping);
	if (r != 1) {
		segment_put(c, s);
		return r;
	}
	*out = s;
	return 0;
}

/* The segment that has waited longest, with a reference; NULL when so few wait that all may. */
static struct segment *take_from_ahead(struct segments *t)
{
	struct segment *s = NULL;

	pthread_mutex_lock(&t->lock);
	if (t->n_ahead > t->ahead_max) {
		s = TAILQ_FIRST(&t->ahead);
		s->refs++;
		segments_not_ahead(t, s);
	}
	pthread_mutex_unlock(&t->lock);
	return s;
}

struct segment *segment_ref(share_client *c, struct segment *s)
{
	pthread_mutex_lock(&c->segments->lock);
	s->refs++;
	pthread_mutex_unlock(&c->segments->lock);
	return s;
}

void segment_put_soon(share_client *c, struct segment *s)
{
	struct segments *t = c->segments;

	pthread_mutex_lock(&t->lock);
	if (--s->refs == 0) { /* there is something to unmap */
		LIST_INSERT_HEAD(&t->retired, s, link);
		rpc_leave_chore(c);
	}
	pthread_mutex_unlock(&t->lock);
}

void segments_map_ahead(share_client *c)
{
	struct segment *s;

	while ((s = take_from_ahead(c->segments))) {
		segment_import_as_it_came(c, s);
		segment_put_soon(c, s);
	}
}

uint64_t segments_want_ahead(share_client *c)
{
	struct segments *t = c->segments;
	uint64_t arrived;

	pthread_mutex_lock(&t->lock);
	t->ahead_max = 0;
	arrived = t->arrived;
	pthread_mutex_unlock(&t->lock);
	return arrived;
}

/* The first of a pool from there on in the table, with a reference; NULL: there are no more. */
static struct segment *next_of_pool(struct segments *t, uint64_t pool, uint32_t *at)
{
	struct segment *s = NULL;

	pthread_mutex_lock(&t->lock);
	for (; !s && *at < t->room; ++*at)
		if (t->all[*at] && t->all[*at]->pool == pool)
			s = t->all[*at];
	if (s)
		s->refs++;
	pthread_mutex_unlock(&t->lock);
	return s;
}

int segments_map(share_client *c, uint64_t pool, bool writable)
{
	struct memory_mapping *mapping;
	struct segment *s;
	uint32_t at = 0;
	int r, result = 0;

	while ((s = next_of_pool(c->segments, pool, &at))) {
		r = segment_import_if_here(c, s, writable, &mapping);
		if (r < 0)
			result = r;
		segment_put(c, s);
	}
	return result;
}

void segment_put(share_client *c, struct segment *s)
{
	if (!s)
		return;
	segment_put_soon(c, s);
	rpc_do_chores(c);
}
