/* SPDX-License-Identifier: MIT */

/*
 * Own and peers' timeline pages: which there are here, and who holds them. What is on them is for
 * fence_state.c.
 */

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "libshare/client/error.h"
#include "libshare/order/gpu_stream.h"
#include "libshare/order/parked.h"
#include "libshare/order/timeline.h"

#define PEERS_KEPT 64 /* of the dead: those that came before are dropped */

static void peer_remove(share_client *c, struct peer_page *p)
{
	LIST_REMOVE(p, link);
	c->n_peers--;
}

static void peer_free(struct peer_page *p)
{
	gpu_stream_forget_page(p);
	fd_close(p->stat);
	pthread_mutex_destroy(&p->lock);
	timeline_unmap(p->page);
	fd_close(p->pidfd);
	free(p);
}

static bool is_over(const struct peer_page *p)
{
	/* the last slot is poisoned last */
	return timeline_value(p->page, TIMELINE_SLOTS - 1) >= TIMELINE_POISON;
}

/* Nothing is asked of the dead any more. Nobody looks at this one now. */
static void close_descriptors(struct peer_page *p)
{
	atomic_store(&p->distrusted, true);
	p->stat = fd_close(p->stat);
	p->pidfd = fd_close(p->pidfd);
}

/* The pages that may go; @by_gpu: of those that GPUs know, for which the driver has to be called.
 * The newest come first in the list and are kept, as somebody may be about to look at them. */
static struct peer_page *next_dropped(share_client *c, bool by_gpu)
{
	struct peer_page *p;
	unsigned n = 0;

	LIST_FOREACH (p, &c->peers, link) {
		if (p->refs > 0 || !is_over(p))
			continue;
		close_descriptors(p);
		if (++n > PEERS_KEPT && (p->gpu.host != NULL) == by_gpu)
			return p;
	}
	return NULL;
}

static void drop_dead_peers(share_client *c)
{
	struct peer_page *p;

	while ((p = next_dropped(c, false))) {
		peer_remove(c, p);
		peer_free(p);
	}
}

void peers_forget_dead_locked(share_client *c)
{
	struct peer_page *p;
	bool parked;

	if (c->n_peers <= PEERS_KEPT || !next_dropped(c, true))
		return;
	pthread_mutex_unlock(&c->lock);
	/* the driver would wait for those streams */
	parked = parked_count(-1) > 0;
	pthread_mutex_lock(&c->lock);
	while (!parked && (p = next_dropped(c, true))) {
		peer_remove(c, p);
		pthread_mutex_unlock(&c->lock);
		peer_free(p);
		pthread_mutex_lock(&c->lock);
	}
}

static struct peer_page *find_peer(share_client *c, uint64_t id)
{
	struct peer_page *p;

	LIST_FOREACH (p, &c->peers, link)
		if (p->id == id)
			return p;
	return NULL;
}

int peer_arrived_locked(share_client *c, uint64_t id, int fd, int pidfd)
{
	struct timeline_page *page;
	struct peer_page *p;
	int r;

	if (find_peer(c, id)) {
		fd_close(fd);
		fd_close(pidfd);
		return 0;
	}
	r = timeline_map(fd, false, &page);
	fd_close(fd);
	p = r < 0 ? NULL : calloc(1, sizeof(*p));
	if (!p) {
		if (r == 0)
			timeline_unmap(page);
		fd_close(pidfd);
		return r < 0 ? r : -ENOMEM;
	}
	p->id = id;
	p->page = page;
	p->pidfd = pidfd;
	p->stat = -1;
	pthread_mutex_init(&p->lock, NULL);
	drop_dead_peers(c);
	LIST_INSERT_HEAD(&c->peers, p, link);
	c->n_peers++;
	return 0;
}

/* Of clients that have ended while streams waited on them. */
static LIST_HEAD(, peer_page) kept = LIST_HEAD_INITIALIZER(kept);
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

/* In a forked child none of them is mapped, and nobody holds the lock. */
static void start_anew(void)
{
	kept_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	LIST_INIT(&kept);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, start_anew);
}

static void peer_keep(struct peer_page *p)
{
	close_descriptors(p);
	pthread_mutex_lock(&kept_lock);
	LIST_INSERT_HEAD(&kept, p, link);
	pthread_mutex_unlock(&kept_lock);
}

void peers_done(share_client *c, bool parked)
{
	struct peer_page *p;

	while ((p = LIST_FIRST(&c->peers))) {
		peer_remove(c, p);
		if (parked && p->gpu.host)
			peer_keep(p);
		else
			peer_free(p);
	}
}

/* ------------------------------------------------------------------------------------------- */

static bool hold_known(share_client *c, uint64_t page, struct held_fence *f)
{
	bool known = true;

	pthread_mutex_lock(&c->lock);
	if (page == c->page_id) {
		f->page = c->page;
	} else {
		f->peer = find_peer(c, page);
		known = f->peer;
		if (known) {
			f->peer->refs++;
			f->page = f->peer->page;
		}
	}
	pthread_mutex_unlock(&c->lock);
	return known;
}

static int ask_for_page(share_client *c, uint64_t page)
{
	struct wire_message m = {.type = WIRE_TIMELINE};
	_cleanup_reply_ struct reply reply;
	int r;

	m.timeline.page = page;
	r = rpc(c, &m, &reply);
	if (r != 0)
		return r;
	pthread_mutex_lock(&c->lock);
	r = peer_arrived_locked(c, page, fd_list_take(&reply.fds, 0), fd_list_take(&reply.fds, 1));
	pthread_mutex_unlock(&c->lock);
	return r < 0 ? fail_system(r, "mapping a peer's timelines") : 0;
}

int fence_hold(share_client *c, uint64_t timeline, uint64_t value, struct held_fence *out)
{
	uint64_t page = WIRE_TIMELINE_PAGE(timeline);
	struct held_fence f = {.slot = WIRE_TIMELINE_SLOT(timeline), .value = value};
	int r = 0;

	if (timeline == 0) {
		*out = (struct held_fence){0};
		return 0;
	}
	/* nothing would release a stream that waits for more than the poison */
	if (f.slot == 0 || f.slot >= TIMELINE_SLOTS || value >= TIMELINE_POISON)
		return fail(SHARE_EINVAL, "this is not a fence");
	while (!hold_known(c, page, &f)) {
		r = ask_for_page(c, page);
		if (r == SHARE_ENOENT) { /* its owner finished everything and said goodbye */
			*out = (struct held_fence){0};
			return 0;
		}
		if (r != 0)
			return r;
	}
	*out = f;
	return 0;
}

bool fence_hold_known(share_client *c, uint64_t timeline, uint64_t value, struct held_fence *out)
{
	struct held_fence f = {.slot = WIRE_TIMELINE_SLOT(timeline), .value = value};

	if (!hold_known(c, WIRE_TIMELINE_PAGE(timeline), &f))
		return false;
	*out = f;
	return true;
}

struct held_fence fence_hold_again(share_client *c, const struct held_fence *f)
{
	if (f->peer) {
		pthread_mutex_lock(&c->lock);
		f->peer->refs++;
		pthread_mutex_unlock(&c->lock);
	}
	return *f;
}

struct held_fence fence_of_the_dead(void)
{
	static const struct timeline_page poisoned = {.slots[1] = {.value = TIMELINE_POISON}};

	return (struct held_fence){.page = &poisoned, .slot = 1, .value = 1};
}

void fence_drop(share_client *c, struct held_fence *f)
{
	if (f->peer) {
		pthread_mutex_lock(&c->lock);
		f->peer->refs--;
		pthread_mutex_unlock(&c->lock);
	}
	*f = (struct held_fence){0};
}

/* ------------------------------------------------------------------------------------------- */

int slot_take(share_client *c, uint32_t *out)
{
	int r = 0;
	uint32_t i = 0;

	pthread_mutex_lock(&c->lock);
	while (i < TIMELINE_SLOTS && c->slots_used[i / 8] & 1 << i % 8)
		i++;
	if (i == TIMELINE_SLOTS) {
		r = fail(SHARE_EQUOTA, "a client has at most %d streams at a time",
			 TIMELINE_SLOTS - 1);
	} else {
		c->slots_used[i / 8] |= (uint8_t)(1 << i % 8);
		*out = i;
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

/* Values go on from where they were: fences of the last user stay reached. */
void slot_give_back(share_client *c, uint32_t slot)
{
	pthread_mutex_lock(&c->lock);
	c->slots_used[slot / 8] &= (uint8_t) ~(1 << slot % 8);
	pthread_mutex_unlock(&c->lock);
}

uint64_t slot_next(share_client *c, uint32_t slot)
{
	uint64_t value;

	pthread_mutex_lock(&c->lock);
	value = ++c->slot_values[slot];
	pthread_mutex_unlock(&c->lock);
	return value;
}

uint64_t slot_last(share_client *c, uint32_t slot)
{
	uint64_t value;

	pthread_mutex_lock(&c->lock);
	value = c->slot_values[slot];
	pthread_mutex_unlock(&c->lock);
	return value;
}
