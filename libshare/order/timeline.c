/* SPDX-License-Identifier: MIT */

/*
 * Own and peers' timeline pages: which there are here, and who holds them; and sets of fences that
 * do. What is on the pages is for fence_state.c.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libshare/client/rpc.h"
#include "libshare/order/inside.h"

#define FEW        (sizeof((struct fences){0}.few) / sizeof(struct held_fence))
#define PEERS_KEPT 64 /* of the dead: those that came before are dropped */

static void peer_remove(share_client *c, struct peer_page *p)
{
	LIST_REMOVE(p, link);
	c->order->n_peers--;
}

static void peer_free(struct peer_page *p)
{
	memory_page_unregister(&p->gpu); /* if GPUs were told to wait on it */
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

	LIST_FOREACH (p, &c->order->peers, link) {
		if (atomic_load_explicit(&p->refs, memory_order_acquire) > 0 || !is_over(p))
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

bool peers_forget_dead(share_client *c)
{
	struct peer_page *p;

	pthread_mutex_lock(&c->order->lock);
	p = next_dropped(c, true);
	if (p)
		peer_remove(c, p);
	pthread_mutex_unlock(&c->order->lock);
	if (p)
		peer_free(p);
	return p;
}

static struct peer_page *find_peer(share_client *c, uint64_t id)
{
	struct peer_page *p;

	LIST_FOREACH (p, &c->order->peers, link)
		if (p->id == id)
			return p;
	return NULL;
}

int peer_arrived(share_client *c, uint64_t id, int fd, int pidfd)
{
	struct peer_page *p = calloc(1, sizeof(*p));
	struct timeline_page *page = NULL;
	int r = p ? timeline_map(fd, false, &page) : -ENOMEM;
	uint64_t file = timeline_file(fd);
	bool known;

	fd_close(fd);
	if (r < 0) {
		fd_close(pidfd);
		free(p);
		return r;
	}
	p->id = id;
	p->file = file;
	p->page = page;
	p->pidfd = pidfd;
	p->stat = -1;
	pthread_mutex_init(&p->lock, NULL);
	pthread_mutex_lock(&c->order->lock);
	known = find_peer(c, id);
	if (!known) {
		drop_dead_peers(c);
		LIST_INSERT_HEAD(&c->order->peers, p, link);
		if (++c->order->n_peers > PEERS_KEPT)
			rpc_leave_chore(c);
	}
	pthread_mutex_unlock(&c->order->lock);
	if (known)
		peer_free(p);
	return 0;
}

/* Of clients that have ended while streams waited on them. */
static LIST_HEAD(, peer_page) kept = LIST_HEAD_INITIALIZER(kept);
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

/* In a forked child none of them is mapped, and nobody holds the lock. */
static void forget_kept(void)
{
	kept_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	LIST_INIT(&kept);
}

__attribute__((constructor)) static void forget_in_children(void)
{
	pthread_atfork(NULL, NULL, forget_kept);
}

static void peer_keep(struct peer_page *p)
{
	close_descriptors(p);
	pthread_mutex_lock(&kept_lock);
	LIST_INSERT_HEAD(&kept, p, link);
	pthread_mutex_unlock(&kept_lock);
}

void peers_deinit(share_client *c, bool parked)
{
	struct peer_page *p;

	while ((p = LIST_FIRST(&c->order->peers))) {
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

	pthread_mutex_lock(&c->order->lock);
	if (page == c->page_id) {
		f->page = c->page;
	} else {
		f->peer = find_peer(c, page);
		known = f->peer;
		if (known) {
			atomic_fetch_add_explicit(&f->peer->refs, 1, memory_order_relaxed);
			f->page = f->peer->page;
		}
	}
	pthread_mutex_unlock(&c->order->lock);
	return known;
}

static int ask_for_page(share_client *c, uint64_t page)
{
	struct wire_message m = {.type = WIRE_TIMELINE, .timeline = {.page = page}};
	_cleanup_reply_ struct reply reply;
	int r = rpc(c, &m, &reply), error;

	if (r != 0)
		return r;
	error = peer_arrived(c, page, fd_list_take(&reply.fds, 0), fd_list_take(&reply.fds, 1));
	return error < 0 ? fail_system(error, "mapping a peer's timelines") : 0;
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

struct held_fence fence_hold_again(const struct held_fence *f)
{
	if (f->peer)
		atomic_fetch_add_explicit(&f->peer->refs, 1, memory_order_relaxed);
	return *f;
}

struct held_fence fence_of_the_dead(void)
{
	static const struct timeline_page poisoned = {.slots[1] = {.value = TIMELINE_POISON}};

	return (struct held_fence){.page = &poisoned, .slot = 1, .value = 1};
}

void fence_drop(struct held_fence *f)
{
	/* with the last one the page may go */
	if (f->peer)
		atomic_fetch_sub_explicit(&f->peer->refs, 1, memory_order_release);
	*f = (struct held_fence){0};
}

/* ------------------------------------------------------------------------------------------- */

int slot_take(share_client *c, uint32_t *out)
{
	int r = 0;
	uint32_t i = 0;

	pthread_mutex_lock(&c->order->lock);
	while (i < TIMELINE_SLOTS && c->order->slots_used[i / 8] & 1 << i % 8)
		i++;
	if (i == TIMELINE_SLOTS) {
		r = fail(SHARE_EQUOTA, "a client has at most %d streams at a time",
			 TIMELINE_SLOTS - 1);
	} else {
		c->order->slots_used[i / 8] |= (uint8_t)(1 << i % 8);
		*out = i;
	}
	pthread_mutex_unlock(&c->order->lock);
	return r;
}

/* Values go on from where they were: fences of the last user stay reached. */
void slot_give_back(share_client *c, uint32_t slot)
{
	pthread_mutex_lock(&c->order->lock);
	c->order->slots_used[slot / 8] &= (uint8_t) ~(1 << slot % 8);
	pthread_mutex_unlock(&c->order->lock);
}

uint64_t slot_next(share_client *c, uint32_t slot)
{
	return atomic_fetch_add(&c->order->slot_values[slot], 1) + 1;
}

uint64_t slot_last(share_client *c, uint32_t slot)
{
	return atomic_load(&c->order->slot_values[slot]);
}

/* ------------------------------------------------------------------------------------------- */
/* Sets of fences. Most have a few fences at most, for which a set has room of its own, so     */
/* that adding one takes memory only where many processes use the same block                   */

static bool make_room(struct fences *set)
{
	struct held_fence *grown;

	if (set->all && set->all != set->few) {
		grown = realloc(set->all, (set->n + 1) * sizeof(*grown));
	} else if (set->n < FEW) {
		grown = set->few;
	} else {
		grown = malloc((set->n + 1) * sizeof(*grown));
		if (grown)
			memcpy(grown, set->few, sizeof(set->few));
	}
	if (grown)
		set->all = grown;
	return grown;
}

static struct held_fence *find_timeline(struct fences *set, const struct held_fence *f)
{
	for (size_t i = 0; i < set->n; i++)
		if (set->all[i].page == f->page && set->all[i].slot == f->slot)
			return &set->all[i];
	return NULL;
}

bool fences_add(struct fences *set, struct held_fence *f)
{
	struct held_fence *same = find_timeline(set, f);

	if (same) {
		if ((int64_t)(f->value - same->value) > 0)
			same->value = f->value;
		fence_drop(f);
		return true;
	}
	if (!make_room(set))
		return false;
	set->all[set->n++] = *f;
	return true;
}

void fences_drop_at(struct fences *set, size_t i)
{
	fence_drop(&set->all[i]);
	set->all[i] = set->all[--set->n];
}

void fences_deinit(struct fences *set)
{
	for (size_t i = 0; i < set->n; i++)
		fence_drop(&set->all[i]);
	if (set->all != set->few)
		free(set->all);
	set->all = NULL;
	set->n = 0;
}
