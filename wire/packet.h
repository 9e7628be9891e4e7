/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/system/descriptor.h"
#include "wire/wire.h"

/*
 * Packets over a SOCK_SEQPACKET socket: bytes and descriptors, without any meaning.
 *
 * Functions that return an int return 0 on success and a negative errno on failure, if their
 * comment says nothing else. -EAGAIN: the call would block (only with `wait` false). -EPIPE: the
 * peer is gone. -EMSGSIZE: the kernel cut off the packet or its descriptors (MSG_TRUNC,
 * MSG_CTRUNC); then nothing of it is delivered, and the connection must not be used any more.
 */

/* The descriptors that came with a packet. The list owns them, until fd_list_take() gives one to
 * the caller. */
struct fd_list {
	int fds[WIRE_FDS_MAX];
	size_t n;
};

/* Returns the @i-th descriptor, which the caller then owns; -1 when there is none, or it was taken
 * before. */
int fd_list_take(struct fd_list *list, size_t i);
/* Closes all descriptors that nobody has taken, and empties the list. */
void fd_list_close(struct fd_list *list);
#define _cleanup_fd_list_ __attribute__((cleanup(fd_list_close)))

/* Sends one packet. The descriptors stay the caller's. */
int packet_send(int socket, const void *data, size_t size, const int *fds, size_t n_fds, bool wait);

/* Receives one packet. @size is the room at @data before the call, and the size of the packet after
 * it. @fds must be empty before the call and owns the packet's descriptors after it. */
int packet_receive(int socket, void *data, size_t *size, struct fd_list *fds, bool wait);

/* The same without waiting, into memory that outlives the process: whenever that is killed, the
 * packet is still in the socket, or all of it is in @data and its size in @header->msg_len, which
 * is 0 before. @fds NULL: what it has of descriptors is thrown away, as packet_peek_own_fds() has
 * brought them. */
struct mmsghdr;
int packet_receive_into(int socket, struct mmsghdr *header, void *data, size_t room,
			struct fd_list *fds);

/*
 * Refusing descriptors that nobody asked for. To close a descriptor may take as long as its sender
 * likes, so it is better never to receive it. Since Linux 6.16 a socket can refuse descriptors; a
 * process that sends one to it gets EPERM.
 */

/* Refuses descriptors from now on. The connections that a listening socket accepts later inherit
 * this. */
void packet_refuse_fds(int socket);
/* Returns whether no descriptor has come and none can come, of a socket that was accepted just now
 * and refuses descriptors, if it does, since it exists. If it returns false, the socket refuses
 * descriptors from now on where the kernel can do that; and it switches off other control data, so
 * that packet_peek_fds() sees descriptors only. */
bool packet_is_without_fds(int socket);
/* Returns whether no descriptor can come any more. What came before that may be there still, until
 * packet_peek_fds() finds the socket empty. It switches off other control data as well. */
bool packet_refuses_fds(int socket);
/* Returns 1 if the next packet has descriptors, and 0 if it has none or if no more packets will
 * come. Leaves the packet in the socket, and does not wait. */
int packet_peek_fds(int socket);
/* From now on descriptors may come again, which packet_peek_fds() sees. */
void packet_accept_fds(int socket);
/* The descriptors of the next packet, which stays in the socket with its own: at most
 * PACKET_OWN_FDS. -EMSGSIZE: it has more than these. @fds owns those that it has in either case. */
#define PACKET_OWN_FDS 2
int packet_peek_own_fds(int socket, struct fd_list *fds);
