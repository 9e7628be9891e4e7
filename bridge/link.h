/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <jansson.h>

#include "bridge/settings.h"

/*
 * A peer: a connection of TLS, by which the two sides know each other (both have the key, and
 * nothing is said before that is sure) and on which JSON objects go, a line each; and an endpoint
 * of UCX for content. When either is lost, so is the link, and whoever connected tries again.
 */

struct bridge;
struct data_end;
struct data_header;
struct names_in;
struct names_out_link;
struct parcel;

struct link_traffic {
	uint64_t in, out; /* bytes of content */
	uint32_t rtt_us;  /* of what is said; 0: not known yet */
	const char *gpu;  /* how memory of GPUs goes: "cuda" or "staged"; NULL: there was none */
};

struct link {
	TAILQ_ENTRY(link) in_bridge;
	struct link_inside *inside;
	struct data_end *data;     /* as long as it is connected */
	struct names_in *names_in; /* it outlives connections: names of a lost link go stale */
	struct names_out_link *names_out;
	struct link_traffic traffic;
	char site[SITE_MAX + 1]; /* of the peer, as soon as it has said so */
	char address[128];
	char run[33]; /* of the program over there */
	bool up;
	bool takes_parts; /* the peer does, of messages (bridge/data/header.h) */
};

/* Why it is not up; NULL: nothing has gone wrong yet. */
const char *link_why(const struct link *l);

/* Starts to listen and to connect. */
int links_start(struct bridge *b);
void links_stop(struct bridge *b);

struct bridge *link_bridge(const struct link *l);

/* Takes the reference. */
void link_say(struct link *l, json_t *object);
/* The peer broke the rules, or is lost. What follows does so from the event loop. */
void link_fail(struct link *l, const char *why);

/* For data.c. */
const unsigned char *link_own_secret(const struct link *l);
const unsigned char *link_secret_of_peer(const struct link *l);
void link_content(struct link *l, const struct data_header *h, struct parcel *p);
