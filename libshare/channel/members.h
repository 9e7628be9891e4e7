/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/channel/role.h"

/* Who else takes part, and the questions to the broker about it; and who of us waits. */
struct members {
	share_channel *ch;
	const struct channel_role *role;
	union { /* what our role has, which it alone knows */
		struct sender *sender;
		struct receiver *receiver;
	};
	struct channel_peer peers[CHANNEL_MEMBERS_MAX]; /* see members_index() */
	bool some_gone; /* there are producers of which there may be an end to tell */

	uint32_t epoch;   /* the broker's count, as of the last answer that was applied */
	uint32_t answers; /* how many there were */
	uint32_t first;   /* the number of the first answer to this question */
	bool syncing;     /* some thread asks, or waits for the answer, for all */
	bool asking;      /* the broker has not answered yet */
	bool alone;       /* the broker is lost */
	bool afresh;      /* something that the broker has told us was lost here */

	bool asleep;            /* some thread sleeps for all: */
	struct waiter *sleeper; /* where; NULL: it is no thread of the program's, or none */
	uint32_t waiting;       /* threads of the program that are in a call which may wait */
	bool given_up;          /* nobody waits any more */
	bool wants_fd;          /* an event loop was given a descriptor */
	uint64_t sleeps;        /* for the statistics */
	uint32_t held;          /* messages that the program has */
	bool too_much; /* of them, for who asked last, and is told of less (channel_owes()) */
	uint32_t late; /* calls of who asks so, see channel_ask_again() */
	bool closed;   /* the channel ends when `held` and `waiting` are 0, */
	bool ended;    /* and has: when nobody is in a call any more, it goes */
};

static inline uint32_t members_index_of(const struct members *m, const struct channel_peer *p)
{
	return (uint32_t)(p - m->peers);
}

/* To the broker's knowledge, a moment ago. */
static inline bool members_is_there(const struct channel_peer *p)
{
	return p->state == WIRE_MEMBER_HERE || p->state == WIRE_MEMBER_LEFT;
}

/* How a producer went that sends nothing more. */
static inline int members_end_of(const struct channel_peer *p)
{
	return p->state == WIRE_MEMBER_DEAD && !p->ended ? SHARE_EOWNERDEAD : SHARE_EPIPE;
}

static inline bool members_are_out_of_date(const struct members *m)
{
	return !m->alone &&
	       atomic_load_explicit(&m->ch->control->epoch, memory_order_acquire) != m->epoch;
}

/* Closes what is open of one that is not looked at any more; its entry stays until the broker has
 * forgotten it too. */
void members_close_peer(struct members *members, struct channel_peer *p);
/* As the kernel says, without asking the broker. */
bool members_is_dead(const struct channel_peer *p);
/* Notices all those that died. */
void members_look_for_deaths(struct members *members);
/* How many of the other role are there, as far as this member knows. */
uint32_t members_count(const struct members *members);

/* The timer of channel_tell_of_less(), if there is one, runs out in so many ms; -1: not. */
void channel_tell_less(const share_channel *ch, int ms);

/* Learns who takes part, if that has changed. 0, an error, or 1 when the broker has not answered by
 * @deadline: the next one who asks goes on waiting for the answer. */
int members_sync_until_unlocking(struct members *members, int64_t deadline);
/* Before waiting for others to do something, or for somebody to come: 0, or SHARE_EDISCONNECTED
 * when the broker is gone and nobody is there who could. If that was not known, members are out of
 * date now: there may be more to see before that is said. */
int members_look_for_broker(struct members *members);
/* Tells the broker that we do no more. */
void channel_leave(share_channel *ch);
