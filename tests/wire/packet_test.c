/* SPDX-License-Identifier: MIT */

/*
 * The packet channel: whole packets or none, and descriptors that are always somebody's. Every
 * test counts the descriptors of this process before and after. What our own packet_send() refuses
 * to send is sent here by hand, as a hostile peer would.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "wire/packet.h"

#define KERNEL_FDS_MAX 253 /* SCM_MAX_FD */

static int ours, theirs;
static size_t open_before;

static size_t count_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	cr_assert(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void connect_pair(void)
{
	int pair[2];

	open_before = count_open();
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ours = pair[0];
	theirs = pair[1];
}

/* Criterion forgives assertions that fail in a .fini: here the process ends badly. */
static void nothing_is_left_open(void)
{
	size_t now;

	ours = fd_close(ours);
	theirs = fd_close(theirs);
	now = count_open();
	if (now == open_before)
		return;
	fprintf(stderr, "%zu descriptors were open before, now %zu\n", open_before, now);
	abort();
}

TestSuite(packet, .init = connect_pair, .fini = nothing_is_left_open, .timeout = 30);

/* One file, @n times: sent descriptors need not differ. */
static int *many(int fd, size_t n)
{
	static int fds[KERNEL_FDS_MAX];

	for (size_t i = 0; i < n; i++)
		fds[i] = fd;
	return fds;
}

/* sendmsg() without the manners of packet_send(). */
static void send_raw(int socket, const void *data, size_t size, size_t n_fds)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int) * KERNEL_FDS_MAX)];
	} control;
	struct iovec iov = {(void *)(uintptr_t)data, size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	int fd = eventfd(0, EFD_CLOEXEC);

	if (n_fds > 0) {
		memset(&control, 0, sizeof(control));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(&control.header), many(fd, n_fds), sizeof(int) * n_fds);
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
	}
	cr_assert_eq(sendmsg(socket, &msg, 0), (ssize_t)size, "%s", strerror(errno));
	fd_close(fd);
}

static char data[WIRE_PACKET_MAX];

static int receive(int socket, size_t room, size_t *size, struct fd_list *fds)
{
	*size = room;
	return packet_receive(socket, data, size, fds, false);
}

static void assert_refused(int socket, size_t room, int error)
{
	size_t size, before = count_open();
	struct fd_list fds;

	cr_assert_eq(receive(socket, room, &size, &fds), error);
	cr_assert_eq(fds.n, 0);
	cr_assert_eq(count_open(), before);
}

static bool is_same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

/* ------------------------------------------------------------------------------------------- */

Test(packet, packets_arrive_whole_and_apart)
{
	struct fd_list fds;
	size_t size;

	cr_assert_eq(packet_send(ours, "one", 3, NULL, 0, false), 0);
	cr_assert_eq(packet_send(ours, "four", 4, NULL, 0, false), 0);
	cr_assert_eq(receive(theirs, sizeof(data), &size, &fds), 0);
	cr_assert(size == 3 && memcmp(data, "one", 3) == 0);
	cr_assert_eq(receive(theirs, 4, &size, &fds), 0);
	cr_assert(size == 4 && memcmp(data, "four", 4) == 0);
	cr_assert_eq(fds.n, 0);
}

Test(packet, the_largest_packet_arrives)
{
	static char largest[WIRE_PACKET_MAX];
	struct fd_list fds;
	size_t size;

	memset(largest, 'x', sizeof(largest));
	cr_assert_eq(packet_send(ours, largest, sizeof(largest), NULL, 0, false), 0);
	cr_assert_eq(receive(theirs, sizeof(data), &size, &fds), 0);
	cr_assert_eq(size, sizeof(largest));
	cr_assert_eq(memcmp(data, largest, size), 0);
}

Test(packet, descriptors_arrive_in_order_and_close_on_exec)
{
	int sent[2] = {open("/dev/null", O_RDONLY), open("/proc/self/status", O_RDONLY)};
	_cleanup_fd_list_ struct fd_list fds;
	size_t size;

	cr_assert_eq(packet_send(ours, "x", 1, sent, 2, false), 0);
	cr_assert_eq(receive(theirs, 1, &size, &fds), 0);
	cr_assert_eq(fds.n, 2);
	for (size_t i = 0; i < 2; i++) {
		cr_assert_neq(fds.fds[i], sent[i]);
		cr_assert(is_same_file(fds.fds[i], sent[i]));
		cr_assert_eq(fcntl(fds.fds[i], F_GETFD), FD_CLOEXEC);
		/* still the sender's, as they were */
		cr_assert_eq(fcntl(sent[i], F_GETFD), 0);
		fd_close(sent[i]);
	}
}

Test(packet, the_most_descriptors_arrive_at_once)
{
	struct fd_list fds;
	size_t size, before = count_open();

	cr_assert_eq(packet_send(ours, "x", 1, many(theirs, WIRE_FDS_MAX), WIRE_FDS_MAX, false), 0);
	cr_assert_eq(receive(theirs, 1, &size, &fds), 0);
	cr_assert_eq(fds.n, WIRE_FDS_MAX);
	cr_assert_eq(count_open(), before + WIRE_FDS_MAX);
	for (size_t i = 0; i < fds.n; i++)
		cr_assert(is_same_file(fds.fds[i], theirs));
	fd_list_close(&fds);
	cr_assert_eq(fds.n, 0);
}

Test(packet, more_descriptors_than_the_most_are_not_sent)
{
	int *fds = many(theirs, WIRE_FDS_MAX + 1);

	cr_assert_eq(packet_send(ours, "x", 1, fds, WIRE_FDS_MAX + 1, false), -EINVAL);
	assert_refused(theirs, 1, -EAGAIN);
}

/* The kernel rounds the room for descriptors up: one more than fits may get through. */
Test(packet, one_descriptor_too_many_loses_all_of_them)
{
	for (size_t n = WIRE_FDS_MAX + 1; n <= WIRE_FDS_MAX + 4; n++) {
		send_raw(ours, "x", 1, n);
		assert_refused(theirs, 1, -EMSGSIZE);
	}
	send_raw(ours, "x", 1, KERNEL_FDS_MAX);
	assert_refused(theirs, 1, -EMSGSIZE);
}

Test(packet, descriptors_for_which_the_receiver_has_no_room_lose_the_packet)
{
	struct rlimit limit, old;

	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	send_raw(ours, "x", 1, 10);
	limit = old;
	limit.rlim_cur = (rlim_t)theirs + 4; /* some fit, not all */
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);

	size_t size = 1;
	struct fd_list fds;
	int r = packet_receive(theirs, data, &size, &fds, false);

	setrlimit(RLIMIT_NOFILE, &old);
	cr_assert_eq(r, -EMSGSIZE);
	cr_assert_eq(fds.n, 0);
}

Test(packet, a_packet_larger_than_the_room_loses_its_descriptors_too)
{
	send_raw(ours, "12345", 5, 3);
	assert_refused(theirs, 4, -EMSGSIZE);
	/* and nothing of it is taken for the next one */
	assert_refused(theirs, 4, -EAGAIN);
}

Test(packet, an_empty_packet_is_the_end_and_its_descriptors_are_closed)
{
	send_raw(ours, NULL, 0, 0);
	assert_refused(theirs, 4, -EPIPE);
	send_raw(ours, NULL, 0, 5);
	assert_refused(theirs, 4, -EPIPE);
}

Test(packet, credentials_of_the_sender_are_no_descriptors)
{
	_cleanup_fd_list_ struct fd_list fds;
	size_t size;

	cr_assert_eq(setsockopt(theirs, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int)), 0);
	cr_assert_eq(packet_send(ours, "x", 1, &ours, 1, false), 0);
	cr_assert_eq(receive(theirs, 1, &size, &fds), 0);
	cr_assert_eq(fds.n, 1);
	cr_assert(is_same_file(fds.fds[0], ours));
}

/* ------------------------------------------------------------------------------------------- */

Test(packet, a_peer_that_is_gone_is_a_broken_pipe_and_no_signal)
{
	signal(SIGPIPE, SIG_DFL); /* whoever started the tests may ignore it */
	ours = fd_close(ours);
	cr_assert_eq(packet_send(theirs, "x", 1, NULL, 0, false), -EPIPE);
	cr_assert_eq(packet_send(theirs, "x", 1, &theirs, 1, true), -EPIPE);
	assert_refused(theirs, 1, -EPIPE);
}

Test(packet, a_peer_that_left_without_reading_is_a_broken_pipe)
{
	cr_assert_eq(packet_send(theirs, "x", 1, NULL, 0, false), 0);
	ours = fd_close(ours);
	assert_refused(theirs, 1, -EPIPE);
	assert_refused(theirs, 1, -EPIPE);
}

Test(packet, what_a_peer_sent_before_it_left_is_still_there)
{
	struct fd_list fds;
	size_t size;

	cr_assert_eq(packet_send(ours, "last words", 10, NULL, 0, false), 0);
	ours = fd_close(ours);
	cr_assert_eq(receive(theirs, sizeof(data), &size, &fds), 0);
	cr_assert(size == 10 && memcmp(data, "last words", 10) == 0);
	assert_refused(theirs, 1, -EPIPE);
}

/* The kernel reports the reset once, ahead of what is still to be read. */
Test(packet, last_words_are_heard_though_the_peer_left_without_reading)
{
	struct fd_list fds;
	size_t size;

	cr_assert_eq(packet_send(theirs, "unread", 6, NULL, 0, false), 0);
	cr_assert_eq(packet_send(ours, "last words", 10, &theirs, 1, false), 0);
	ours = fd_close(ours);
	cr_assert_eq(receive(theirs, sizeof(data), &size, &fds), 0);
	cr_assert(size == 10 && memcmp(data, "last words", 10) == 0);
	fd_list_close(&fds);
	assert_refused(theirs, 1, -EPIPE);
}

Test(packet, a_socket_that_is_not_connected_is_a_broken_pipe)
{
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	cr_assert_eq(packet_send(fd, "x", 1, NULL, 0, false), -EPIPE);
}

Test(packet, nothing_to_receive_is_no_error_but_not_now)
{
	assert_refused(theirs, 1, -EAGAIN);
}

Test(packet, a_full_socket_takes_nothing_and_loses_nothing)
{
	struct fd_list fds;
	size_t sent = 0, got = 0, size;
	int r;

	while ((r = packet_send(ours, &sent, sizeof(sent), &ours, 1, false)) == 0)
		sent++;
	cr_assert(r == -EAGAIN || r == -ETOOMANYREFS, "%s", strerror(-r));
	cr_assert_gt(sent, 0);
	while (receive(theirs, sizeof(data), &size, &fds) == 0) {
		cr_assert(size == sizeof(got) && memcmp(data, &got, size) == 0);
		cr_assert_eq(fds.n, 1);
		fd_list_close(&fds);
		got++;
	}
	cr_assert_eq(got, sent);
	cr_assert_eq(packet_send(ours, "x", 1, NULL, 0, false), 0);
}

Test(packet, whoever_waits_gets_the_packet)
{
	struct fd_list fds;
	size_t size = sizeof(data);
	int status;
	pid_t child = fork();

	cr_assert_geq(child, 0);
	if (child == 0) {
		size_t room = 1;
		char go;

		/* waits in turn: neither side can be early */
		if (packet_receive(ours, &go, &room, &fds, true) < 0)
			_exit(1);
		_exit(packet_send(ours, "hello", 5, NULL, 0, true) < 0 ? 2 : 0);
	}
	cr_assert_eq(packet_send(theirs, "g", 1, NULL, 0, true), 0);
	cr_assert_eq(packet_receive(theirs, data, &size, &fds, true), 0);
	cr_assert(size == 5 && memcmp(data, "hello", 5) == 0);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
}

/* ------------------------------------------------------------------------------------------- */

Test(packet, a_descriptor_that_is_taken_stays_open_and_is_taken_once)
{
	struct fd_list fds;
	size_t size;
	int fd;

	cr_assert_eq(packet_send(ours, "x", 1, many(ours, 3), 3, false), 0);
	cr_assert_eq(receive(theirs, 1, &size, &fds), 0);
	fd = fd_list_take(&fds, 1);
	cr_assert_geq(fd, 0);
	cr_assert_eq(fd_list_take(&fds, 1), -1);
	cr_assert_eq(fd_list_take(&fds, 3), -1);
	fd_list_close(&fds);
	cr_assert_geq(fcntl(fd, F_GETFD), 0);
	cr_assert_eq(fd_close(fd), -1);
	cr_assert_lt(fcntl(fd, F_GETFD), 0);
}

Test(packet, closing_keeps_errno_and_copies_are_close_on_exec)
{
	int copy = fd_dup(ours);

	cr_assert_geq(copy, 3);
	cr_assert_eq(fcntl(copy, F_GETFD), FD_CLOEXEC);
	errno = ENOTTY;
	cr_assert_eq(fd_close(copy), -1);
	cr_assert_eq(fd_close(-1), -1);
	cr_assert_eq(errno, ENOTTY);
	cr_assert_eq(fd_dup(-1), -EBADF);
}

/* ------------------------------------------------------------------------------------------- */
/* Those that nobody has asked for                                                             */

Test(packet, a_look_says_whether_descriptors_come_and_takes_none)
{
	struct fd_list fds;
	char byte;
	size_t size = 1, before;
	int fd = STDERR_FILENO;

	cr_assert_eq(packet_peek_fds(ours), -EAGAIN);
	cr_assert_eq(packet_send(theirs, "a", 1, NULL, 0, false), 0);
	cr_assert_eq(packet_send(theirs, "b", 1, &fd, 1, false), 0);
	before = count_open();
	cr_assert_eq(packet_peek_fds(ours), 0);
	cr_assert_eq(packet_receive(ours, &byte, &size, &fds, false), 0);
	cr_assert_eq(byte, 'a');
	for (int i = 0; i < 3; i++)
		cr_assert_eq(packet_peek_fds(ours), 1);
	cr_assert_eq(count_open(), before);
	cr_assert_eq(packet_receive(ours, &byte, &size, &fds, false), 0);
	cr_assert(byte == 'b' && fds.n == 1);
	fd_list_close(&fds);
	theirs = fd_close(theirs);
	cr_assert_eq(packet_peek_fds(ours), 0);
}

Test(packet, a_socket_is_without_descriptors_if_none_had_come_before_it_refused_them)
{
	int fd = STDERR_FILENO;

	if (packet_is_without_fds(ours)) {
		cr_assert_eq(packet_send(theirs, "a", 1, &fd, 1, false), -EPERM);
		cr_assert_eq(packet_send(theirs, "a", 1, NULL, 0, false), 0);
		cr_assert(packet_is_without_fds(ours));
	} else { /* an older kernel */
		cr_assert_eq(packet_send(theirs, "a", 1, &fd, 1, false), 0);
		cr_assert_not(packet_is_without_fds(ours));
	}
}

Test(packet, a_socket_to_which_somebody_has_sent_already_is_not_known_to_be_without)
{
	int fd = STDERR_FILENO;

	cr_assert_eq(packet_send(theirs, "a", 1, &fd, 1, false), 0);
	cr_assert_not(packet_is_without_fds(ours));
	cr_assert_eq(packet_peek_fds(ours), 1);
}

Test(packet, a_socket_that_refuses_descriptors_by_now_may_have_some)
{
	struct fd_list fds;
	int fd = STDERR_FILENO;
	size_t size = 1;
	char byte;

	cr_assert_eq(packet_send(theirs, "a", 1, &fd, 1, false), 0);
	cr_assert_not(packet_is_without_fds(ours));
	if (!packet_refuses_fds(ours))
		cr_skip("the kernel is older than 6.16");
	cr_assert_eq(packet_peek_fds(ours), 1);
	cr_assert_eq(packet_receive(ours, &byte, &size, &fds, false), 0);
	fd_list_close(&fds);
	cr_assert_eq(packet_peek_fds(ours), -EAGAIN);
	cr_assert_eq(packet_send(theirs, "a", 1, &fd, 1, false), -EPERM);
}
