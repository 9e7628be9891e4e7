/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include <jansson.h>

struct broker;
struct channel;
struct client;

/* How members of channels come and go, and are known to each other, as the rooms above know it. */

/* Has the loop look after channels from now on. 0 or -ENOMEM. */
int channels_start(struct broker *b);
/* Wakes whoever sleeps in a channel, at the end of the broker, as nobody can come any more. This is
 * before anybody loses the connection. */
void channels_wake(struct broker *b);
/* Ends what is left, when all clients are gone. */
void channels_end(struct broker *b);
/* Restores the channels that the journal has, in a broker that comes after another one. 0 or
 * negative errno. */
int channels_restore(struct broker *b);

/* Has a client leave the channels that it is in, as its connection has ended. */
void members_leave(struct client *c);
/* Ends some memberships of a client that is ending. True when it has none any more. */
bool members_end(struct client *c, int *budget);

/* Returns a row of a report, or NULL without memory. Takes the number of places that it has looked
 * at off *looks. */
json_t *channel_report(const struct channel *ch, int *looks);
