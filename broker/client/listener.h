/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct broker;
struct listener;

/*
 * Binds and listens at @path, replacing a stale socket. Keeps a lock file beside it as long as the
 * broker lives. Returns the socket, or negative errno with a sentence in @error: -EADDRINUSE when
 * a live broker is there. socket_path_check() has said that the path is good.
 */
int listener_bind(const char *path, mode_t mode, int *lock_fd, char *error, size_t error_size);

/* Has the kernel name this process, from now on, to a client that wants to know who serves its
 * connection (SO_PEERCRED). So it can be told which broker hangs. */
void listener_name_self(int socket);

/* Accepts clients from a listening socket, which it takes over. 0 or negative errno. */
int listener_new(struct broker *b, int socket, struct listener **out);
/* Listens again, even if it is backing off. */
void listener_resume(struct listener *l);
/* Stops listening; NULL is fine. If a broker has made the socket, and not the system, nobody finds
 * it any more: see listener_remove(). */
void listener_free(struct listener *l);
/* Removes the path of a socket that has no listener. The lock of listener_bind() is still held, so
 * nobody can have put another socket there. */
void listener_remove(int socket);
