/* SPDX-License-Identifier: MIT */

/*
 * From the descriptors of a segment to its mappings. Mapping GPU memory calls the driver, which
 * takes its time: so it is done under a lock of the segment's own, `importing`, and nobody else has
 * to wait. Static functions here are called with that lock held. A descriptor is closed as soon as
 * it is mapped.
 */

#include "base/mutation.h"
#include "libshare/program/copies.h"
#include "libshare/segment/inside.h"

static int take_fd(share_client *c, struct side *side)
{
	int fd;

	pthread_mutex_lock(&c->segments->lock);
	fd = side->fd;
	side->fd = -1;
	pthread_mutex_unlock(&c->segments->lock);
	return fd;
}

/* The broker sends a descriptor once, so what could not be done now can be tried again. */
static void put_fd_back(share_client *c, struct side *side, int fd)
{
	pthread_mutex_lock(&c->segments->lock);
	if (side->fd < 0) {
		side->fd = fd;
		fd = -1;
	}
	pthread_mutex_unlock(&c->segments->lock);
	fd_close(fd);
}

/* Maps with the descriptor of @from. */
static int import(share_client *c, struct segment *s, struct side *from, bool writable,
		  struct memory_mapping *out)
{
	struct failure failure;
	int fd, r;

	if (s->kind->id == MEMORY_MEMPOOL && !copies_is_first())
		return fail(SHARE_ENOTSUP, "memory of kind \"mempool\": " COPIES_REASON);
	fd = take_fd(c, from);
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
	int r = memory_make_writable(&s->writing.mapping, fd, &failure);

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
	pthread_mutex_lock(&c->segments->lock);
	s->reading.fd = fd_close(s->reading.fd);
	s->writing.fd = fd_close(s->writing.fd);
	pthread_mutex_unlock(&c->segments->lock);
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
	int r = side->mapping.address ? 0 : import(c, s, side, writable, &side->mapping);

	if (r == 0)
		atomic_store_explicit(&side->mapped, true, memory_order_release);
	return r;
}

/* Whether nothing is left to be done: it is mapped for this and nothing else, and there is no
 * device for which each thread would have to be made ready. */
static bool is_mapped(struct segment *s, bool writable)
{
	const struct side *side = writable ? &s->writing : &s->reading;

	return !s->single && !s->kind->on_device &&
	       atomic_load_explicit(&side->mapped, memory_order_acquire);
}

static struct memory_mapping *mapping_of(struct segment *s, bool writable)
{
	return writable || s->single ? &s->writing.mapping : &s->reading.mapping;
}

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

/* What it takes to map it; while it is being imported, descriptors only come. */
static bool has_descriptor(share_client *c, struct segment *s, bool writable)
{
	bool has;

	pthread_mutex_lock(&c->segments->lock);
	has = (writable ? &s->writing : &s->reading)->fd >= 0;
	pthread_mutex_unlock(&c->segments->lock);
	return has;
}

/* 1, 0 when it is not here, or an error. */
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

/* ------------------------------------------------------------------------------------------- */

int segment_check_memory(const struct memory_mapping *m)
{
	struct failure failure;

	if (!memory_is_lost(m) || MUTATION(lost_is_good))
		return 0;
	return fail(memory_fail_lost(&failure), "%s", failure.text);
}

int segment_import(share_client *c, struct segment *s, bool writable,
		   struct memory_mapping **mapping)
{
	int r;

	pthread_mutex_lock(&s->importing);
	r = map(c, s, writable);
	pthread_mutex_unlock(&s->importing);
	*mapping = mapping_of(s, writable);
	return r;
}

int segment_import_if_here(share_client *c, struct segment *s, bool writable,
			   struct memory_mapping **mapping)
{
	int r = 1;

	if (!is_mapped(s, writable)) {
		pthread_mutex_lock(&s->importing);
		r = map_if_here(c, s, writable);
		pthread_mutex_unlock(&s->importing);
	}
	*mapping = mapping_of(s, writable);
	return r;
}

void segment_import_as_it_came(share_client *c, struct segment *s)
{
	DETAIL_STAYS;
	bool writable;

	pthread_mutex_lock(&s->importing);
	writable = has_descriptor(c, s, true);
	map_if_here(c, s, writable); /* if not now, then when it is needed */
	pthread_mutex_unlock(&s->importing);
}
