/* SPDX-License-Identifier: MIT */

/*
 * The import table. Descriptors are entered in the order the broker sent them, and turned into a
 * mapping by the first buffer that needs it; the descriptor is closed then. Knows nothing of
 * buffers: the broker says when a segment has none left.
 *
 * Consumers of channels are sent segments ahead, so that no message needs the broker. Most of these
 * wait for their first buffer like all others; beyond a number of them the oldest are mapped, as
 * mappings cost a process less than descriptors do.
 *
 * Mapping GPU memory calls the driver, which takes its time. So it is done under a lock of the
 * segment's own, and unmapping by whoever is about to send: the thread that reads the socket only
 * makes notes.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libshare/buffer/segment.h"
#include "libshare/client/error.h"
#include "libshare/order/timeline.h"

#define SEGMENTS_MAX (1u << 20)
#define AHEAD_MAX    64

static void close_side(struct side *side)
{
	memory_unmap(&side->mapping);
	side->fd = fd_close(side->fd);
}

static void segment_free(struct segment *s)
{
	close_side(&s->reading);
	close_side(&s->writing);
	pthread_mutex_destroy(&s->importing);
	free(s);
}

static struct segment *find(share_client *c, uint64_t id)
{
	uint32_t index = (uint32_t)id;
	struct segment *s = index < c->n_segments ? c->segments[index] : NULL;

	return s && s->id == id ? s : NULL;
}

static void put_locked(share_client *c, struct segment *s)
{
	if (--s->refs == 0)
		LIST_INSERT_HEAD(&c->retired, s, link);
}

/* ------------------------------------------------------------------------------------------- */
/* What the broker sends                                                                       */

static int make_room(share_client *c, uint32_t index)
{
	uint32_t room = c->n_segments ? c->n_segments : 16;
	struct segment **grown;

	while (room <= index)
		room *= 2;
	if (room == c->n_segments)
		return 0;
	grown = realloc(c->segments, room * sizeof(struct segment *));
	if (!grown)
		return -ENOMEM;
	memset(grown + c->n_segments, 0, (room - c->n_segments) * sizeof(struct segment *));
	c->segments = grown;
	c->n_segments = room;
	return 0;
}

static int add(share_client *c, const struct wire_grant *m, struct segment **out)
{
	uint32_t index = (uint32_t)m->segment;
	struct segment *s;

	if (index >= SEGMENTS_MAX || !memory_kind_by_id(m->kind) || m->segment_size == 0 ||
	    (index < c->n_segments && c->segments[index]))
		return -EPROTO;
	if (make_room(c, index) < 0)
		return -ENOMEM;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->id = m->segment;
	atomic_init(&s->pool, m->pool);
	s->size = m->segment_size;
	s->kind = memory_kind_by_id(m->kind);
	memcpy(&s->recipe, m->recipe.data, sizeof(s->recipe));
	if (s->recipe.size < s->size) {
		free(s);
		return -EPROTO;
	}
	if (s->kind->on_device)
		memory_recipe_device(&s->recipe, s->device);
	s->single = !s->kind->readonly || s->recipe.address != 0;
	s->refs = 1;
	s->reading.fd = s->writing.fd = -1;
	pthread_mutex_init(&s->importing, NULL);
	c->segments[index] = s;
	*out = s;
	return 0;
}

/* It is needed, or gone. */
static void no_longer_ahead_locked(share_client *c, struct segment *s)
{
	if (!s->is_ahead)
		return;
	TAILQ_REMOVE(&c->ahead, s, of_ahead);
	c->n_ahead--;
	s->is_ahead = false;
}

static void came_ahead_locked(share_client *c, struct segment *s)
{
	if (s->is_ahead)
		return;
	TAILQ_INSERT_TAIL(&c->ahead, s, of_ahead);
	c->n_ahead++;
	s->is_ahead = true;
}

int grant_arrived_locked(share_client *c, const struct wire_grant *m, struct fd_list *fds)
{
	bool segment = m->flags & WIRE_GRANT_SEGMENT;
	size_t n_pages = m->pages.size / sizeof(uint64_t);
	struct segment *s;
	struct side *side;
	int r;

	if (fds->n != segment + 2 * n_pages || m->pages.size % sizeof(uint64_t) ||
	    m->fences.size % sizeof(struct wire_fence) ||
	    (m->flags & WIRE_GRANT_HAND_OVER && m->fences.size == 0) ||
	    (segment && m->recipe.size != sizeof(struct memory_recipe)))
		return -EPROTO;
	for (size_t i = 0; i < n_pages; i++) {
		uint64_t page;

		memcpy(&page, (const char *)m->pages.data + i * sizeof(page), sizeof(page));
		r = peer_arrived_locked(c, page, fd_list_take(fds, segment + 2 * i),
					fd_list_take(fds, segment + 2 * i + 1));
		if (r < 0)
			return r;
	}
	s = find(c, m->segment);
	if (!segment)
		return s ? 0 : -EPROTO;
	if (!s) {
		r = add(c, m, &s);
		if (r < 0)
			return r;
	}
	side = m->mode == SHARE_RDWR ? &s->writing : &s->reading;
	fd_close(side->fd);
	side->fd = fd_list_take(fds, 0);
	if (m->buffer == 0)
		came_ahead_locked(c, s);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* Importing                                                                                   */

static int take_fd(share_client *c, struct side *side)
{
	int fd;

	pthread_mutex_lock(&c->lock);
	fd = side->fd;
	side->fd = -1;
	pthread_mutex_unlock(&c->lock);
	return fd;
}

/* The broker sends a descriptor once, so what could not be done now can be tried again. */
static void put_fd_back(share_client *c, struct side *side, int fd)
{
	pthread_mutex_lock(&c->lock);
	if (side->fd < 0) {
		side->fd = fd;
		fd = -1;
	}
	pthread_mutex_unlock(&c->lock);
	fd_close(fd);
}

/* Maps with the descriptor of @from. */
static int import(share_client *c, struct segment *s, struct side *from, bool writable,
		  struct memory_mapping *out)
{
	struct failure failure;
	int fd = take_fd(c, from);
	int r;

	if (fd < 0)
		return fail(SHARE_EPROTO, "the broker sent no descriptor for a segment");
	r = memory_import(s->kind, &s->recipe, fd, writable, out, &failure);
	if (r == 0) {
		fd_close(fd);
		return 0;
	}
	put_fd_back(c, from, fd);
	return fail(r, "%s", failure.text);
}

static int make_writable(share_client *c, struct segment *s)
{
	struct failure failure;
	int fd = take_fd(c, &s->writing);
	int r;

	r = memory_make_writable(&s->writing.mapping, fd, &failure);
	if (r == 0) {
		fd_close(fd);
		return 0;
	}
	put_fd_back(c, &s->writing, fd);
	return fail(r, "%s", failure.text);
}

/* Neither is needed any more; where the broker sent one for each, one was never needed. */
static void close_descriptors(share_client *c, struct segment *s)
{
	pthread_mutex_lock(&c->lock);
	s->reading.fd = fd_close(s->reading.fd);
	s->writing.fd = fd_close(s->writing.fd);
	pthread_mutex_unlock(&c->lock);
}

/* One mapping for all: made for what is needed first, and made writable in its place when that is
 * needed later. */
static int map_single(share_client *c, struct segment *s, bool writable)
{
	struct memory_mapping *m = &s->writing.mapping;
	struct side *from = writable ? &s->writing : &s->reading;
	int r = 0;

	if (!m->address)
		r = import(c, s, from, writable || !s->kind->readonly, m);
	else if (writable && !m->writable && s->kind->readonly)
		r = make_writable(c, s);
	if (r == 0 && (writable || !s->kind->readonly))
		close_descriptors(c, s);
	return r;
}

static int map_side(share_client *c, struct segment *s, bool writable)
{
	struct side *side = writable ? &s->writing : &s->reading;

	return side->mapping.address ? 0 : import(c, s, side, writable, &side->mapping);
}

static struct memory_mapping *mapping_of(struct segment *s, bool writable)
{
	return writable || s->single ? &s->writing.mapping : &s->reading.mapping;
}

/* With its lock held. */
static int reach(struct segment *s, bool writable)
{
	struct failure failure;
	int r = s->kind->on_device ? memory_reach(mapping_of(s, writable), &failure) : 0;

	return r != 0 ? fail(r, "%s", failure.text) : 0;
}

static int map(share_client *c, struct segment *s, bool writable)
{
	int r = s->single ? map_single(c, s, writable) : map_side(c, s, writable);

	return r == 0 ? reach(s, writable) : r;
}

static struct segment *find_and_ref(share_client *c, uint64_t id)
{
	struct segment *s;

	pthread_mutex_lock(&c->lock);
	s = find(c, id);
	if (s) {
		s->refs++;
		no_longer_ahead_locked(c, s);
	}
	pthread_mutex_unlock(&c->lock);
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
	pthread_mutex_lock(&s->importing);
	r = map(c, s, writable);
	pthread_mutex_unlock(&s->importing);
	if (r != 0) {
		segment_put(c, s);
		return r;
	}
	*out = s;
	*mapping = mapping_of(s, writable);
	return 0;
}

/* What it takes to map it. With its lock held, under which descriptors only come. */
static bool has_descriptor(share_client *c, struct segment *s, bool writable)
{
	bool has;

	pthread_mutex_lock(&c->lock);
	has = (writable ? &s->writing : &s->reading)->fd >= 0;
	pthread_mutex_unlock(&c->lock);
	return has;
}

/* 1, 0 when it is not here, or an error. With its lock held. */
static int map_if_here(share_client *c, struct segment *s, bool writable)
{
	const struct memory_mapping *m = mapping_of(s, writable);
	int r = 0;

	if (m->address && (m->writable || !writable))
		r = reach(s, writable);
	else if (has_descriptor(c, s, writable))
		r = map(c, s, writable);
	else
		return 0;
	return r == 0 ? 1 : r;
}

int segment_find(share_client *c, uint64_t id, uint64_t pool, bool writable, struct segment **out,
		 struct memory_mapping **mapping)
{
	struct segment *s = find_and_ref(c, id);
	uint64_t is_of = s ? s->pool : 0;
	int r;

	*out = NULL;
	if (is_of != pool) {
		segment_put(c, s);
		return is_of ? fail(SHARE_EPROTO, "a producer sent a buffer of another pool") : 0;
	}
	pthread_mutex_lock(&s->importing);
	r = map_if_here(c, s, writable);
	pthread_mutex_unlock(&s->importing);
	if (r != 1) {
		segment_put(c, s);
		return r;
	}
	*out = s;
	*mapping = mapping_of(s, writable);
	return 0;
}

void segment_is_of(share_client *c, uint64_t id, uint64_t pool)
{
	struct segment *s;

	pthread_mutex_lock(&c->lock);
	s = find(c, id);
	if (s && !s->pool)
		s->pool = pool;
	pthread_mutex_unlock(&c->lock);
}

/* In which mode it came is known by its descriptors. */
static void map_as_it_came(share_client *c, struct segment *s)
{
	bool writable;

	pthread_mutex_lock(&s->importing);
	pthread_mutex_lock(&c->lock);
	writable = s->writing.fd >= 0;
	pthread_mutex_unlock(&c->lock);
	map_if_here(c, s, writable); /* if not now, then when it is needed */
	pthread_mutex_unlock(&s->importing);
}

void segments_map_ahead_locked(share_client *c)
{
	while (c->n_ahead > AHEAD_MAX) {
		struct segment *s = TAILQ_FIRST(&c->ahead);

		s->refs++;
		no_longer_ahead_locked(c, s);
		pthread_mutex_unlock(&c->lock);
		map_as_it_came(c, s);
		pthread_mutex_lock(&c->lock);
		put_locked(c, s);
	}
}

/* The first from @at on, with a reference. */
static struct segment *next_on_device(share_client *c, uint32_t *at)
{
	struct segment *s = NULL;

	pthread_mutex_lock(&c->lock);
	for (; !s && *at < c->n_segments; ++*at) {
		s = c->segments[*at];
		if (s && !s->kind->on_device)
			s = NULL;
		if (s)
			s->refs++;
	}
	pthread_mutex_unlock(&c->lock);
	return s;
}

struct segment *segment_on_device(share_client *c, struct memory_mapping **mapping)
{
	struct memory_mapping *m = NULL;
	struct segment *s;
	uint32_t at = 0;

	while ((s = next_on_device(c, &at))) {
		pthread_mutex_lock(&s->importing);
		if (s->writing.mapping.address)
			m = &s->writing.mapping;
		else if (s->reading.mapping.address)
			m = &s->reading.mapping;
		pthread_mutex_unlock(&s->importing);
		if (m)
			break;
		segment_put(c, s);
	}
	*mapping = m;
	return s;
}

/* ------------------------------------------------------------------------------------------- */
/* Ending                                                                                      */

void segment_put(share_client *c, struct segment *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&c->lock);
	put_locked(c, s);
	rpc_retire_locked(c);
	pthread_mutex_unlock(&c->lock);
}

void segment_retire_locked(share_client *c, uint64_t id)
{
	struct wire_message m = {.type = WIRE_SEGMENT_RETIRED};
	struct segment *s = find(c, id);

	if (s) {
		c->segments[(uint32_t)id] = NULL;
		no_longer_ahead_locked(c, s);
		put_locked(c, s);
		return;
	}
	/* without memory the broker keeps an empty segment until this process ends */
	m.segment_retired.segment = id;
	rpc_send_later_locked(c, &m);
}

void segments_unmap_retired_locked(share_client *c)
{
	struct segment *s;

	while ((s = LIST_FIRST(&c->retired))) {
		struct wire_message m = {.type = WIRE_SEGMENT_RETIRED};

		LIST_REMOVE(s, link);
		m.segment_retired.segment = s->id;
		pthread_mutex_unlock(&c->lock);
		segment_free(s);
		pthread_mutex_lock(&c->lock);
		if (!c->lost)
			rpc_send_locked(c, &m);
	}
}

void segments_done(share_client *c)
{
	struct segment *s;

	for (uint32_t i = 0; i < c->n_segments; i++)
		if (c->segments[i])
			segment_free(c->segments[i]);
	free(c->segments);
	c->segments = NULL;
	c->n_segments = 0;
	while ((s = LIST_FIRST(&c->retired))) {
		LIST_REMOVE(s, link);
		segment_free(s);
	}
}
