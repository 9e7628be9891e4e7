/* SPDX-License-Identifier: MIT */

/*
 * The import table. Descriptors are entered in the order the broker sent them, and turned into a
 * mapping by the first buffer that needs it; the descriptor is closed then. Knows nothing of
 * buffers: the broker says when a segment has none left.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libshare/error.h"
#include "libshare/segment.h"
#include "libshare/timeline.h"
#include "memory/kind.h"

#define SEGMENTS_MAX (1u << 20)

struct half {
	int fd; /* until it is mapped */
	void *address;
};

struct segment {
	uint64_t id;
	uint64_t size;
	const struct memory_kind *kind;
	struct half read, write;
};

static void unmap(struct segment *s, struct half *h)
{
	h->fd = fd_close(h->fd);
	if (h->address)
		s->kind->unmap(h->address, s->size);
	h->address = NULL;
}

static struct segment *find(share_client *c, uint64_t id)
{
	uint32_t index = (uint32_t)id;
	struct segment *s = index < c->n_segments ? c->segments[index] : NULL;

	return s && s->id == id ? s : NULL;
}

static int add(share_client *c, const struct wire_grant *m, struct segment **out)
{
	uint32_t index = (uint32_t)m->segment, room = c->n_segments ? c->n_segments : 16;
	struct segment **grown, *s;

	if (index >= SEGMENTS_MAX || !memory_kind_by_id(m->kind) || m->segment_size == 0 ||
	    (index < c->n_segments && c->segments[index]))
		return -EPROTO;
	while (room <= index)
		room *= 2;
	if (room > c->n_segments) {
		grown = realloc(c->segments, room * sizeof(struct segment *));
		if (!grown)
			return -ENOMEM;
		memset(grown + c->n_segments, 0, (room - c->n_segments) * sizeof(struct segment *));
		c->segments = grown;
		c->n_segments = room;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->id = m->segment;
	s->size = m->segment_size;
	s->kind = memory_kind_by_id(m->kind);
	s->read.fd = s->write.fd = -1;
	c->segments[index] = s;
	*out = s;
	return 0;
}

int grant_arrived_locked(share_client *c, const struct wire_grant *m, struct fd_list *fds)
{
	bool segment = m->flags & WIRE_GRANT_SEGMENT;
	size_t n_pages = m->pages.size / sizeof(uint64_t);
	struct segment *s;
	int r;

	if (fds->n != segment + 2 * n_pages || m->pages.size % sizeof(uint64_t) ||
	    m->fences.size % sizeof(struct wire_fence))
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
	if (m->mode == SHARE_RDWR) {
		fd_close(s->write.fd);
		s->write.fd = fd_list_take(fds, 0);
	} else {
		fd_close(s->read.fd);
		s->read.fd = fd_list_take(fds, 0);
	}
	return 0;
}

int segment_address_locked(share_client *c, const struct wire_grant *m, bool writable, void **out)
{
	struct segment *s = find(c, m->segment);
	struct half *h;
	int r;

	if (!s || m->offset > s->size || m->size > s->size - m->offset)
		return fail(SHARE_EPROTO, "the broker sent a buffer outside of its segment");
	h = writable ? &s->write : &s->read;
	if (!h->address) {
		r = s->kind->import(h->fd, s->size, writable, &h->address);
		if (r < 0)
			return fail_system(r, "mapping a segment");
		h->fd = fd_close(h->fd);
	}
	*out = h->address;
	return 0;
}

void segment_retire_locked(share_client *c, uint64_t id)
{
	struct wire_message m = {.type = WIRE_SEGMENT_RETIRED};
	struct segment *s = find(c, id);

	if (s) {
		unmap(s, &s->read);
		unmap(s, &s->write);
		c->segments[(uint32_t)id] = NULL;
		free(s);
	}
	/* without memory the broker keeps an empty segment until this process ends */
	m.segment_retired.segment = id;
	rpc_send_later_locked(c, &m);
}

void segments_done(share_client *c)
{
	for (uint32_t i = 0; i < c->n_segments; i++) {
		struct segment *s = c->segments[i];

		if (!s)
			continue;
		unmap(s, &s->read);
		unmap(s, &s->write);
		free(s);
	}
	free(c->segments);
	c->segments = NULL;
	c->n_segments = 0;
}
