/* SPDX-License-Identifier: MIT */
#ifndef BROKER_TURNS_H
#define BROKER_TURNS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/time.h>

struct broker;
struct event;

/*
 * Whose turn it is. The broker's time is shared between users, not between connections: while
 * several users want something, each round of the loop gives each of them the same time, however
 * many connections it has and whatever its requests cost. What is beyond that waits, and is served
 * a user at a time, each user's connections one after the other. Time is only counted; a user that
 * nobody competes with is served at once.
 */

/* What may have to wait: it is served once, and comes back if it wants more. */
struct turn {
	TAILQ_ENTRY(turn) link;
	bool waits;
	void (*serve)(struct turn *turn);
};

/* A user's part, embedded in its account. */
struct user_turns {
	TAILQ_ENTRY(user_turns) link; /* in the broker, while something waits */
	TAILQ_HEAD(turn_list, turn) waiting;
	uint64_t round;   /* that it was last served in */
	uint64_t used_ns; /* of its time, and of that of rounds to come */
};

struct turns {
	struct broker *broker;
	struct event *next; /* a timer, while something waits */
	struct timeval seen;
	uint64_t round;
	uint64_t contest;                 /* the first round since somebody has had to wait */
	TAILQ_HEAD(, user_turns) waiting; /* in the order in which they are served */
};

int turns_init(struct turns *t, struct broker *b); /* 0 or -ENOMEM */
void turns_done(struct turns *t);

void user_turns_init(struct user_turns *u);

/* Whether the user has time left in this round; otherwise what it wants is to wait. */
bool turns_may(struct turns *t, struct user_turns *u);
/* Puts @turn behind what the user has waiting. Nothing happens if it waits already. */
void turns_wait(struct turns *t, struct user_turns *u, struct turn *turn);
/* Before its owner ends: it waits no longer. */
void turns_leave(struct turns *t, struct user_turns *u, struct turn *turn);

/* What was done for a user is counted between the two. */
uint64_t turns_begin(void);
void turns_end(struct turns *t, struct user_turns *u, uint64_t begun);

/* Sees to it that what waits is served; also where a timer could not be set. */
void turns_catch_up(struct turns *t);

#endif
