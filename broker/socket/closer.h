/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Threads that close sockets in which strangers' descriptors may lie, and such descriptors
 * themselves, and that know nothing else. The files of these descriptors decide how long that
 * takes. No thread runs before there is something to close.
 */
struct broker;
struct closer;

/* What it takes to close one socket, made before there is one, as it must not fail then. */
struct closing;

/* 0 or -ENOMEM. */
int closer_new(struct broker *b, struct closer **out);
/* Frees it and waits for nothing: what is not closed by then is closed by the end of the process at
 * the latest. NULL is fine. */
void closer_free(struct closer *c);

struct closing *closing_new(struct closer *c); /* NULL without memory */
struct closing *closing_new_for(struct closer *c, uid_t uid);
void closing_free(struct closing *closing); /* frees one that was not needed; NULL is fine */

/* Has a thread close @fd, and takes both over. The user at the other end never gets more than one
 * of the threads. */
void closing_start(struct closing *closing, int fd);
/* The same for a socket of which the keeper has a copy, which is closed before. */
void closing_start_kept(struct closing *closing, int fd);
/* The same for any descriptor that came from the user for whom @closing was made. */
void closing_start_other(struct closing *closing, int fd);

/* How many are not closed yet. */
size_t closer_waiting(struct closer *c);
/* Whether more than @most of them came from this user. */
bool closer_is_behind(struct closer *c, uid_t uid, size_t most);
