/* SPDX-License-Identifier: MIT */
#ifndef WIRE_PACKET_H
#define WIRE_PACKET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/descriptor.h"
#include "wire/wire.h"

/*
 * Packets over a SOCK_SEQPACKET socket: bytes and descriptors, no meaning.
 *
 * All return 0 on success, or negative errno. -EAGAIN: would block (only with `wait` false).
 * -EPIPE: the peer is gone. -EMSGSIZE: the packet or its descriptors were cut off by the kernel
 * (MSG_TRUNC, MSG_CTRUNC); nothing of it is delivered and the connection is not to be trusted any
 * more.
 */

/* What came with a packet. Whoever takes one owns it; the rest is closed with the list. */
struct fd_list {
	int fds[WIRE_FDS_MAX];
	size_t n;
};

/* The @i-th descriptor, now the caller's; -1 when there is none (any more). */
int fd_list_take(struct fd_list *list, size_t i);
void fd_list_close(struct fd_list *list);
#define _cleanup_fd_list_ __attribute__((cleanup(fd_list_close)))

/* Descriptors stay the caller's. */
int packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds, bool wait);

/* @size: in, the room at @data; out, the packet's size. @fds is empty before, owned after. */
int packet_receive(int socket, void *data, size_t *size, struct fd_list *fds, bool wait);

/*
 * For those who get descriptors that they have not asked for. To close one may take as long as who
 * sent it likes, so it is better not to have it: who sends one to a socket that refuses them gets
 * EPERM, since Linux 6.16.
 */

/* From now on; a listening socket does so for all who connect to it later. */
void packet_refuse_fds(int socket);
/* Whether there is none and none can come. If not, descriptors are refused from now on where that
 * is possible, and nothing but them comes beside the bytes of a packet. */
bool packet_is_without_fds(int socket);
/* 1: the next packet has descriptors; 0: it has none, or there will be no more packets. Leaves it
 * where it is, and does not wait. */
int packet_peek_fds(int socket);

#endif
