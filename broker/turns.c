/* SPDX-License-Identifier: MIT */

/*
 * A deficit round robin over users, then over their connections (M. Shreedhar and G. Varghese,
 * "Efficient Fair Queueing using Deficit Round Robin", 1995). The unit is time as it was measured,
 * so that what a request costs need not be known, and a dear one is paid for in later rounds.
 *
 * A round is one of the loop: it looks at the sockets, where everybody who has time left is served,
 * and then at the timer here, by which one user that waits is served. So who asks for little waits
 * for no more than what was begun, one share of each user that asks, and one of those that wait.
 */

#include <errno.h>
#include <time.h>

#include <event2/event.h>

#include "broker/broker.h"
#include "broker/turns.h"

/* Some of the cheapest requests, and less than it takes to wake a process. */
#define SHARE_NS 20000

/* What was counted is the time on the wall, which others may have had for themselves. */
#define MOST_NS 1000000

static const struct timeval at_once = {0, 0};

uint64_t turns_begin(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void pay(struct user_turns *u, uint64_t rounds)
{
	u->used_ns = rounds > u->used_ns / SHARE_NS ? 0 : u->used_ns - rounds * SHARE_NS;
}

/* The loop notes the time once a round, before it calls anybody. */
static void look_at_round(struct turns *t)
{
	struct timeval now;

	event_base_gettimeofday_cached(t->broker->base, &now);
	if (now.tv_sec == t->seen.tv_sec && now.tv_usec == t->seen.tv_usec)
		return;
	t->seen = now;
	t->round++;
	/* nobody had to wait because of what others have used until now */
	if (TAILQ_EMPTY(&t->waiting))
		t->contest = t->round;
}

bool turns_may(struct turns *t, struct user_turns *u)
{
	look_at_round(t);
	/* who waits pays when it is served */
	if (!TAILQ_EMPTY(&u->waiting))
		return false;
	if (u->round < t->contest)
		u->used_ns = 0;
	pay(u, t->round - u->round);
	u->round = t->round;
	return u->used_ns < SHARE_NS;
}

void turns_end(struct turns *t, struct user_turns *u, uint64_t begun)
{
	uint64_t ns = turns_begin() - begun;

	u->used_ns += ns < MOST_NS ? ns : MOST_NS;
	u->round = t->round;
}

/* ------------------------------------------------------------------------------------------- */

void turns_wait(struct turns *t, struct user_turns *u, struct turn *turn)
{
	if (turn->waits)
		return;
	if (TAILQ_EMPTY(&u->waiting))
		TAILQ_INSERT_TAIL(&t->waiting, u, link);
	TAILQ_INSERT_TAIL(&u->waiting, turn, link);
	turn->waits = true;
	if (!event_pending(t->next, EV_TIMEOUT, NULL))
		turns_catch_up(t);
}

void turns_leave(struct turns *t, struct user_turns *u, struct turn *turn)
{
	if (!turn->waits)
		return;
	turn->waits = false;
	TAILQ_REMOVE(&u->waiting, turn, link);
	if (TAILQ_EMPTY(&u->waiting))
		TAILQ_REMOVE(&t->waiting, u, link);
}

/* The first of those that wait whose time has come. As all of them pay each time that it is looked,
 * there is one. */
static struct user_turns *next_user(struct turns *t)
{
	struct user_turns *u;

	for (;;) {
		u = TAILQ_FIRST(&t->waiting);
		pay(u, 1);
		if (u->used_ns < SHARE_NS)
			return u;
		TAILQ_REMOVE(&t->waiting, u, link);
		TAILQ_INSERT_TAIL(&t->waiting, u, link);
	}
}

static void on_next(evutil_socket_t fd, short what, void *data)
{
	struct turns *t = data;
	struct user_turns *u;
	struct turn *turn;

	(void)fd, (void)what;
	look_at_round(t);
	if (TAILQ_EMPTY(&t->waiting))
		return;
	u = next_user(t);
	/* what comes back for more goes to the end; the account is a client's, which outlives this
	 */
	do {
		turn = TAILQ_FIRST(&u->waiting);
		turns_leave(t, u, turn);
		turn->serve(turn);
	} while (!TAILQ_EMPTY(&u->waiting) && u->used_ns < SHARE_NS);
	if (!TAILQ_EMPTY(&u->waiting)) {
		TAILQ_REMOVE(&t->waiting, u, link);
		TAILQ_INSERT_TAIL(&t->waiting, u, link);
	}
	turns_catch_up(t);
}

void turns_catch_up(struct turns *t)
{
	if (!TAILQ_EMPTY(&t->waiting))
		broker_set_timer(t->broker, t->next, &at_once);
}

int turns_init(struct turns *t, struct broker *b)
{
	t->broker = b;
	TAILQ_INIT(&t->waiting);
	t->next = event_new(b->base, -1, 0, on_next, t);
	return t->next ? 0 : -ENOMEM;
}

void turns_done(struct turns *t)
{
	if (t->next)
		event_free(t->next);
}

void user_turns_init(struct user_turns *u)
{
	TAILQ_INIT(&u->waiting);
	u->round = u->used_ns = 0;
}
