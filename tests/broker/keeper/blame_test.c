/* SPDX-License-Identifier: MIT */

/* Which requests are refused as brokers have crashed over them. The time is what the test says. */

#include <criterion/criterion.h>

#include "broker/keeper/blame.h"
#include "broker/log/log.h"

#define NOW 1000000

static struct blames blames;

static void start(void)
{
	log_set_level(LOG_LEVEL_ERROR);
	blames = (struct blames){.type = 0};
	blame_at(&blames);
}

TestSuite(blame, .init = start, .timeout = 30);

static void die(uid_t uid, unsigned type, bool crashed, uint64_t now)
{
	blame_begin(uid, type);
	blame_death(&blames, crashed, now);
}

Test(blame, is_for_a_type_of_requests_of_a_user)
{
	die(7, 13, true, NOW);
	cr_assert_not(blame_refuses(7, 13, NOW));
	die(7, 13, true, NOW + 1);
	cr_assert(blame_refuses(7, 13, NOW + 1));
	cr_assert_not(blame_refuses(7, 14, NOW + 1));
	cr_assert_not(blame_refuses(8, 13, NOW + 1));
}

Test(blame, ends_five_minutes_after_the_last_crash)
{
	die(7, 13, true, NOW);
	die(7, 13, true, NOW + 200000);
	cr_assert(blame_refuses(7, 13, NOW + 200000 + 299999));
	cr_assert_not(blame_refuses(7, 13, NOW + 200000 + 300000));
	/* and then begins anew */
	die(7, 13, true, NOW + 900000);
	cr_assert_not(blame_refuses(7, 13, NOW + 900000));
	die(7, 13, true, NOW + 900001);
	cr_assert(blame_refuses(7, 13, NOW + 900001));
}

Test(blame, is_nobodys_where_a_broker_was_killed_or_handled_nothing)
{
	for (int i = 0; i < 10; i++)
		die(7, 13, false, NOW);
	for (int i = 0; i < 10; i++) {
		blame_begin(7, 13);
		blame_end();
		blame_death(&blames, true, NOW);
	}
	/* of one death it is to blame once */
	die(7, 13, true, NOW);
	blame_death(&blames, true, NOW);
	cr_assert_not(blame_refuses(7, 13, NOW));
}

Test(blame, of_the_oldest_is_forgotten_when_there_are_too_many)
{
	for (unsigned i = 0; i < BLAMES + 1; i++) {
		die(i, 13, true, NOW + 2 * i);
		die(i, 13, true, NOW + 2 * i + 1);
	}
	cr_assert_not(blame_refuses(0, 13, NOW + 100));
	for (unsigned i = 1; i < BLAMES + 1; i++)
		cr_assert(blame_refuses(i, 13, NOW + 100));
}

Test(blame, is_not_noted_without_a_place)
{
	blame_at(NULL);
	blame_begin(7, 13);
	blame_end();
	cr_assert_not(blame_refuses(7, 13, NOW));
}
