/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/config/config.h"
#include "broker/counters.h"
#include "wire/wire.h"

/* What the daemon consists of. Every object hangs off this struct. Only what belongs to the process
 * is elsewhere, as the log and what is known of the keeper. */

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
	unsigned generation;         /* how many brokers this keeper has had, with this one */
	bool made_socket;            /* it has made the socket that it listens on, and removes it */
	bool has_ended;              /* what clients still use is theirs from then on */
	struct config *config;       /* when it is read again, it is changed in its place */
	uint64_t started_ms;
	struct broker_counters counters;
	/* how many descriptors this process may have, and how many of them are for itself */
	size_t n_descriptors, n_own_descriptors;

	/* what each room has, which alone knows what is in it; they are there from start to end */
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

	unsigned char scratch[WIRE_PACKET_MAX]; /* the message that is being written */
};

/* Makes a broker with the pools of the configuration, which stays the caller's to free at the end,
 * whatever becomes of what is in it. 0, or negative errno with a logged reason. */
int broker_new(struct config *config, const struct keeper *keeper, struct broker **out);

/* Serves until a signal or the end of the lifeline (ending_new()). 0 or negative errno. */
int broker_run(struct broker *b, int listen_fd, int lifeline_fd, int drain_ms);

/* Whether it is about to end: then nothing new is begun. */
bool broker_is_ending(const struct broker *b);

/* Makes count what has happened until now: the next broker would know it, and whoever waits for an
 * answer gets it. Called at the end of each turn of the loop, and after each request. */
void broker_commit(struct broker *b);

/* Drops all clients and frees everything. @b may be NULL. */
void broker_free(struct broker *b);

/* Says for how long the loop may stand still before the keeper kills this broker; 0: for ever. */
void broker_hangs_after(struct broker *b, unsigned ms);

/* Shares what users may have the broker remember, as the configuration and the cgroup are now. */
void broker_share_memory(struct broker *b);

/* Sets a timer that something waits for which nobody would ask for again. If that takes memory
 * which is not there, everything is looked at a little later. */
void broker_set_timer(struct broker *b, struct event *timer, uint64_t ms);
void broker_free_event(struct event *event); /* NULL is fine */
