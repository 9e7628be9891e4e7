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
struct claim;
struct client;
struct event;
struct member;

TAILQ_HEAD(member_list, member);

/*
 * Channels, as the rooms above know them: who takes part in one, and what is left of it when
 * members have gone. Messages never pass through the broker.
 */
struct channels {
	TAILQ_HEAD(, channel) list; /* by identifier */
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

int channels_init(struct broker *b); /* 0 or -ENOMEM */
/* At the end of the broker, before anybody loses the connection: whoever sleeps in a channel looks
 * again, as nobody can come any more. */
void channels_wake(struct broker *b);
/* When all clients are gone. */
void channels_end(struct broker *b);
void channels_deinit(struct broker *b);
/* A broker that comes after another one: as the journal has them. 0 or negative errno.
 */
int channels_restore(struct broker *b);

/* The connection of a client has ended: it leaves those that it is in. */
void members_leave(struct client *c);
/* Its client is ending: some of its memberships, true when there are none any more. */
bool members_end(struct client *c, int *budget);

/* Loses messages of the channel of this name: those that wait for a consumer, that @by answers
 * for, and whose producers are gone. *n is how many. False: there was no time for all of them. */
bool channel_drop_messages(struct broker *b, const void *name, size_t size, const struct client *by,
			   uint64_t *n);

/* In the order of identifiers, from the first on (@ch NULL); NULL at the end. */
const struct channel *channels_next(const struct broker *b, const struct channel *ch);
uint64_t channel_id(const struct channel *ch);
/* RIGHT_READ or RIGHT_WRITE: to take part in it. */
bool channel_may(const struct channel *ch, const struct client *client, enum access_right right);
/* An object, or NULL without memory. Takes what it has looked at off *looks. */
json_t *channel_report(const struct channel *ch, int *looks);

#endif
