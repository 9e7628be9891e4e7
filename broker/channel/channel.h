/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CHANNEL_CHANNEL_H
#define BROKER_CHANNEL_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <jansson.h>

#include "base/table.h"
#include "broker/rights/right.h"

struct broker;
struct channel;
struct channels_restored;
struct client;
struct event;

TAILQ_HEAD(member_list, member);

/*
 * Channels, as the rooms above know them: who takes part in one, and what is left of it when
 * members have gone. Messages never pass through the broker.
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

void channels_init(struct broker *b);
/* Has the loop look after channels from now on. 0 or -ENOMEM. */
int channels_start(struct broker *b);
/* Wakes whoever sleeps in a channel, at the end of the broker, as nobody can come any more. This is
 * before anybody loses the connection. */
void channels_wake(struct broker *b);
/* Ends what is left, when all clients are gone. */
void channels_end(struct broker *b);
void channels_deinit(struct broker *b);
/* Restores the channels that the journal has, in a broker that comes after another one. 0 or
 * negative errno. */
int channels_restore(struct broker *b);

/* Has a client leave the channels that it is in, as its connection has ended. */
void members_leave(struct client *c);
/* Ends some memberships of a client that is ending. True when it has none any more. */
bool members_end(struct client *c, int *budget);

/* Loses messages of the channel of this name: those that wait for a consumer, that @by answers
 * for, and whose producers are gone. *n is how many. False: there was no time for all of them. */
bool channel_drop_messages(struct broker *b, const void *name, size_t size, const struct client *by,
			   uint64_t *n);

/* Returns the channel after @ch (NULL: the first one) in the order of identifiers; NULL at the
 * end. */
const struct channel *channels_next(const struct broker *b, const struct channel *ch);
uint64_t channel_id(const struct channel *ch);
/* Whether the client has this right to the channel. To take part in it, one needs RIGHT_READ, and
 * who writes RIGHT_WRITE. */
bool channel_may(const struct channel *ch, const struct client *client, enum access_right right);
/* Returns a row of a report, or NULL without memory. Takes the number of places that it has looked
 * at off *looks. */
json_t *channel_report(const struct channel *ch, int *looks);

#endif
