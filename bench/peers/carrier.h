/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <share/share.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Carriers: ways to get a payload into another process. Each is used as its makers mean it to be
 * used. A payload is written where the carrier has room for it, and read where the carrier has put
 * it, so a carrier that can do without a copy does.
 *
 * A pair of ends carries payloads of one size from the first process to the second, and answers of
 * CARRIER_ANSWER bytes back.
 */
#define CARRIER_ANSWER 8

struct carrier_setup {
	const char *folder; /* a folder that only this pair uses */
	size_t size;        /* of a payload */
	unsigned window;    /* payloads that may be under way */
	share_client *client;
	const char *pool;
};

struct carrier {
	const char *name;
	const char *what;
	/* Returns why the carrier cannot be used for this, or NULL. Called in the first process.
	 * May be NULL. */
	const char *(*cannot)(const struct carrier_setup *setup);
	/* Opens an end. The ends are opened one after the other, first that of the first process
	 * (which sends the payloads), and closed in the same order. An error ends the program. */
	void *(*open)(const struct carrier_setup *setup, bool first);
	void (*close)(void *end);
	/* Returns where the next payload or answer is to be written. */
	void *(*prepare)(void *end);
	void (*send)(void *end); /* sends what was prepared */
	/* Waits for the next one, and returns it. It stays valid until release(). */
	const void *(*receive)(void *end);
	void (*release)(void *end);
};

/* A carrier is NULL if this build does not have it. */
struct carrier_choice {
	const char *name;
	const char *package; /* the package of Debian that it needs */
	const struct carrier *carrier;
};
#define CARRIERS 5
extern const struct carrier_choice carriers[CARRIERS]; /* the first is a channel */

extern const struct carrier carrier_share, carrier_pipe, carrier_zeromq, carrier_nng, carrier_boost;

/* Ends the program unless @fine. */
void carrier_must(bool fine, const char *carrier, const char *what, const char *why);

#ifdef __cplusplus
}
#endif
