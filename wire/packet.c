/* SPDX-License-Identifier: MIT */

/*
 * Sends and receives packets over a socket. Only this file passes descriptors between processes. It
 * must not look into a packet.
 */

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "wire/packet.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif
#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76 /* Linux 6.5 */
#endif

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int) * WIRE_FDS_MAX)];
};

int fd_list_take(struct fd_list *list, size_t i)
{
	int fd;

	if (i >= list->n)
		return -1;
	fd = list->fds[i];
	list->fds[i] = -1;
	return fd;
}

void fd_list_close(struct fd_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		list->fds[i] = fd_close(list->fds[i]);
	list->n = 0;
}

static ssize_t send_with_fds(int socket, const void *data, size_t size, const int *fds,
			     size_t n_fds, int flags)
{
	union control control;
	struct iovec iov = {(void *)(uintptr_t)data, size};
	const struct msghdr msg = {
	    .msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = control.bytes,
	    .msg_controllen = CMSG_SPACE(sizeof(int) * n_fds),
	};

	memset(&control, 0, CMSG_SPACE(sizeof(int) * n_fds));
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
	memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * n_fds);
	return sendmsg(socket, &msg, flags);
}

int packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds, bool wait)
{
	int flags = MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT);
	ssize_t n;

	if (n_fds > WIRE_FDS_MAX)
		return -EINVAL;
	/* send() costs the kernel 0.2 us less: it has no header to copy and to check. */
	do
		n = n_fds ? send_with_fds(socket, data, size, fds, n_fds, flags)
			  : send(socket, data, size, flags);
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		return 0;
	return errno == ECONNRESET || errno == ENOTCONN ? -EPIPE : -errno;
}

/* Puts all descriptors of @msg into @fds. Returns false when there were more than the list holds,
 * and closes those: for alignment the kernel may have room for one more than was asked for. Other
 * control data that the socket may add (credentials, say) is ignored. */
static bool collect_fds(struct msghdr *msg, struct fd_list *fds)
{
	bool all = true;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (fds->n < WIRE_FDS_MAX)
				fds->fds[fds->n++] = fd;
			else
				all = false, fd_close(fd);
		}
	}
	return all;
}

/* What was received into @iov: 0, or -EMSGSIZE or -EPIPE, and nothing is in @fds then. */
static int take_received(struct msghdr *msg, ssize_t n, struct fd_list *fds)
{
	const int cut_off = fds ? MSG_TRUNC | MSG_CTRUNC : MSG_TRUNC;
	bool whole = (!fds || collect_fds(msg, fds)) && !(msg->msg_flags & cut_off);

	/* An empty packet cannot be told from the end of the connection, and nobody here sends
	 * one. */
	if (whole && n > 0)
		return 0;
	if (fds)
		fd_list_close(fds);
	return whole ? -EPIPE : -EMSGSIZE;
}

/* recvmmsg() is what writes the size itself, before the process can be killed. */
int packet_receive_into(int socket, struct mmsghdr *header, void *data, size_t room,
			struct fd_list *fds)
{
	struct iovec iov = {data, room};
	union control control;
	int reset = 0, n;

	if (fds)
		fds->n = 0;
	do {
		header->msg_len = 0;
		header->msg_hdr = (struct msghdr){
		    .msg_iov = &iov,
		    .msg_iovlen = 1,
		    .msg_control = fds ? control.bytes : NULL,
		    .msg_controllen = fds ? sizeof(control) : 0,
		};
		n = recvmmsg(socket, header, 1, MSG_CMSG_CLOEXEC | MSG_DONTWAIT, NULL);
	} while (n < 0 && (errno == EINTR || (errno == ECONNRESET && !reset++)));
	if (n < 0)
		return errno == ECONNRESET || errno == ENOTCONN ? -EPIPE : -errno;
	return take_received(&header->msg_hdr, header->msg_len, fds);
}

int packet_receive(int socket, void *data, size_t *size, struct fd_list *fds, bool wait)
{
	struct iovec iov = {data, *size};
	union control control;
	struct msghdr msg = {
	    .msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = control.bytes,
	    .msg_controllen = sizeof(control),
	};
	int reset = 0, r;
	ssize_t n;

	fds->n = 0;
	/* If the peer closed its socket without having read everything, the kernel reports
	 * ECONNRESET once, ahead of the last packets that the peer sent. */
	do
		n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
	while (n < 0 && (errno == EINTR || (errno == ECONNRESET && !reset++)));
	if (n < 0)
		return errno == ECONNRESET || errno == ENOTCONN ? -EPIPE : -errno;
	r = take_received(&msg, n, fds);
	if (r == 0)
		*size = (size_t)n;
	return r;
}

static void turn_off(int socket, int option)
{
	const int off = 0;

	setsockopt(socket, SOL_SOCKET, option, &off, sizeof(off));
}

void packet_refuse_fds(int socket)
{
	turn_off(socket, SO_PASSRIGHTS);
}

/* packet_peek_fds() could not tell these kinds of control data from descriptors. */
static void turn_off_others(int socket)
{
	turn_off(socket, SO_PASSCRED);
	turn_off(socket, SO_PASSSEC);
	turn_off(socket, SO_PASSPIDFD);
}

void packet_accept_fds(int socket)
{
	const int on = 1;

	turn_off_others(socket);
	setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &on, sizeof(on));
}

/* -1 where the kernel knows no such option. */
static int lets_fds_in(int socket)
{
	int value = 1;
	socklen_t size = sizeof(value);

	return getsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &value, &size) == 0 ? value : -1;
}

bool packet_refuses_fds(int socket)
{
	turn_off_others(socket);
	return lets_fds_in(socket) == 0;
}

bool packet_is_without_fds(int socket)
{
	int lets_in = lets_fds_in(socket);
	char byte;

	if (lets_in == 0)
		return true;
	if (lets_in > 0) {
		/* A descriptor may have come before the option was set, so there must be no packet
		 * yet. */
		turn_off(socket, SO_PASSRIGHTS);
		if (recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN)
			return true;
	}
	turn_off_others(socket);
	return false;
}

/* There is no room for control data here, so the kernel says by MSG_CTRUNC whether the packet has
 * any. Looking with MSG_PEEK closes no descriptor for good: the packet still holds it. */
int packet_peek_fds(int socket)
{
	struct msghdr msg = {0};
	int reset = 0;
	ssize_t n;

	do
		n = recvmsg(socket, &msg, MSG_PEEK | MSG_DONTWAIT);
	while (n < 0 && (errno == EINTR || (errno == ECONNRESET && !reset++)));
	if (n < 0)
		return errno == ECONNRESET || errno == ENOTCONN ? -EPIPE : -errno;
	return (msg.msg_flags & MSG_CTRUNC) != 0;
}

/* The packet keeps its descriptors until it is received, so none of these is the last of its file
 * by itself. */
int packet_peek_own_fds(int socket, struct fd_list *fds)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int) * PACKET_OWN_FDS)];
	} control;
	struct msghdr msg = {.msg_control = control.bytes, .msg_controllen = sizeof(control)};
	ssize_t n;

	fds->n = 0;
	do
		n = recvmsg(socket, &msg, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (collect_fds(&msg, fds) && !(msg.msg_flags & MSG_CTRUNC))
		return 0;
	return -EMSGSIZE;
}
