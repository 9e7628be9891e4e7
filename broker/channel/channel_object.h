/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/table.h"
#include "broker/channel/channel.h"
#include "pages/channel_page.h"

struct member;
struct pool;

/*
 * A channel is who takes part in it, and what they share: messages never pass through the broker.
 * It lasts as long as it has members. Those count that are gone and have claims or orphans left.
 */
struct channel {
	struct table_link key; /* in the table of names */
	TAILQ_ENTRY(channel) link;
	struct broker *broker;
	uint64_t id;
	struct pool *pool;
	struct channel_shape shape;
	enum channel_layout layout;
	bool service;       /* it is one of a service's two channels */
	uint32_t producers; /* the most that there may be at a time */
	int control_fd;
	struct channel_control *control;
	TAILQ_HEAD(, member) members;                  /* in the order of identifiers */
	struct member *consumers[CHANNEL_MEMBERS_MAX]; /* by slot; one that is GONE has none */
	uint32_t left; /* the roles of those that are leaving right now, a bit for each */
	struct {
		uint64_t waiting, owned;
		uint64_t lost;        /* since the channel was made */
		uint64_t untold;      /* of these, lost since a consumer was last told */
		uint64_t deserted_ms; /* since when some wait that nobody may fetch; 0: none do */
		/* The producers that are gone and have messages that wait, in the order of
		 * identifiers. */
		struct member_list producers;
		uint32_t n_producers;
	} orphans;
	uint32_t record;
	size_t size;
	char name[];
};

struct channel *channel_find(struct broker *b, const void *name, size_t size);
/* Puts a channel that is filled in among those of the broker. */
void channel_attach(struct broker *b, struct channel *ch, struct pool *pool);
void channel_end_if_unused(struct channel *ch);
/* Frees a channel that was never attached, or is no more. */
void channel_free(struct channel *ch);
/* Tells the others that a member of @role has come or gone. 0: nothing has changed, but all are to
 * look again. */
void channel_changed(struct channel *ch, uint32_t role);
/* Returns the number of members of this role that are not GONE. */
uint32_t channel_count(const struct channel *ch, uint32_t role);
/* Has the loop look soon at what is left to do. */
void channels_work_soon(struct broker *b);

/*
 * How members of a channel wake one that polls: a descriptor that its owner, the broker and all who
 * may ring share. Whoever has not been given it cannot find it, and nothing can be put into it
 * (doorbell.c).
 */
/* Makes a doorbell, which the caller closes. Negative errno if that fails. */
int doorbell_new(void);
/* Rings, which never waits. -1: there is nobody who would hear it. */
void doorbell_ring(int doorbell);
