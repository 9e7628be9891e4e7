/* SPDX-License-Identifier: MIT */

/* What is remembered of users who have gone: the time that they owe to others, and no longer. */

#include <sys/epoll.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <event2/event.h>

#include "broker/client/account.h"

#define GREEDY 70001
#define OTHER  70002
#define SECOND UINT64_C(1000000000)

static struct event_base *base;
static struct config *config;
static struct accounts *accounts;
static struct turns turns;
static int ends[2];

static void start(void)
{
	base = event_base_new();
	cr_assert(base && turns_init(&turns, base) == 0 && config_default(&config) == 0 &&
		  accounts_new(config, &accounts) == 0 && pipe(ends) == 0);
}

static void stop(void)
{
	close(ends[0]);
	close(ends[1]);
	accounts_free(accounts);
	config_free(config);
	turns_done(&turns);
	event_base_free(base);
}

TestSuite(account, .init = start, .fini = stop, .timeout = 30);

static void serve(struct turn *turn, uint32_t events)
{
	(void)turn, (void)events;
}

/* It takes so much of the broker's time, and goes. What it had when it came. */
static uint64_t visit(uid_t uid, uint64_t ns)
{
	struct account *a = account_get(accounts, uid);
	struct turn turn = {.serve = serve};
	struct user_turns *u;
	uint64_t before;

	cr_assert(a);
	u = account_turns(a);
	before = u->served_ns;
	cr_assert(turn_start(&turns, u, &turn, ends[0], EPOLLIN) == 0);
	if (u->served_ns < turns.now_ns)
		u->served_ns = turns.now_ns;
	u->served_ns += ns;
	turn_end(&turn);
	account_unref(a);
	return before;
}

Test(account, who_goes_and_comes_again_is_still_in_debt)
{
	uint64_t begun = turns.now_ns;

	cr_assert_eq(visit(GREEDY, SECOND), 0);
	cr_assert_eq(visit(OTHER, 1), 0);
	cr_assert_eq(visit(GREEDY, SECOND), begun + SECOND);
	cr_assert_eq(visit(GREEDY, 0), begun + 2 * SECOND);
}

Test(account, who_has_paid_is_forgotten)
{
	visit(GREEDY, SECOND);
	turns.now_ns += SECOND;
	visit(OTHER, 0);
	cr_assert_eq(visit(GREEDY, 0), 0);
}
