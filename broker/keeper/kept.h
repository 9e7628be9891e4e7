/* SPDX-License-Identifier: MIT */
#ifndef BROKER_JOURNAL_KEPT_H
#define BROKER_JOURNAL_KEPT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Shared with the keeper, which alone writes it. */
struct kept_slot {
	_Atomic int fd; /* in the keeper, and so in brokers that it forks later; -1: it is free */
	void *address;  /* of its mapping; NULL: it has none */
	size_t size;
};

struct kept_table {
	uint32_t room;
	_Atomic uint32_t n; /* that were ever in use: those after it are free */
	struct kept_slot slots[];
};

enum kept_word { KEPT_KEEP = 1, KEPT_DROP, KEPT_SERVES };

#define KEPT_AT_ONCE  32 /* descriptors in a message */
#define KEPT_LISTENER 1  /* the number of the listening socket, which each broker takes */

struct kept_message {
	uint32_t word; /* enum kept_word; of an answer: 0 or errno */
	uint32_t n;
	uint32_t ids[KEPT_AT_ONCE];
	uint64_t sizes[KEPT_AT_ONCE]; /* bytes to be mapped for writing, 0: none */
};

/* The broker's end of the socket to the keeper, which is kept open to its end. */
void kept_init(struct kept_table *table, int socket);
/* It serves: if it dies from now on, the next one is started at once. */
void kept_serves(void);

/* The keeper has all of these from now on; @sizes may be NULL. 0 or negative errno. */
int kept_keep(const int *fds, const size_t *sizes, size_t n);
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
/* What nobody has taken is nobody's. */
void kept_sweep(void);

/* Closes it, and the keeper's before, once what was said until now is committed: kept_flush().
 * Returns -1. */
int kept_close(int fd);
/* The same for what is not closed by close() alone. */
void kept_close_by(int fd, void (*how)(void *data, int fd), void *data);
void kept_flush(size_t n); /* of those the first @n */
size_t kept_waiting(void);

#endif
