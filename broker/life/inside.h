/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LIFE_INSIDE_H
#define BROKER_LIFE_INSIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/life/unpaid.h"

struct broker;
struct client_rooms;
struct ending;
struct event;
struct reload;
struct upgrade;

/* How the broker begins, goes on and ends, which no other room has to know. */
struct life {
	uid_t uid;
	unsigned char ids[128]; /* the numbers as the journal has them: see commit.c */
	uint32_t ids_record;
	bool asks_again; /* requests are being handled that the broker before had not answered */
	/* The socket belongs to a service manager: who connects there waits for the next broker. */
	bool socket_stays;
	struct ending *ending;    /* NULL: it does not serve */
	uint64_t drains_until_ms; /* 0: it does not end yet, or at once */
	struct reload *reload;
	struct upgrade *upgrade;
	struct event *of_keeper;
	struct event *alive; /* a timer that is always set, so that the loop goes round */
	void (*look_at_all)(struct broker *b);
	struct unpaid unpaid;
};

/* loop.c */
/* Makes the timers that are always set. When some other timer could not be set, and nobody knows
 * which, @look_at_all does what all of them would. 0 or -ENOMEM. */
int loop_init(struct broker *b, void (*look_at_all)(struct broker *b));
void loop_deinit(struct broker *b);

/* commit.c */
int ids_restore(struct broker *b); /* 0 or negative errno */

/* rooms.c: the only one that there is. */
extern const struct client_rooms broker_rooms;

#endif
