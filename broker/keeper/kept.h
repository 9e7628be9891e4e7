/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * What the keeper (broker/keeper/keeper.h) keeps for the next broker: descriptors, and mappings
 * that nobody could make again. Each has a number, by which records name it.
 *
 * The order is this: first the keeper has a descriptor, then a record names it, then a client knows
 * of it. On the way back, first no record names it any more, then the keeper lets it go, then the
 * broker closes it. So what the keeper has and no record names is nobody's.
 *
 * Without a keeper all numbers are 0, and nothing outlives the broker.
 */

#define KEPT_AT_ONCE 32 /* the most descriptors in a message */
#define KEPT_TEXT    256

/* Numbers that each broker knows. */
enum kept_fixed {
	KEPT_LISTENER = 1, /* the listening socket */
	KEPT_LOCK,         /* the lock of that socket's file, if this service has made the file */
	KEPT_LIFELINE,     /* the broker ends when this is closed; there need not be one */
	KEPT_CONFIG,       /* a memfd: the text of the configuration that is in force */
	KEPT_FIXED = KEPT_CONFIG
};

struct keeper;

/* Tells this process what it has of its keeper: the table, and the socket, which stays open until
 * the process ends. */
void kept_init(const struct keeper *k);
/* Returns the socket to the keeper, or -1: there is none that this process is to listen to. When it
 * can be read, and only then, kept_hear() is called. If the keeper is gone for good, and its deputy
 * with it, kept_hear() does not return, as the broker ends then. */
int kept_socket(void);
void kept_hear(void);

struct kept_history {
	pid_t keeper, deputy; /* process ids right now; 0: there is none */
	uint32_t brokers_died, brokers_upgraded, keepers_died; /* since the first keeper began */
};
void kept_history(struct kept_history *out);

/* Notes that this signal tells the broker to end, which has something to do before. If it dies over
 * that, the next one is told the same. */
void kept_told_to_end(int signal);
/* Ends the process, and lets the keeper know that the process ended by itself. */
void kept_end(int code) __attribute__((noreturn));
/* Says after how long without a beat (base/beat.h) the keeper takes this broker for one that hangs,
 * and kills it; 0: it never does. Until a broker says something it is KEPT_HANG_MS. */
#define KEPT_HANG_MS 15000
void kept_hang_after(unsigned ms);
/* Returns how often the keeper looks for beats, in milliseconds. */
unsigned kept_look_ms(void);
/* Tells the keeper that this broker serves: if it dies, the next one is started at once. */
void kept_serves(void);
/* Finds out whether another broker could go on, of the program that is on the disk now. Returns 0,
 * or negative errno and @why. It takes as long as a restart; this broker waits meanwhile. */
int kept_rehearse(char why[static KEPT_TEXT]);
/* Hands over to a broker of the program that has rehearsed, and ends this one, which has the
 * version @version. It returns only if the keeper cannot be told: negative errno. */
int kept_hand_over(const char *version);

/* Has the keeper keep @n descriptors, KEPT_AT_ONCE at most, and map @sizes bytes of each where that
 * is not 0; @sizes may be NULL. Returns 0, or negative errno: it keeps none. */
int kept_keep(const int *fds, const size_t *sizes, size_t n);
/* Has the keeper keep descriptors under the numbers of enum kept_fixed, in the place of what was
 * there. fds[0] is KEPT_LISTENER, and so on; where it is -1, what was there stays. The descriptors
 * stay the caller's to close. */
int kept_keep_fixed(const int fds[static KEPT_FIXED]);
/* Returns the number under which a descriptor is kept; 0: it is not. */
uint32_t kept_id(int fd);

/* Takes what an earlier broker has had kept under a number, which is this broker's from now on.
 * Returns the descriptor, or -1 if there is none or no memory; also if it was taken already, so
 * that nobody closes what is another's. This does not look whether the descriptor is what a record
 * takes it for: the record's checksum says that, or whoever reads a record without one. */
int kept_take(uint32_t id);
/* Takes it with its mapping; -1 as well when that does not have @size bytes. */
int kept_take_mapped(uint32_t id, size_t size, void **address);
/* Returns that descriptor, but does not take it. */
int kept_look(uint32_t id);
/* Drops and closes all that nobody has taken, which is nobody's, but for enum kept_fixed. */
void kept_sweep(void);

/* Closes a descriptor later, and has the keeper close its own first: kept_flush() does both, when
 * all that was said until now is committed. Returns -1. */
int kept_close(int fd);
/* Does the same for what close() alone does not close: @how closes it. */
void kept_close_by(int fd, void (*how)(void *data, int fd), void *data);
void kept_flush(size_t n); /* the first @n of those that wait */
size_t kept_waiting(void);
