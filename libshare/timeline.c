/* SPDX-License-Identifier: MIT */

/*
 * Own and peers' timeline pages. A peer's page comes with its owner's pidfd: the broker poisons
 * the page of a dead process, but if the broker is gone too, a waiter still sees the death.
 */

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>

#include "libshare/error.h"
#include "libshare/timeline.h"

#define PEERS_KEPT      64  /* pages of dead peers are dropped beyond */
#define SLICE_MS        100 /* between looks at the owner */
#define POISON_GRACE_MS 1000

static void peer_free(share_client *c, struct peer_page *p)
{
	LIST_REMOVE(p, link);
	c->n_peers--;
	timeline_unmap(p->page);
	fd_close(p->pidfd);
	free(p);
}

static bool is_over(const struct peer_page *p)
{
	return atomic_load_explicit(&p->page->slots[0].value, memory_order_relaxed) >=
	       TIMELINE_POISON;
}

static void drop_dead_peers(share_client *c)
{
	struct peer_page *p = LIST_FIRST(&c->peers);

	while (p && c->n_peers > PEERS_KEPT) {
		struct peer_page *next = LIST_NEXT(p, link);

		if (p->refs == 0 && is_over(p))
			peer_free(c, p);
		p = next;
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
	LIST_INSERT_HEAD(&c->peers, p, link);
	c->n_peers++;
	drop_dead_peers(c);
	return 0;
}

void peers_done(share_client *c)
{
	while (!LIST_EMPTY(&c->peers))
		peer_free(c, LIST_FIRST(&c->peers));
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
	r = rpc(c, &m, WIRE_TIMELINE_PAGE, &reply);
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
	if (f.slot == 0 || f.slot >= TIMELINE_SLOTS)
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

struct held_fence fence_hold_again(share_client *c, const struct held_fence *f)
{
	if (f->peer) {
		pthread_mutex_lock(&c->lock);
		f->peer->refs++;
		pthread_mutex_unlock(&c->lock);
	}
	return *f;
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

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool owner_is_dead(const struct held_fence *f)
{
	struct pollfd p = {.fd = f->peer ? f->peer->pidfd : -1, .events = POLLIN};

	return f->peer && poll(&p, 1, 0) > 0;
}

static bool broker_is_lost(share_client *c)
{
	struct pollfd p = {.fd = c->socket};
	bool lost;

	pthread_mutex_lock(&c->lock);
	lost = c->lost;
	pthread_mutex_unlock(&c->lock);
	return lost || (poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR));
}

/*
 * The owner is dead, and the broker poisons its page, knowing what was reached before. But the
 * broker may be gone, and somebody to whom the owner gave its mapping may take the poison back: so
 * once a death was seen, what is still pending a while later stays dead, whatever the page says.
 */
static enum timeline_state judge_dead(share_client *c, const struct held_fence *f)
{
	int_fast64_t seen = 0, now = now_ms();

	if (!atomic_compare_exchange_strong(&f->peer->dead_since, &seen, now) &&
	    now - seen > POISON_GRACE_MS)
		atomic_store(&f->peer->distrusted, true);
	if (atomic_load(&f->peer->distrusted) || broker_is_lost(c))
		return timeline_query(f->page, f->slot, f->value) == TIMELINE_REACHED
			   ? TIMELINE_REACHED
			   : TIMELINE_DEAD;
	return TIMELINE_PENDING;
}

/* One load, unless it is pending and somebody else's. */
enum timeline_state fence_state(share_client *c, const struct held_fence *f)
{
	enum timeline_state state;

	if (!f->page)
		return TIMELINE_REACHED;
	state = timeline_query(f->page, f->slot, f->value);
	if (!f->peer)
		return state;
	if (state == TIMELINE_DEAD)
		atomic_store(&f->peer->distrusted, true);
	else if (state == TIMELINE_PENDING && owner_is_dead(f))
		state = judge_dead(c, f);
	return state;
}

enum timeline_state fence_block(share_client *c, const struct held_fence *f, int timeout_ms)
{
	int64_t deadline = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;

	if (!f->page)
		return TIMELINE_REACHED;
	for (;;) {
		int64_t left = timeout_ms < 0 ? SLICE_MS : deadline - now_ms();
		enum timeline_state state;

		timeline_wait(f->page, f->slot, f->value,
			      left > SLICE_MS ? SLICE_MS
			      : left < 0      ? 0
					      : (int)left);
		state = fence_state(c, f);
		if (state != TIMELINE_PENDING)
			return state;
		if (timeout_ms >= 0 && now_ms() >= deadline)
			return TIMELINE_PENDING;
	}
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
