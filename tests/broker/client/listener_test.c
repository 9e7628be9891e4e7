/* SPDX-License-Identifier: MIT */

/* Making the socket: beside others who want the same place, and whatever they put there. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <event2/event.h>

#include "base/system/descriptor.h"
#include "broker/broker.h"
#include "broker/client/clients.h"
#include "broker/client/listener.h"
#include "broker/keeper/kept.h"
#include "broker/socket/closer.h"
#include "wire/packet.h"

static char directory[64], path[80], lock_path[96], secret[80];
static char error[256];
static int lock_fd = -1;

static void start(void)
{
	strcpy(directory, "/tmp/share-listener-XXXXXX");
	cr_assert_not_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/socket", directory);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	snprintf(secret, sizeof(secret), "%s/secret", directory);
}

static void stop(void)
{
	unlink(path);
	unlink(lock_path);
	unlink(secret);
	rmdir(directory);
}

TestSuite(listener, .init = start, .fini = stop, .timeout = 30);

static mode_t mode_of(const char *file)
{
	struct stat st;

	cr_assert(stat(file, &st) == 0);
	return st.st_mode & 07777;
}

/* Somebody who is quicker: where a socket was bound there is a link at once. */
static const char *link_to;
int __real_bind(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t size);

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t size)
{
	int r = __real_bind(fd, address, size);

	if (r == 0 && link_to)
		cr_assert(unlink(path) == 0 && symlink(link_to, path) == 0);
	return r;
}

Test(listener, the_socket_has_the_mode_that_is_asked_for_whatever_the_umask)
{
	static const mode_t modes[] = {0600, 0660, 0666, 0777};

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		umask(i % 2 ? 0077 : 0);
		int fd = listener_bind(path, modes[i], &lock_fd, error, sizeof(error));

		cr_assert(fd >= 0, "%s", error);
		cr_assert_eq(mode_of(path), modes[i]);
		cr_assert_eq(umask(0), i % 2 ? 0077 : 0);
		close(fd);
		close(lock_fd);
		cr_assert(unlink(path) == 0);
	}
}

Test(listener, a_link_that_somebody_puts_there_changes_the_mode_of_nothing_else)
{
	FILE *f = fopen(secret, "we");
	int fd;

	cr_assert(f && fclose(f) == 0 && chmod(secret, 0600) == 0);
	link_to = secret;
	fd = listener_bind(path, 0666, &lock_fd, error, sizeof(error));
	cr_assert_eq(mode_of(secret), 0600);
	if (fd >= 0)
		close(fd);
}

/* Of another program, or of a broker whose lock somebody has removed. */
Test(listener, one_that_listens_and_has_no_room_for_more_is_left_alone)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int other = socket(AF_UNIX, SOCK_SEQPACKET, 0), n = 0;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	cr_assert(bind(other, (struct sockaddr *)&address, sizeof(address)) == 0);
	cr_assert(listen(other, 0) == 0);
	while (connect(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0),
		       (struct sockaddr *)&address, sizeof(address)) == 0)
		cr_assert_lt(n++, 100);
	cr_assert_eq(errno, EAGAIN);
	cr_assert_eq(listener_bind(path, 0666, &lock_fd, error, sizeof(error)), -EADDRINUSE);
	cr_assert_not_null(strstr(error, "a broker is serving there already"));
	cr_assert_eq(access(path, F_OK), 0);
}

/* The system has no room for what a broker waits for. */
static bool no_room;
int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
int __real_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
	struct sockaddr_un address;
	socklen_t size = sizeof(address);

	if (!no_room || getsockname(fd, (struct sockaddr *)&address, &size) < 0)
		return __real_epoll_ctl(epoll, what, fd, event);
	errno = ENOSPC;
	return -1;
}

static void expect_path(unsigned generation, bool is_there)
{
	struct clients clients = {.n = 0};
	struct broker b = {.clients = &clients, .made_socket = true, .generation = generation};
	struct listener *l;
	int fd = listener_bind(path, 0666, &lock_fd, error, sizeof(error));

	no_room = true;
	b.base = event_base_new();
	cr_assert(fd >= 0 && turns_init(&clients.turns, b.base) == 0);
	cr_assert(closer_new(&b, &clients.closer) == 0);
	cr_assert_eq(listener_new(&b, fd, &l), -ENOSPC);
	kept_flush(kept_waiting());
	cr_assert_eq(access(path, F_OK) == 0, is_there);
	close(lock_fd);
	closer_free(clients.closer);
	turns_deinit(&clients.turns);
	event_base_free(b.base);
}

Test(listener, whose_broker_cannot_wait_for_it_leaves_the_path_to_the_next_broker_if_there_is_one)
{
	expect_path(1, false);
	expect_path(2, true);
}

/* Whoever has connected stays in the backlog. */
static unsigned n_accepts;
int __wrap_accept4(int socket, struct sockaddr *address, socklen_t *size, int flags);

int __wrap_accept4(int socket, struct sockaddr *address, socklen_t *size, int flags)
{
	(void)socket, (void)address, (void)size, (void)flags;
	n_accepts++;
	errno = EAGAIN;
	return -1;
}

/* What would be closed by a thread. */
static int left_to_thread = -1;
void __wrap_closing_start_other(struct closing *closing, int fd);

void __wrap_closing_start_other(struct closing *closing, int fd)
{
	closing_free(closing);
	left_to_thread = fd;
	close(fd);
}

static void connects_and_sends(int descriptor)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), r;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	cr_assert(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	r = packet_send(fd, "a", 1, &descriptor, 1, false);
	cr_assert(r == 0 || r == -EPERM);
	close(fd);
}

/* A broker begins and ends with somebody in the backlog of its socket, which it has looked at @once
 * or not at all. */
static void begin_and_end(int fd, bool once)
{
	struct clients clients = {.n = 0};
	struct broker b = {.clients = &clients, .generation = 1};
	struct listener *l;

	b.base = event_base_new();
	cr_assert(turns_init(&clients.turns, b.base) == 0);
	cr_assert(closer_new(&b, &clients.closer) == 0);
	cr_assert(listener_new(&b, fd, &l) == 0);
	cr_expect_eq(clients.turns.n_users, 0, "a user by itself is alone beside a listener");
	while (once && n_accepts == 0)
		cr_assert(event_base_loop(b.base, EVLOOP_ONCE) == 0);
	listener_free(l);
	kept_flush(kept_waiting());
	cr_assert_eq(left_to_thread, fd);
	closer_free(clients.closer);
	turns_deinit(&clients.turns);
	event_base_free(b.base);
}

/* Whether it let descriptors in or not, which the broker before may have seen to meanwhile. */
Test(listener, whose_broker_ends_is_closed_by_a_thread)
{
	for (int once = 0; once < 2; once++) {
		int fd = listener_bind(path, 0666, &lock_fd, error, sizeof(error));

		cr_assert(fd >= 0, "%s", error);
		connects_and_sends(STDERR_FILENO);
		begin_and_end(fd, once);
		close(lock_fd);
		cr_assert(unlink(path) == 0);
	}
}

/* Whoever connects meanwhile waits there for the next broker. */
Test(listener, a_service_managers_socket_listens_when_a_broker_has_ended)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_fd_ int managers =
	    socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	cr_assert(bind(managers, (struct sockaddr *)&address, sizeof(address)) == 0);
	cr_assert(listen(managers, 4) == 0);
	for (int i = 0; i < 2; i++) {
		connects_and_sends(STDERR_FILENO);
		begin_and_end(fd_dup(managers), true);
	}
	connects_and_sends(STDERR_FILENO);
}
