/* SPDX-License-Identifier: MIT */

/*
 * The table of segments: which there are in this process, and who holds them. Descriptors are
 * entered in the order the broker sent them, and turned into a mapping by the first buffer that
 * needs it (import.c). Knows nothing of buffers: the broker says when a segment has none left.
 *
 * Consumers of channels are sent segments ahead, so that no message needs the broker. Most of these
 * wait for their first buffer like all others; beyond a number of them the oldest are mapped, as
 * mappings cost a process less than descriptors do. In a client that has had a pool mapped ahead
 * none waits.
 *
 * The thread that reads the socket only makes notes: mapping and unmapping is done by whoever needs
 * it, or when nobody is delivering.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libshare/buffer/inside.h"
#include "libshare/client/room.h"

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
	free(s->dumped);
	pthread_mutex_destroy(&s->importing);
	free(s);
}

/* Functions that take the table itself are called with its lock held. */
static struct segment *find(struct segments *t, uint64_t id)
{
	uint32_t index = (uint32_t)id;
	struct segment *s = index < t->room ? t->all[index] : NULL;

	return s && s->id == id ? s : NULL;
}

/* True when that was the last reference, and there is something to unmap. */
static bool put(struct segments *t, struct segment *s)
{
	if (--s->refs > 0)
		return false;
	LIST_INSERT_HEAD(&t->retired, s, link);
	return true;
}

/* ------------------------------------------------------------------------------------------- */
/* What the broker sends                                                                       */

static int make_room(struct segments *t, uint32_t index)
{
	uint32_t room = t->room ? t->room : 16;
	struct segment **grown;

	while (room <= index)
		room *= 2;
	if (room == t->room)
		return 0;
	grown = realloc(t->all, room * sizeof(struct segment *));
	if (!grown)
		return -ENOMEM;
	memset(grown + t->room, 0, (room - t->room) * sizeof(struct segment *));
	t->all = grown;
	t->room = room;
	return 0;
}

static int add(struct segments *t, const struct wire_grant *m, struct segment **out)
{
	uint32_t index = (uint32_t)m->segment;
	struct segment *s;

	if (index >= SEGMENTS_MAX || !memory_kind_by_id(m->kind) || m->segment_size == 0 ||
	    (index < t->room && t->all[index]))
		return -EPROTO;
	if (make_room(t, index) < 0)
		return -ENOMEM;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->id = m->segment;
	s->pool = m->pool;
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
	t->all[index] = s;
	*out = s;
	return 0;
}

/* It is needed, or gone. */
static void no_longer_ahead(struct segments *t, struct segment *s)
{
	if (!s->is_ahead)
		return;
	TAILQ_REMOVE(&t->ahead, s, of_ahead);
	t->n_ahead--;
	s->is_ahead = false;
}

static void came_ahead(struct segments *t, struct segment *s)
{
	if (s->is_ahead)
		return;
	TAILQ_INSERT_TAIL(&t->ahead, s, of_ahead);
	t->n_ahead++;
	s->is_ahead = true;
}

/* Takes the descriptor, if there is one. */
static int enter(struct segments *t, const struct wire_grant *m, int *fd)
{
	struct segment *s = find(t, m->segment);
	struct side *side;
	int r;

	if (*fd < 0)
		return s ? 0 : -EPROTO;
	if (!s) {
		r = add(t, m, &s);
		if (r < 0)
			return r;
	}
	side = m->mode == SHARE_RDWR ? &s->writing : &s->reading;
	fd_close(side->fd);
	side->fd = *fd;
	*fd = -1;
	t->arrived++;
	if (m->buffer == 0)
		came_ahead(t, s);
	return 0;
}

static int pages_arrived(share_client *c, const struct wire_grant *m, size_t n_pages,
			 struct fd_list *fds, size_t first)
{
	for (size_t i = 0; i < n_pages; i++) {
		uint64_t page;
		int r;

		memcpy(&page, (const char *)m->pages.data + i * sizeof(page), sizeof(page));
		r = peer_arrived(c, page, fd_list_take(fds, first + 2 * i),
				 fd_list_take(fds, first + 2 * i + 1));
		if (r < 0)
			return r;
	}
	return 0;
}

/* Enters the descriptors that came with a grant. 0 or negative errno. */
static int grant_arrived(share_client *c, const struct wire_grant *m, struct fd_list *fds)
{
	struct segments *t = c->segments;
	bool segment = m->flags & WIRE_GRANT_SEGMENT;
	size_t n_pages = m->pages.size / sizeof(uint64_t);
	_cleanup_fd_ int fd = -1;
	int r;

	if (fds->n != segment + 2 * n_pages || m->pages.size % sizeof(uint64_t) ||
	    m->fences.size % sizeof(struct wire_fence) ||
	    (m->flags & WIRE_GRANT_HAND_OVER && m->fences.size == 0) ||
	    (segment && m->recipe.size != sizeof(struct memory_recipe)))
		return -EPROTO;
	r = pages_arrived(c, m, n_pages, fds, segment);
	if (r < 0)
		return r;
	if (segment)
		fd = fd_list_take(fds, 0);
	pthread_mutex_lock(&t->lock);
	r = enter(t, m, &fd);
	if (t->n_ahead > t->ahead_max)
		rpc_leave_chore(c);
	pthread_mutex_unlock(&t->lock);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Holding                                                                                     */

static struct segment *find_and_ref(share_client *c, uint64_t id)
{
	struct segments *t = c->segments;
	struct segment *s;

	pthread_mutex_lock(&t->lock);
	s = find(t, id);
	if (s) {
		s->refs++;
		no_longer_ahead(t, s);
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
		no_longer_ahead(t, s);
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

static void put_and_leave_chore(share_client *c, struct segment *s)
{
	struct segments *t = c->segments;

	pthread_mutex_lock(&t->lock);
	if (put(t, s))
		rpc_leave_chore(c);
	pthread_mutex_unlock(&t->lock);
}

static void map_ahead(share_client *c)
{
	struct segment *s;

	while ((s = take_from_ahead(c->segments))) {
		segment_import_as_it_came(c, s);
		put_and_leave_chore(c, s);
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

/* ------------------------------------------------------------------------------------------- */
/* Ending                                                                                      */

void segment_put(share_client *c, struct segment *s)
{
	if (!s)
		return;
	put_and_leave_chore(c, s);
	rpc_do_chores(c);
}

/* The broker says that it is empty: it leaves the table. With the client's lock held. */
static void segment_retire(share_client *c, uint64_t id)
{
	struct wire_message m = {.type = WIRE_SEGMENT_RETIRED};
	struct segments *t = c->segments;
	struct segment *s;

	pthread_mutex_lock(&t->lock);
	s = find(t, id);
	if (s) {
		t->all[(uint32_t)id] = NULL;
		no_longer_ahead(t, s);
	}
	pthread_mutex_unlock(&t->lock);
	if (s) {
		put_and_leave_chore(c, s);
		return;
	}
	/* without memory the broker keeps an empty segment until this process ends */
	m.segment_retired.segment = id;
	rpc_send_later(c, &m);
}

static struct segment *take_retired(struct segments *t)
{
	struct segment *s;

	pthread_mutex_lock(&t->lock);
	s = LIST_FIRST(&t->retired);
	if (s)
		LIST_REMOVE(s, link);
	pthread_mutex_unlock(&t->lock);
	return s;
}

static void unmap_retired(share_client *c)
{
	struct segment *s;

	while ((s = take_retired(c->segments))) {
		struct wire_message m = {.type = WIRE_SEGMENT_RETIRED};

		m.segment_retired.segment = s->id;
		segment_free(s);
		if (!client_is_lost(c))
			rpc_send(c, &m);
	}
}

/* Unmaps what has been retired and says so; and maps what came ahead, where there is so much of it
 * that this process could run out of descriptors. */
static bool do_chores(share_client *c)
{
	map_ahead(c);
	unmap_retired(c);
	return true;
}

static int begin(share_client *c, const share_connect_options *options)
{
	struct segments *t = calloc(1, sizeof(*t));

	(void)options;
	if (!t)
		return fail_system(-ENOMEM, "connecting");
	pthread_mutex_init(&t->lock, NULL);
	LIST_INIT(&t->retired);
	TAILQ_INIT(&t->ahead);
	t->ahead_max = AHEAD_MAX;
	c->segments = t;
	return 0;
}

/* Unmaps everything: nobody else has the client any more. */
static void segments_deinit(struct segments *t)
{
	struct segment *s;

	for (uint32_t i = 0; i < t->room; i++)
		if (t->all[i])
			segment_free(t->all[i]);
	free(t->all);
	t->all = NULL;
	t->room = 0;
	while ((s = LIST_FIRST(&t->retired))) {
		LIST_REMOVE(s, link);
		segment_free(s);
	}
}

/* Nothing may be mapped any more when the broker takes our word for it. */
static bool end(share_client *c)
{
	segments_deinit(c->segments);
	return true;
}

static void done(share_client *c)
{
	struct segments *t = c->segments;

	if (!t)
		return;
	segments_deinit(t);
	pthread_mutex_destroy(&t->lock);
	free(t);
	c->segments = NULL;
}

static int hear(share_client *c, const struct wire_message *m, struct fd_list *fds)
{
	switch (m->type) {
	case WIRE_GRANT:
		return grant_arrived(c, &m->grant, fds) < 0 ? -1 : 1;
	case WIRE_SEGMENT_RETIRE:
		segment_retire(c, m->segment_retire.segment);
		return 1;
	default:
		return 0;
	}
}

const struct client_room segment_room = {
    .begin = begin,
    .hear = hear,
    .do_chores = do_chores,
    .end = end,
    .free = done,
};
