/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_LISTENER_H
#define BROKER_CLIENT_LISTENER_H

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

/* From now on the kernel names this process to who asks whose a connection of it is (SO_PEERCRED):
 * a broker that hangs can be told by that. */
void listener_name_self(int socket);

/* Accepts clients from a listening socket, which it takes over. 0 or negative errno. */
int listener_new(struct broker *b, int socket, struct listener **out);
/* Listens, whether or not it is backing off. */
void listener_resume(struct listener *l);
/* NULL is fine. If this service has made the socket, nobody finds it any more: listener_remove().
 */
void listener_free(struct listener *l);
/* Its path, of a socket that there is no listener for. The lock of listener_bind() is still held,
 * so nobody can have put another one there. */
void listener_remove(int socket);

#endif
