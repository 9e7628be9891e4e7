/* SPDX-License-Identifier: MIT */
#ifndef BROKER_BROKER_H
#define BROKER_BROKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/config/config.h"
#include "broker/counters.h"
#include "wire/wire.h"

/* What the daemon consists of. Every object hangs off this struct; there is no other state. */

struct accounts;
struct buffers;
struct channels;
struct clients;
struct devices;
struct event;
struct event_base;
struct journal;
struct keeper;
struct life;
struct listener;
struct memory;
struct monitors;
struct names;
struct order;

struct broker {
	struct event_base *base;
	struct journal *journal;
	const struct keeper *keeper; /* NULL: it has none */
	unsigned generation;   /* of brokers of this keeper: how many there were, with this one */
	bool made_socket;      /* that it listens on, and removes it */
	bool has_ended;        /* what clients still use is theirs */
	struct config *config; /* replaced in its place when it is read again */
	uint64_t started_ms;
	struct broker_counters counters;
	/* that this process may have, and those of them that are for itself */
	size_t n_descriptors, n_own_descriptors;

	/* what each room has, which alone knows what is in it; there from the start to the end */
	struct clients *clients;
	struct devices *devices;
	struct order *order;
	struct memory *memory;
	struct buffers *buffers;
	struct names *names;
	struct channels *channels;
	struct monitors *monitors;
	struct life *life;

	struct accounts *accounts;
	struct listener *listener; /* NULL: nobody is let in any more */
	struct event *catch_up; /* a timer that is always set, so that setting it takes no memory */

	unsigned char scratch[WIRE_PACKET_MAX]; /* being written */
};

/* Makes the pools of the configuration, which stays the caller's to free at the end, whatever
 * becomes of what is in it. 0, or negative errno with a logged reason. */
int broker_new(struct config *config, const struct keeper *keeper, struct broker **out);

/* Serves until a signal or the end of the lifeline (ending_new()). 0 or negative errno. */
int broker_run(struct broker *b, int listen_fd, int lifeline_fd, int drain_ms);

/* It drains: nothing new is begun. */
bool broker_is_ending(const struct broker *b);

/* What has happened until now counts: the next broker would know it, and who waits for an answer
 * gets it. At the end of each turn of the loop, and after each request. */
void broker_commit(struct broker *b);

/* Drops all clients and frees everything. NULL is fine. */
void broker_free(struct broker *b);

/* The keeper kills it if its loop does not go round for so long; 0: never. */
void broker_hangs_after(struct broker *b, unsigned ms);

/* What users may have the broker remember, as the configuration and the cgroup are now. */
void broker_share_memory(struct broker *b);

/* Sets a timer on which something waits that nobody would ask for again. Where that takes memory
 * which is not there, everything is looked at a little later. */
void broker_set_timer(struct broker *b, struct event *timer, const struct timeval *delay);

#endif
