/* SPDX-License-Identifier: MIT */

/* What the broker closes, once no record names it any more and the keeper has let it go. */

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/beat.h"
#include "base/mutation.h"
#include "base/system/descriptor.h"
#include "broker/keeper/inside.h"
#include "broker/keeper/kept.h"

struct closing_later {
	int fd;
	void (*how)(void *data, int fd);
	void *data;
};

static struct {
	struct closing_later *all;
	size_t n, room;
} later;

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
		kept_drop(&id, id > 0);
		if (id)
			kept_set_id(fd, 0);
	}
	if (later.n == later.room) {
		size_t room = later.room ? later.room * 2 : 64;
		struct closing_later *all = realloc(later.all, room * sizeof(*all));

		if (!all) { /* without memory it is closed at once: early is better than never */
			kept_drop(&id, id > 0);
			if (id)
				kept_set_id(fd, 0);
			how(data, fd);
			return;
		}
		later.all = all;
		later.room = room;
	}
	later.all[later.n++] = (struct closing_later){fd, how, data};
}

int kept_close(int fd)
{
	kept_close_by(fd, close_one, NULL);
	return -1;
}

/* Of a socket that listens nobody is told, and it would listen no more for others who have it, too:
 * a service manager, or the next broker. */
static void end_connection(int fd)
{
	socklen_t size = sizeof(int);
	int listens = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && !listens)
		shutdown(fd, SHUT_RDWR);
}

void kept_flush(size_t n)
{
	uint32_t ids[KEPT_AT_ONCE] = {0};
	size_t found = 0;
	bool all = true;

	if (n == 0) /* there may be no list yet */
		return;
	for (size_t i = 0; i < n; i++) {
		uint32_t id = kept_id(later.all[i].fd);

		if (id)
			ids[found++] = id;
		if (found == KEPT_AT_ONCE) {
			all &= kept_drop(ids, found);
			found = 0;
		}
	}
	all &= kept_drop(ids, found);
	/* If the keeper has some of them still, at least the peers of connections are told that
	 * these have ended; all else waits until the next broker closes it. */
	for (size_t i = 0; !all && i < n; i++)
		end_connection(later.all[i].fd);
	for (size_t i = 0; i < n; i++) {
		struct closing_later l = later.all[i];

		if (kept_id(l.fd))
			kept_set_id(l.fd, 0);
		l.how(l.data, l.fd);
		beat(); /* this may have taken long: it may have freed much memory */
	}
	later.n -= n;
	memmove(later.all, later.all + n, later.n * sizeof(*later.all));
}

size_t kept_waiting(void)
{
	return later.n;
}
