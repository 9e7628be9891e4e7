/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LIFE_INSIDE_H
#define BROKER_LIFE_INSIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/life/unpaid.h"

struct ending;
struct event;
struct reload;
struct upgrade;

/* How the broker begins, goes on and ends, which no other room has to know. */
struct life {
	uid_t uid;
	unsigned char ids[128]; /* numbers, as the journal has them: see restore.c */
	uint32_t ids_record;
	bool asks_again; /* what the broker before had not answered */
	/* The socket is a service manager's: who comes there waits for the next broker. */
	bool socket_stays;
	struct ending *ending; /* NULL: it does not serve */
	struct reload *reload;
	struct upgrade *upgrade;
	struct event *of_keeper;
	struct event *alive; /* a timer that is always set: the loop goes round */
	struct unpaid unpaid;
};

#endif
