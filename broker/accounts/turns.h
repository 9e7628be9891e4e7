/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct event;
struct event_base;
struct user_turns;

/*
 * Whose turn it is. The broker's time is shared between users, not between connections: of those
 * that want something, the one that has had least of the broker's time is served, and what it took
 * is counted, however many connections it has and whatever its requests cost. A user that nobody
 * competes with is served at once, and nobody collects time by being quiet.
 */

/* So many turns of a user are served in one round of the loop, where nobody else has any. */
#define TURNS_AT_ONCE 8

/* A descriptor of a user's on which something may have happened. It is embedded in what it is for,
 * zeroed before it starts, and then not moved. */
struct turn {
	struct user_turns *user; /* NULL: it has not started, or has ended */
	int fd;
	uint32_t events; /* what it is served for */
	void (*serve)(struct turn *turn, uint32_t events);
};

/* A user's part, embedded in its account. It is zeroed at first. */
struct user_turns {
	struct turns *turns; /* NULL: nothing of the user's has ever started */
	int epoll;
	struct event *wants; /* NULL: nothing is started now */
	uint64_t served_ns;  /* its virtual time: when its next turn begins, at the earliest */
	/* The turn that was served last, and how often with none of the user's in between. */
	struct turn *last;
	unsigned n_in_a_row;
	/* The only turn that has wanted something for a while: the loop watches its descriptor
	 * itself, which saves two system calls of three. NULL: there is none. */
	struct turn *lone;
	struct event *lone_wants;
	bool lone_is_ready, others_are_ready; /* as the loop has said since the last turn */
	bool is_nobodys;                      /* of those who come, and no user's: the listener's */
};

struct turns {
	struct event_base *base;
	struct event *serve;
	struct user_turns *next; /* to be served, of those that have said they want something */
	unsigned n_users;        /* that have an epoll instance */
	/* What was found of a user's turns; those from `at` on are next. NULL: it has ended. */
	struct ready_turn {
		struct turn *turn;
		uint32_t events;
	} ready[TURNS_AT_ONCE];
	struct user_turns *ready_of;
	int n_ready, at;
	bool work_left;  /* since the last turns began, something was left to the loop by a timer */
	uint64_t now_ns; /* the virtual time: when the last turn began; or more, after a pause */
	uint64_t ended_ns; /* when the broker was last done with something, by the clock */
	uint64_t begun_ns; /* when what the broker is at began */
	unsigned nested, since_mark; /* turns within turns; turns since the mark */
	uint64_t marked_ns;          /* when it was last asked how long the broker has run for */
	uint64_t since_mark_ns;      /* what was counted since then */
};

int turns_init(struct turns *t, struct event_base *base); /* 0 or -ENOMEM */
/* Called after all users are done. */
void turns_deinit(struct turns *t);

/* Called after all turns of the user have ended. Others may start then. */
void user_turns_deinit(struct user_turns *u);
/* Whether the user has had more of the broker's time than others who ask, and waits for them. */
bool user_turns_in_debt(const struct user_turns *u);

/* When one of @events (EPOLLIN, EPOLLOUT) is there on @fd, or it was hung up, @turn is served in
 * its turn; as long as that lasts, again. 0 or negative errno. */
int turn_start(struct turns *t, struct user_turns *u, struct turn *turn, int fd, uint32_t events);
/* Has the turn wait for these events from now on; 0: only for a hang-up. It takes no memory. */
void turn_await(struct turn *turn, uint32_t events);
/* Ends a turn, before its descriptor is closed. It may have ended already. */
void turn_end(struct turn *turn);

/* Says that the loop is to do something at once, which comes before another turn. */
void turns_leave_work(struct turns *t);

/* What is done for a user beside its turns is counted as well, between these two calls; also
 * within the turn of another user. @u: NULL for nobody. */
uint64_t turns_begin(struct turns *t);
void turns_count(struct turns *t, struct user_turns *u, uint64_t begun);
/* Returns when the work under way began, by clock_ns(), which is not asked again; or now. */
uint64_t turns_begun(const struct turns *t);

/* What is done in another's turn, which pays for it, is paid for by @u as well: from @begun
 * (by clock_ns()) until now, but no more than a short turn takes. */
void turns_share(struct turns *t, struct user_turns *u, uint64_t begun);
