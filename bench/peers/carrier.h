/* SPDX-License-Identifier: MIT */
#ifndef BENCH_PEERS_CARRIER_H
#define BENCH_PEERS_CARRIER_H

#include <stdbool.h>
#include <stddef.h>

#include <share/share.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Ways to get a payload into another process, each used as its makers mean it to be: a payload is
 * written where the carrier has room for it and read where the carrier has put it, so whoever can
 * do without a copy does.
 *
 * A pair of ends carries payloads of one size from the first process to the second, and answers of
 * CARRIER_ANSWER bytes back.
 */
#define CARRIER_ANSWER 8

struct carrier_setup {
	const char *folder; /* of this pair's own */
	size_t size;        /* of a payload */
	unsigned window;    /* payloads that may be under way */
	share_client *client;
	const char *pool;
};

struct carrier {
	const char *name;
	const char *what;
	/* Why it cannot be used for this, or NULL; asked in the first process. May be NULL. */
	const char *(*cannot)(const struct carrier_setup *setup);
	/* The ends are opened one after the other, that of the first process (which sends the
	 * payloads) first, and closed in the same order. What goes wrong ends the program. */
	void *(*open)(const struct carrier_setup *setup, bool first);
	void (*close)(void *end);
	/* Where the next one is to be written, a payload or an answer. */
	void *(*prepare)(void *end);
	void (*send)(void *end); /* what was prepared */
	/* Waits for the next one. It is good until release(). */
	const void *(*receive)(void *end);
	void (*release)(void *end);
};

/* Each is NULL where this was built without it. */
struct carrier_choice {
	const char *name;
	const char *package; /* of Debian's that it takes */
	const struct carrier *carrier;
};
#define CARRIERS 5
extern const struct carrier_choice carriers[CARRIERS]; /* the first is ours */

extern const struct carrier carrier_share, carrier_pipe, carrier_zeromq, carrier_nng, carrier_boost;

/* Ends the program unless @fine. */
void carrier_must(bool fine, const char *carrier, const char *what, const char *why);

#ifdef __cplusplus
}
#endif

#endif
