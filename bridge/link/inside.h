/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <event2/bufferevent.h>
#include <event2/event.h>

#include "bridge/data/data.h"
#include "bridge/link.h"

/* What link.c (how a connection begins and ends) and talk.c (what is said on it) have in common. */

#define AGAIN_MIN 100          /* ms until it is tried again */
#define LINE_LONG (256u << 10) /* metadata has up to 64 KiB; as JSON in JSON it is longer */

struct link_inside {
	struct bridge *bridge;
	struct bufferevent *tls;
	unsigned char own_secret[DATA_SECRET], peers_secret[DATA_SECRET];
	struct event *again; /* to connect, or for a link that others make, to forget its names */
	struct event *beat, *failing;
	const char *host_and_port; /* NULL: the other side connects */
	char why[160];             /* it is lost, and what is left to do comes from the loop */
	char last[160];            /* why it was lost, or not made, the last time */
	uint32_t again_ms;
	uint64_t heard_ms;
	bool proven; /* it has the key; before that it is a stranger */
	bool greeted;
};

/* Of two connections of the same site the younger is kept, as the elder may be half dead. It gets
 * the elder's names. Where both sides connect, each goes on trying. */
void link_take_over(struct link *l);

/* Begins with "hello". */
void talk_begin(struct link *l);
void talk_on_input(struct bufferevent *tls, void *link);
/* Who is silent for too long is lost; and so that this side is not, it says something. */
void talk_on_beat(evutil_socket_t fd, short what, void *link);
