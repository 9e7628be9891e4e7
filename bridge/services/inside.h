/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/event.h>
#include <share/service.h>

#include "bridge/data/data.h"
#include "bridge/data/message.h"
#include "bridge/services/services.h"

/* What desk.c (where callers come), counter.c (where the workers are) and services.c (what both
 * have in common) know of each other. */

#define AT_ONCE 64 /* requests of one desk that are not answered */
#define EARLY   64 /* cancellations that are remembered until what they are about has come */

/* One request: at a desk the message that is to be answered, over there the call. */
struct errand {
	TAILQ_ENTRY(errand) in_end;
	struct end *end; /* NULL: nobody waits for it any more */
	uint64_t id;
	share_message message; /* at a desk the request; at the counter the answer */
	share_pending *call;
	struct message_in received; /* at a desk the answer; at the counter the request */
	share_operation *holding;   /* until what is sent is good */
	enum data_kind kind;        /* of what is sent then */
	bool sending, receiving, here;
};

/* One end of a service: the desk, where callers come, or the counter, where the workers are. */
struct end {
	TAILQ_ENTRY(end) in_all;
	struct bridge *bridge;
	struct link *link;
	char *name;
	share_service *service;
	struct event *readable, *look;
	TAILQ_HEAD(, errand) errands;
	uint64_t early[EARLY]; /* at a counter: requests that were canceled and have not come, or
				* that were answered at the same time */
	uint64_t newest; /* at a counter: the newest request of which the first frame has come */
	uint64_t done;
	unsigned n_early;
	uint32_t which; /* as the desk's side calls it */
	unsigned n;
	bool desk;
};

struct services {
	TAILQ_HEAD(, end) ends;
	unsigned n;
};

struct errand *errand_add(struct end *s, uint64_t id);
/* UCX may still use its memory. */
void errand_finish(struct errand *e);
/* The message of an errand, or at the counter a status alone. */
void errand_send(struct errand *e, enum data_kind kind, int status);

/* What has come is here as a whole. The errand may be over afterwards. */
void desk_act(struct errand *e);
void counter_act(struct errand *e);

/* Cancels what nobody waits for any more; true: the errand is over. */
bool desk_gives_up(struct errand *e);
/* Calls when there is room, and looks for the answer. */
void counter_look_at(struct errand *e);
/* Takes requests as long as there are not too many. */
void desk_take_requests(struct end *s);
