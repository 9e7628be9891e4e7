/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct claim;
struct member;

/* What a producer waits for. */
struct awaited {
	uint64_t messages; /* that consumers have yet to receive or to acknowledge */
	uint64_t consumers;
	pid_t slowest; /* of these, the one with most; 0: there is none */
};

/*
 * How far a member has got. Of a producer: messages that it has put into its lanes, those whose
 * memory is not back, what it has counted itself, and what it waits for. Of a consumer: messages
 * that wait for it, those that it has received, those of these that it has not acknowledged, those
 * that it has given back, those that were dropped before it came to them, and how many producers
 * have left it behind.
 */
struct progress {
	uint64_t sent, in_flight, dropped, redelivered, set_aside, rejected;
	uint64_t waiting, received, held, held_buffers, lost;
	uint64_t left_behind;
	struct awaited awaited;
};

/* Whether the member's process may go on with it, which is HERE or has LEFT. */
bool member_takes_part(const struct member *m);

/* Adds up how far a member has got. Returns how many places it has looked at. */
int member_measure(struct member *m, struct progress *out);

/* Returns how many messages the consumer has yet to receive of the producer, as their pages say; or
 * 1 if it has yet to learn that it was left behind. */
uint64_t claim_unreceived(const struct claim *claim);
/* Returns how many messages a consumer has received and not acknowledged; and how many buffers
 * these have. */
uint64_t member_held(struct member *consumer);
uint64_t member_held_buffers(struct member *consumer);
/* Whether the producer's ring says that it does not wait for the consumer any more. */
bool claim_is_left_behind(const struct claim *claim);

/* Logs, tells and counts it if the producer waits for the consumer no more. It is called before the
 * claim is over or taken over. */
void claim_tell_left_behind(const struct claim *claim);
/* Does the same for a consumer that is left behind for another reason. */
void member_tell_left_behind(struct member *consumer, const char *why);
/* Logs, tells and counts that a producer waits for room, which it says itself, as far as that may
 * be true. */
void member_tell_stalled(struct member *producer);
