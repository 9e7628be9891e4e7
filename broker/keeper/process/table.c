/* SPDX-License-Identifier: MIT */

#include "broker/keeper/process/table.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/system/descriptor.h"
#include "base/system/mapping.h"

static uint32_t first_free = KEPT_FIXED; /* no slot between the fixed ones and this one is free */

struct kept_table *table_new(void)
{
	struct rlimit limit = {.rlim_cur = TABLE_ROOM_MAX};
	struct kept_table *t;
	uint64_t room;

	getrlimit(RLIMIT_NOFILE, &limit);
	room = limit.rlim_cur > TABLE_ROOM_MAX ? TABLE_ROOM_MAX : limit.rlim_cur;
	room += KEPT_FIXED;
	t = mapping_make(NULL, sizeof(*t) + room * sizeof(struct kept_slot), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	if (!t)
		return NULL;
	t->room = (uint32_t)room;
	for (uint32_t i = 0; i < KEPT_FIXED; i++)
		atomic_store(&t->slots[i].fd, -1);
	atomic_store(&t->n, KEPT_FIXED);
	atomic_store(&t->ended, -1);
	return t;
}

struct kept_health *health_new(void)
{
	struct kept_health *h =
	    mapping_make(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);

	if (h)
		atomic_store(&h->hang_ms, KEPT_HANG_MS);
	return h;
}

static uint32_t find_free(const struct kept_table *t)
{
	uint32_t n = atomic_load(&t->n);

	while (first_free < n && atomic_load(&t->slots[first_free].fd) >= 0)
		first_free++;
	return first_free;
}

/* Closes what is kept under a number, and unmaps it. If the keeper dies in between, the next one
 * does all of this again, which the order of the steps allows. */
static void let_go(struct kept_table *t, uint32_t id)
{
	struct kept_slot *k;
	int fd;

	if (id == 0 || id > atomic_load(&t->n))
		return;
	k = &t->slots[id - 1];
	fd = atomic_load(&k->fd);
	atomic_store(&k->fd, -1);
	if (k->address)
		munmap(k->address, k->size);
	k->address = NULL;
	if (id - 1 < first_free && id > KEPT_FIXED)
		first_free = id - 1;
	fd_close(fd);
}

/* Where something is about to be mapped. It is noted before that, so that a deputy can undo it. */
static struct {
	void *_Atomic address;
	size_t size;
} about_to_map;

static int map(int fd, size_t size, void **out)
{
	void *place = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p;

	if (place == MAP_FAILED)
		return -errno;
	about_to_map.size = size;
	atomic_store(&about_to_map.address, place);
	/* a broker that is forked is to have it as well, so there is no MADV_DONTFORK */
	p = mapping_make(place, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd);
	if (!p) {
		int r = -errno;

		munmap(place, size);
		atomic_store(&about_to_map.address, NULL);
		return r;
	}
	*out = p;
	atomic_store(&about_to_map.address, NULL);
	return 0;
}

static int keep_one(struct kept_table *t, uint32_t at, int fd, uint64_t size, uint64_t serial)
{
	struct kept_slot *k = &t->slots[at];

	if (at >= t->room)
		return -EMFILE;
	atomic_store(&k->fd, -1); /* a slot that was never in use has 0 there */
	k->address = NULL;
	k->size = size;
	k->serial = serial;
	if (size > 0) {
		int r = map(fd, size, &k->address);

		if (r < 0)
			return r;
	}
	atomic_store(&k->fd, fd);
	if (at == atomic_load(&t->n))
		atomic_store(&t->n, at + 1);
	return 0;
}

/* Replaces a descriptor in one step, so that one of the two is always there: the next broker goes
 * on with it. */
static void replace(struct kept_table *t, uint32_t id, int fd)
{
	fd_close(atomic_exchange(&t->slots[id - 1].fd, fd));
}

static int keep_any(struct kept_table *t, struct kept_message *m, uint32_t i, int fd)
{
	uint32_t at;
	int r;

	if (m->ids[i] > 0 && m->ids[i] <= KEPT_FIXED) {
		replace(t, m->ids[i], fd);
		return 0;
	}
	at = find_free(t);
	r = keep_one(t, at, fd, m->sizes[i], m->serial);
	if (r == 0)
		m->ids[i] = at + 1;
	return r;
}

int table_keep(struct kept_table *t, struct kept_message *m, struct fd_list *fds)
{
	int r = fds->n == m->n ? 0 : -EMFILE;

	for (uint32_t i = 0; r == 0 && i < m->n; i++) {
		r = keep_any(t, m, i, fds->fds[i]);
		if (r == 0) {
			fds->fds[i] = -1;
			continue;
		}
		while (i-- > 0)
			if (m->ids[i] > KEPT_FIXED)
				let_go(t, m->ids[i]);
		break;
	}
	return r;
}

void table_repair(struct kept_table *t, uint64_t serial)
{
	uint32_t n = atomic_load(&t->n);

	first_free = KEPT_FIXED;
	if (atomic_load(&about_to_map.address))
		munmap(atomic_exchange(&about_to_map.address, NULL), about_to_map.size);
	/* in the slot behind the last one there may be what was about to be kept */
	if (n < t->room && t->slots[n].serial > serial)
		atomic_store(&t->n, ++n);
	/* a slot with a mapping and no descriptor was being let go, and nothing was mapped since */
	for (uint32_t i = KEPT_FIXED; i < n; i++)
		if (t->slots[i].serial > serial ||
		    (t->slots[i].address && atomic_load(&t->slots[i].fd) < 0))
			let_go(t, i + 1);
}

void table_drop(struct kept_table *t, const struct kept_message *m)
{
	for (uint32_t i = 0; i < m->n; i++)
		let_go(t, m->ids[i]);
}
