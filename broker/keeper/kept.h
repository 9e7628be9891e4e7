/* SPDX-License-Identifier: MIT */
#ifndef BROKER_KEEPER_KEPT_H
#define BROKER_KEEPER_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * What the keeper (broker/keeper/keeper.h) keeps for the next broker: descriptors, and mappings
 * that nobody could make again. Each has a number, which records say.
 *
 * The order is: the keeper has it, then a record says it, then a client knows it; and back: no
 * record says it any more, then the keeper lets it go, then the broker closes it. So what the
 * keeper has and no record names is nobody's.
 *
 * Without a keeper all numbers are 0, and nothing outlives the broker.
 */

#define KEPT_AT_ONCE 32 /* descriptors in a message */
#define KEPT_TEXT    256

/* Numbers that each broker knows. */
enum kept_fixed {
	KEPT_LISTENER = 1, /* the listening socket */
	KEPT_LOCK,         /* of that socket's file, if this service has made it */
	KEPT_LIFELINE,     /* what it ends with, if there is something */
	KEPT_CONFIG,       /* a memfd: the text of the configuration that is in force */
	KEPT_FIXED = KEPT_CONFIG
};

struct keeper;

/* The broker's end of the socket to the keeper, which is kept open to its end. */
void kept_init(const struct keeper *k);
/* That socket, or -1: when it can be read, and only then, kept_hear() is called. It does not return
 * when the keeper is gone for good, with its deputy: the broker has ended then. */
int kept_socket(void);
void kept_hear(void);

struct kept_history {
	pid_t keeper, deputy;                                  /* right now; 0: there is none */
	uint32_t brokers_died, brokers_upgraded, keepers_died; /* since the first keeper began */
};
void kept_history(struct kept_history *out);

/* It is told to end by this signal, and has something to do before: if it dies over that, the next
 * one is told the same. */
void kept_told_to_end(int signal);
/* Ends the process, so that the keeper knows that it did so itself. */
void kept_end(int code) __attribute__((noreturn));
/* A broker that does not call beat() (base/beat.h) for so long hangs, and the keeper kills it; 0:
 * it is never killed for that. Until a broker has said something else it is KEPT_HANG_MS. */
#define KEPT_HANG_MS 15000
void kept_hang_after(unsigned ms);
/* How often the keeper looks, in milliseconds. */
unsigned kept_look_ms(void);
/* It serves: if it dies from now on, the next one is started at once. */
void kept_serves(void);
/* Whether another broker could go on, of the program that is on the disk now: 0, or negative errno
 * and @why. It takes as long as a restart, in which nothing may happen. */
int kept_rehearse(char why[static KEPT_TEXT]);
/* The next broker is to be of that program, and this one, whose version is given, ends: it returns
 * only when the keeper cannot be told so. Negative errno. */
int kept_hand_over(const char *version);

/* The keeper has all of these from now on; @sizes may be NULL. 0 or negative errno. */
int kept_keep(const int *fds, const size_t *sizes, size_t n);
/* The same, all at once, under the numbers of enum kept_fixed, in the place of what was there.
 * fds[0] is KEPT_LISTENER, and so on; of -1 it stays as it is. They stay the caller's to close. */
int kept_keep_fixed(const int fds[static KEPT_FIXED]);
/* The number of a descriptor that is kept; 0: it is not. */
uint32_t kept_id(int fd);

/* Of a broker that comes after another one: what is behind a number is this one's from now on. The
 * descriptor, or -1: also of one that was taken already, so that nobody closes what is another's.
 * That it is what the record takes it for is not looked at here: that says the record's checksum,
 * or who reads one that has none. */
int kept_take(uint32_t id);
/* The same with its mapping; -1 as well when that has not @size bytes. */
int kept_take_mapped(uint32_t id, size_t size, void **address);
/* The same descriptor, which stays whose it is or will be. */
int kept_look(uint32_t id);
/* What nobody has taken is nobody's, but for enum kept_fixed. */
void kept_sweep(void);

/* Closes it, and the keeper's before, once what was said until now is committed: kept_flush().
 * Returns -1. */
int kept_close(int fd);
/* The same for what is not closed by close() alone. */
void kept_close_by(int fd, void (*how)(void *data, int fd), void *data);
void kept_flush(size_t n); /* of those the first @n */
size_t kept_waiting(void);

#endif
