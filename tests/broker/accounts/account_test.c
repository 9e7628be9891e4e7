/* SPDX-License-Identifier: MIT */

/*
 * What is remembered of users who have gone: the time that they owe to others, and no longer. And
 * the rule by which users share what there is.
 */

#include <sys/epoll.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <event2/event.h>

#include "broker/accounts/account.h"
#include "broker/accounts/fair_share.h"

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
	turns_deinit(&turns);
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

/* Takes all that it may have, a little at a time. */
static uint64_t takes_all(struct fair_share *s, uint64_t mine)
{
	while (mine < fair_share_most(s, mine)) {
		mine++;
		s->used++;
	}
	return mine;
}

Test(account, of_what_anybody_may_want_each_leaves_as_much_as_it_has)
{
	struct fair_share s = {.total = 1200};
	uint64_t one = 0, two = 0;

	for (int i = 0; i < 1200; i++) {
		one += fair_share_most(&s, one) > one;
		s.used = one + two;
		two += fair_share_most(&s, two) > two;
		s.used = one + two;
	}
	cr_assert(one == 400 && two == 400);
	s.used = 0;
	cr_assert_eq(takes_all(&s, 0), 600);
	cr_assert_eq(takes_all(&s, 0), 300);
	cr_assert_eq(takes_all(&s, 0), 150);
	s.used = 1300; /* there was more once */
	cr_assert_eq(fair_share_most(&s, 100), 50);
	s.least = 60;
	cr_assert_eq(fair_share_most(&s, 0), 60);
}

Test(account, of_what_few_want_the_last_eighth_is_for_who_has_less_than_its_part)
{
	struct fair_share s = {.total = 800, .users = 1};

	cr_assert_eq(takes_all(&s, 0), 800);
	s = (struct fair_share){.total = 800, .users = 2};
	cr_assert_eq(takes_all(&s, 0), 700);
	cr_assert_eq(fair_share_most(&s, 700), 700);
	cr_assert_eq(fair_share_most(&s, 0), 400);
	s.used = 800;
	cr_assert_eq(fair_share_most(&s, 700), 600);
	cr_assert_eq(fair_share_most(&s, 100), 400);
}
