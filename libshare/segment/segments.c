/* SPDX-License-Identifier: MIT */

/*
 * The table of segments: which there are in this process, as the broker says. Descriptors are
 * entered in the order the broker sent them, and turned into a mapping by the first buffer that
 * needs it (import.c). Knows nothing of buffers: the broker says when a segment has none left.
 *
 * The thread that reads the socket only makes notes: mapping and unmapping is done by whoever needs
 * it, or when nobody is delivering.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libshare/client/room.h"
#include "libshare/order/order.h"
#include "libshare/segment/inside.h"

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
	struct segment *s = segments_at(t, m->segment);
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
/* Ending                                                                                      */

/* The broker says that it is empty: it leaves the table. With the client's lock held. */
static void segment_retire(share_client *c, uint64_t id)
{
	struct wire_message m = {.type = WIRE_SEGMENT_RETIRED, .segment_retired = {.segment = id}};
	struct segments *t = c->segments;
	struct segment *s;

	pthread_mutex_lock(&t->lock);
	s = segments_at(t, id);
	if (s) {
		t->all[(uint32_t)id] = NULL;
		segments_not_ahead(t, s);
	}
	pthread_mutex_unlock(&t->lock);
	if (s) {
		segment_put_soon(c, s);
		return;
	}
	/* without memory the broker keeps an empty segment until this process ends */
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
		struct wire_message m = {.type = WIRE_SEGMENT_RETIRED,
					 .segment_retired = {.segment = s->id}};

		segment_free(s);
		if (!client_is_lost(c))
			rpc_send(c, &m);
	}
}

/* Unmaps what has been retired and says so; and maps what came ahead, where there is so much of it
 * that this process could run out of descriptors. */
static bool do_chores(share_client *c)
{
	segments_map_ahead(c);
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
