/* SPDX-License-Identifier: MIT */

/*
 * The listening socket. Two things can go wrong that are not the broker's fault: the path may be
 * taken, by a live broker or by the remains of a dead one, and descriptors may run out. The lock
 * file decides the first without a race (the kernel drops the lock with its holder); a reserve
 * descriptor lets the second be told to whoever connects, instead of spinning on EMFILE.
 *
 * Whose connection it is shows only once it is accepted. So those who come have a turn together, as
 * if they were one user: however many there are, each user is served in between. What they cost is
 * counted for their own user as well.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <event2/event.h>
#include <share/share.h>

#include "base/system/descriptor.h"
#include "broker/accounts/turns.h"
#include "broker/broker.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/conversation.h"
#include "broker/client/listener.h"
#include "broker/keeper/kept.h"
#include "broker/log/log.h"
#include "broker/socket/closer.h"
#include "wire/packet.h"

#define BACKLOG     4096
#define BACK_OFF_MS 50

struct listener {
	struct broker *broker;
	struct user_turns turns; /* the turn that those who connect have together */
	struct turn turn;
	struct event *back_off;
	struct log_rate refusals;
	int socket;
	struct closing *closing; /* for the next one who connects */
	int reserve;             /* given up to accept and refuse when there are no others */
};

static int lock(const char *path, int *out)
{
	char lock_path[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];
	int fd;

	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		int r = errno == EWOULDBLOCK ? -EADDRINUSE : -errno;

		fd_close(fd);
		return r;
	}
	*out = fd;
	return 0;
}

/* Removes the socket of a broker that is gone. As the lock is held, no broker listens there, but
 * another program may. */
static int remove_stale(const char *path, const struct sockaddr_un *address)
{
	_cleanup_fd_ int probe = -1;
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	/* not waited for: a program that has no room for one more listens all the same */
	probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe < 0)
		return -errno;
	if (connect(probe, (const struct sockaddr *)address, sizeof(*address)) == 0 ||
	    errno == EAGAIN)
		return -EADDRINUSE;
	if (errno != ECONNREFUSED)
		return errno == EPROTOTYPE ? -EADDRINUSE : -errno;
	log_info("replacing the stale socket %s", path);
	return unlink(path) < 0 ? -errno : 0;
}

/* A socket in the file system gets the mode that the descriptor has, less the umask. To change the
 * mode by the path afterwards would change whatever somebody has put there meanwhile. */
static int bind_with_mode(int fd, const struct sockaddr_un *address, mode_t mode)
{
	mode_t before;
	int r;

	if (fchmod(fd, mode) < 0)
		return -errno;
	before = umask(0);
	r = bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -errno : 0;
	umask(before);
	return r;
}

static int bind_and_listen(const struct sockaddr_un *address, mode_t mode)
{
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int taken, r;

	if (fd < 0)
		return -errno;
	r = bind_with_mode(fd, address, mode);
	if (r < 0)
		return r;
	/* now, as whoever connects has a socket that is as this one was then */
	packet_refuse_fds(fd);
	if (listen(fd, BACKLOG) < 0)
		return -errno;
	taken = fd;
	fd = -1;
	return taken;
}

int listener_bind(const char *path, mode_t mode, int *lock_fd, char *error, size_t error_size)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int r;

	r = strlen(path) < sizeof(address.sun_path) ? 0 : -ENAMETOOLONG;
	if (r == 0) {
		strcpy(address.sun_path, path);
		r = lock(path, lock_fd);
	}
	if (r == 0) {
		r = remove_stale(path, &address);
		if (r == 0)
			r = bind_and_listen(&address, mode);
		if (r < 0)
			*lock_fd = fd_close(*lock_fd);
	}
	if (r == -EADDRINUSE)
		snprintf(error, error_size, "%s: a broker is serving there already", path);
	else if (r == -EEXIST)
		snprintf(error, error_size, "%s: there is a file that is no socket", path);
	else if (r < 0)
		snprintf(error, error_size, "%s: %s", path, strerror(-r));
	return r;
}

void listener_name_self(int socket)
{
	listen(socket, BACKLOG);
}

static void back_off(struct listener *l)
{
	turn_await(&l->turn, 0);
	broker_set_timer(l->broker, l->back_off, BACK_OFF_MS);
}

void listener_resume(struct listener *l)
{
	turn_await(&l->turn, EPOLLIN);
}

static void on_back_off(evutil_socket_t fd, short what, void *data)
{
	(void)fd, (void)what;
	listener_resume(data);
}

/* There is no descriptor for a client: tells one client so, and leaves the others in the backlog
 * for a while. */
static void refuse_one(struct listener *l)
{
	char why[128], line[160];
	int fd;

	snprintf(why, sizeof(why), "the broker has no descriptor left of %zu (RLIMIT_NOFILE)",
		 l->broker->n_descriptors);
	snprintf(line, sizeof(line), "a client was refused: %s", why);
	l->reserve = fd_close(l->reserve);
	fd = accept4(l->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		connection_farewell(fd, SHARE_EQUOTA, why);
		if (packet_is_without_fds(fd)) {
			fd_close(fd);
		} else {
			closing_start(l->closing, fd);
			l->closing = NULL;
		}
	}
	l->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
	log_refusal(&l->refusals, LOG_UID_UNKNOWN, line);
	back_off(l);
}

/* Whether a client may be accepted: only if there is what it takes to close its socket, and not
 * while so many are being closed that there would be no descriptors for others. */
static bool is_ready(struct listener *l)
{
	if (!l->closing)
		l->closing = closing_new(l->broker->clients->closer);
	return l->closing &&
	       closer_waiting(l->broker->clients->closer) <= l->broker->clients->max_closing;
}

/* Accepts one client at a time, as whose turn it is shows only then. */
static void on_turn(struct turn *turn, uint32_t events)
{
	struct listener *l = (void *)((char *)turn - offsetof(struct listener, turn));
	struct closing *closing = NULL;
	int fd;

	(void)events;
	if (!is_ready(l)) {
		back_off(l);
		return;
	}
	fd = accept4(l->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		if (!packet_is_without_fds(fd)) {
			closing = l->closing;
			l->closing = NULL;
		}
		client_accept(l->broker, fd, closing);
	} else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
		refuse_one(l);
	}
}

static void start_closing(void *closing, int fd)
{
	closing_start_other(closing, fd);
}

/* Clients that nobody has accepted may have sent descriptors, so that a thread closes the socket.
 * It is not shut down: it may be a service manager's, or the next broker's, as well. */
static void stop_listening(struct listener *l)
{
	turn_end(&l->turn);
	user_turns_deinit(&l->turns);
	broker_free_event(l->back_off);
	if (!l->closing)
		l->closing = closing_new(l->broker->clients->closer);
	if (l->closing)
		kept_close_by(l->socket, start_closing, l->closing);
	else
		kept_close(l->socket);
	fd_close(l->reserve);
	free(l);
}

static int begin(struct listener *l, struct broker *b, int socket)
{
	l->broker = b;
	l->socket = socket;
	packet_refuse_fds(socket);
	l->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
	l->back_off = event_new(b->base, -1, 0, on_back_off, l);
	l->turn.serve = on_turn;
	l->turns.is_nobodys = true;
	return l->back_off ? turn_start(&b->clients->turns, &l->turns, &l->turn, socket, EPOLLIN)
			   : -ENOMEM;
}

int listener_new(struct broker *b, int socket, struct listener **out)
{
	struct listener *l = calloc(1, sizeof(*l));
	int r = l ? begin(l, b, socket) : -ENOMEM;

	if (r == 0) {
		*out = l;
		return 0;
	}
	/* a broker that comes after another one leaves the path to the next */
	if (b->made_socket && b->generation == 1)
		listener_remove(socket);
	if (l)
		stop_listening(l);
	else
		fd_close(socket);
	return r;
}

void listener_remove(int socket)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t size = sizeof(address) - 1;

	if (getsockname(socket, (struct sockaddr *)&address, &size) == 0 && address.sun_path[0])
		unlink(address.sun_path);
}

void listener_free(struct listener *l)
{
	if (!l)
		return;
	if (l->broker->made_socket)
		listener_remove(l->socket);
	stop_listening(l);
}
