/* SPDX-License-Identifier: MIT */

/* The broker's side of what the keeper keeps. A process has one keeper at most, so this is the
 * process's, and not some broker's. */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/mutation.h"
#include "broker/keeper/kept.h"
#include "broker/log/log.h"
#include "wire/packet.h"

struct closing_later {
	int fd;
	void (*how)(void *data, int fd);
	void *data;
};

static struct {
	struct kept_table *table;
	int socket;
	uint32_t *ids; /* by descriptor */
	int n_ids;
	bool *taken; /* by number, in a broker that comes after another one */
	struct closing_later *later;
	size_t n_later, room_later;
} mine = {.socket = -1};

void kept_init(struct kept_table *table, int socket)
{
	mine.table = table;
	mine.socket = socket;
	mine.taken = calloc(table->room, sizeof(*mine.taken));
}

/* The keeper answers everything, and does not wait for anybody. */
static int ask(struct kept_message *m, const int *fds, size_t n_fds)
{
	size_t size = sizeof(*m);
	struct fd_list none;
	int r;

	do
		r = packet_send(mine.socket, m, sizeof(*m), fds, n_fds, true);
	while ((r == -ETOOMANYREFS || r == -ENOBUFS || r == -ENOMEM) && usleep(1000) == 0);
	if (r == 0)
		r = packet_receive(mine.socket, m, &size, &none, true);
	if (r < 0) {
		/* it ends with its keeper, as others than that cannot tell it from one that goes on
		 */
		log_error("the keeper is gone: %s", strerror(-r));
		_exit(EXIT_FAILURE);
	}
	if (size != sizeof(*m))
		return -EPROTO;
	return -(int)m->word;
}

void kept_serves(void)
{
	struct kept_message m = {.word = KEPT_SERVES};

	if (mine.table)
		ask(&m, NULL, 0);
}

static int set_id(int fd, uint32_t id)
{
	if (fd >= mine.n_ids) {
		int n = mine.n_ids ? mine.n_ids : 1024;
		uint32_t *ids;

		while (n <= fd)
			n *= 2;
		ids = realloc(mine.ids, (size_t)n * sizeof(*ids));
		if (!ids)
			return -ENOMEM;
		memset(ids + mine.n_ids, 0, (size_t)(n - mine.n_ids) * sizeof(*ids));
		mine.ids = ids;
		mine.n_ids = n;
	}
	mine.ids[fd] = id;
	return 0;
}

uint32_t kept_id(int fd)
{
	return fd >= 0 && fd < mine.n_ids ? mine.ids[fd] : 0;
}

static void drop(const uint32_t *ids, size_t n)
{
	struct kept_message m = {.word = KEPT_DROP, .n = (uint32_t)n};

	if (n == 0)
		return;
	memcpy(m.ids, ids, n * sizeof(*ids));
	ask(&m, NULL, 0);
}

int kept_keep(const int *fds, const size_t *sizes, size_t n)
{
	struct kept_message m = {.word = KEPT_KEEP, .n = (uint32_t)n};
	int r = 0;

	if (!mine.table)
		return 0;
	assert(n <= KEPT_AT_ONCE);
	for (size_t i = 0; sizes && i < n; i++)
		m.sizes[i] = sizes[i];
	for (size_t i = 0; r == 0 && i < n; i++)
		r = set_id(fds[i], 0);
	if (r == 0)
		r = ask(&m, fds, n);
	for (size_t i = 0; r == 0 && i < n; i++) {
		set_id(fds[i], m.ids[i]);
		/* the number that the table has for it is the keeper's own */
		if (mine.taken)
			mine.taken[m.ids[i] - 1] = true;
	}
	if (r < 0)
		log_error("the keeper does not take what the next broker needs: %s", strerror(-r));
	return r;
}

int kept_take(uint32_t id)
{
	int fd = kept_look(id);

	if (fd < 0 || !mine.taken || (mine.taken[id - 1] && !MUTATION(kept_taken_twice)) ||
	    set_id(fd, id) < 0)
		return -1;
	mine.taken[id - 1] = true;
	return fd;
}

int kept_take_mapped(uint32_t id, size_t size, void **address)
{
	const struct kept_slot *k = kept_look(id) < 0 ? NULL : &mine.table->slots[id - 1];

	*address = NULL;
	if (!k || !k->address || (k->size != size && !MUTATION(kept_size_not_compared)))
		return -1;
	*address = k->address;
	return kept_take(id);
}

int kept_look(uint32_t id)
{
	return mine.table && id > 0 && id <= atomic_load(&mine.table->n)
		   ? atomic_load(&mine.table->slots[id - 1].fd)
		   : -1;
}

void kept_sweep(void)
{
	uint32_t ids[KEPT_AT_ONCE], n = mine.table ? atomic_load(&mine.table->n) : 0;
	size_t found = 0;

	for (uint32_t i = 0; mine.taken && i < n; i++) {
		int fd = atomic_load(&mine.table->slots[i].fd);

		if (fd < 0 || mine.taken[i])
			continue;
		if (mine.table->slots[i].address)
			munmap(mine.table->slots[i].address, mine.table->slots[i].size);
		fd_close(fd);
		ids[found++] = i + 1;
		if (found == KEPT_AT_ONCE) {
			drop(ids, found);
			found = 0;
		}
	}
	drop(ids, found);
}

static void close_one(void *data, int fd)
{
	(void)data;
	fd_close(fd);
}

void kept_close_by(int fd, void (*how)(void *data, int fd), void *data)
{
	uint32_t id = kept_id(fd);

	if (fd < 0)
		return;
	if (MUTATION(let_go_too_early)) {
		drop(&id, id > 0);
		if (id)
			set_id(fd, 0);
	}
	if (mine.n_later == mine.room_later) {
		size_t room = mine.room_later ? mine.room_later * 2 : 64;
		struct closing_later *later = realloc(mine.later, room * sizeof(*later));

		if (!later) { /* early is better than never */
			drop(&id, id > 0);
			if (id)
				set_id(fd, 0);
			how(data, fd);
			return;
		}
		mine.later = later;
		mine.room_later = room;
	}
	mine.later[mine.n_later++] = (struct closing_later){fd, how, data};
}

int kept_close(int fd)
{
	kept_close_by(fd, close_one, NULL);
	return -1;
}

void kept_flush(size_t n)
{
	uint32_t ids[KEPT_AT_ONCE] = {0};
	size_t found = 0;

	if (n == 0) /* perhaps there is no list yet */
		return;
	for (size_t i = 0; i < n; i++) {
		uint32_t id = kept_id(mine.later[i].fd);

		if (id)
			ids[found++] = id;
		if (found == KEPT_AT_ONCE) {
			drop(ids, found);
			found = 0;
		}
	}
	drop(ids, found);
	for (size_t i = 0; i < n; i++) {
		struct closing_later l = mine.later[i];

		if (kept_id(l.fd))
			set_id(l.fd, 0);
		l.how(l.data, l.fd);
	}
	mine.n_later -= n;
	memmove(mine.later, mine.later + n, mine.n_later * sizeof(*mine.later));
}

size_t kept_waiting(void)
{
	return mine.n_later;
}
