/* SPDX-License-Identifier: MIT */
#ifndef WIRE_PACKET_H
#define WIRE_PACKET_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/fd.h"

/*
 * Packets over a SOCK_SEQPACKET socket: bytes and descriptors, no meaning.
 *
 * All return 0 on success, or negative errno. -EAGAIN: would block (only with `wait` false).
 * -EPIPE: the peer is gone. -EMSGSIZE: the packet or its descriptors were cut off by the kernel
 * (MSG_TRUNC, MSG_CTRUNC); nothing of it is delivered and the connection is not to be trusted any
 * more.
 */

/* Descriptors stay the caller's. */
int packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds, bool wait);

/* @size: in, the room at @data; out, the packet's size. @fds is empty before, owned after. */
int packet_receive(int socket, void *data, size_t *size, struct fd_list *fds, bool wait);

#endif
