/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/table.h"
#include "broker/rights/right.h"

struct broker;
struct channel;
struct channels_restored;
struct client;
struct event;

TAILQ_HEAD(member_list, member);

/*
 * Channels, as all rooms above know them. What there is of them is this room: who takes part in
 * one, what each may have of the others, what their pages say of that, and what the journal has.
 * What is left of producers that are gone is in broker/orphan, and how members come and go in
 * broker/membership. Messages never pass through the broker.
 */
struct channels {
	TAILQ_HEAD(, channel) list; /* in the order of identifiers */
	struct table by_name;
	uint64_t last_channel, last_member;
	size_t n_members;
	struct member_list closing; /* producers that the broker is taking over */
	struct member_list leaving; /* those whose messages are lost, as too many have left some */
	TAILQ_HEAD(claim_list, claim) claims; /* claims that are looked at now and then */
	uint32_t n_followed;
	uint64_t n_steps; /* entries given up, rows freed, looks that had no time to end */
	uint32_t last_claim;
	size_t n_orphans;
	uint64_t looked_ms; /* when it was last looked whether anybody comes for orphans */
	struct event *work;
	struct channels_restored *restored; /* only while channels are restored: see records.c */
};

#define CHANNELS_TURN 4096 /* tickets or messages, which take about a millisecond */

void channels_init(struct broker *b);
void channels_deinit(struct broker *b);

/* Returns the channel after @ch (NULL: the first one) in the order of identifiers; NULL at the
 * end. */
const struct channel *channels_next(const struct broker *b, const struct channel *ch);
uint64_t channel_id(const struct channel *ch);
/* The channel as an object of rights. The name stays the channel's; @pool becomes what its pool is,
 * to which it refers. */
struct access_object channel_object(const struct channel *ch, struct access_object *pool);
/* Whether the client has this right to the channel. To take part in it, one needs RIGHT_READ, and
 * who writes RIGHT_WRITE. */
bool channel_may(const struct channel *ch, const struct client *client, enum access_right right);
