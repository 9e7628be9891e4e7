/* SPDX-License-Identifier: MIT */

/*
 * When a wait for a GPU is expected to end: what lasts as long each time is looked for without a
 * pause around that time and at no other, what does not never is.
 */

#include <criterion/criterion.h>

#include "libshare/order/pace.h"

#define MS  UINT64_C(1000000)
#define NOW (1000 * MS)

static void note(struct pace *p, unsigned times, uint64_t took)
{
	while (times-- > 0)
		pace_note(p, took);
}

/* How long a wait is looked for without a pause; 0: not at all. */
static uint64_t window(const struct pace *p)
{
	uint64_t from, until;

	pace_expect(p, NOW, &from, &until);
	cr_assert_leq(from, until);
	return until - from;
}

static bool is_expected_after(const struct pace *p, uint64_t took)
{
	uint64_t from, until;

	pace_expect(p, NOW, &from, &until);
	return NOW + took >= from && NOW + took < until;
}

Test(pace, nothing_is_expected_at_first_nor_of_one_wait)
{
	struct pace p = {0};

	cr_assert_eq(window(&p), 0);
	pace_note(&p, 5 * MS);
	cr_assert_eq(window(&p), 0);
}

Test(pace, what_lasts_as_long_each_time_is_expected_then)
{
	struct pace p = {0};

	note(&p, 20, 5 * MS);
	cr_assert(is_expected_after(&p, 5 * MS));
	cr_assert(is_expected_after(&p, 5 * MS + MS / 20));
	cr_assert(is_expected_after(&p, 5 * MS - MS / 20));
	cr_assert(!is_expected_after(&p, 4 * MS));
	cr_assert(!is_expected_after(&p, 6 * MS));
	cr_assert_leq(window(&p), 5 * MS / 16);
}

Test(pace, what_is_about_as_long_has_more_room)
{
	struct pace p = {0};

	for (unsigned i = 0; i < 40; i++)
		pace_note(&p, i % 2 ? 5 * MS + MS / 5 : 5 * MS - MS / 5);
	cr_assert(is_expected_after(&p, 5 * MS + MS / 5));
	cr_assert(is_expected_after(&p, 5 * MS - MS / 5));
	cr_assert_leq(window(&p), 2 * MS);
}

Test(pace, what_is_of_any_length_is_never_expected)
{
	struct pace p = {0};

	for (unsigned i = 0; i < 200; i++) {
		cr_assert_eq(window(&p), 0);
		pace_note(&p, (i * 7 % 10 + 1) * MS);
	}
}

Test(pace, no_core_is_kept_busy_for_long_whatever_takes_long)
{
	struct pace p = {0};

	for (unsigned i = 0; i < 200; i++) {
		pace_note(&p, i % 2 ? 10500 * MS : 9500 * MS);
		cr_assert_leq(window(&p), 2 * MS);
	}
	note(&p, 200, 10000 * MS); /* as long each time */
	cr_assert(is_expected_after(&p, 10000 * MS));
}

Test(pace, it_is_found_again_when_work_takes_longer_from_now_on)
{
	struct pace p = {0};

	note(&p, 20, 5 * MS);
	note(&p, 1, 50 * MS);
	cr_assert_eq(window(&p), 0);
	note(&p, 60, 50 * MS);
	cr_assert(is_expected_after(&p, 50 * MS));
	note(&p, 60, 5 * MS);
	cr_assert(is_expected_after(&p, 5 * MS));
}

Test(pace, what_is_over_at_once_says_nothing_about_what_lasts)
{
	struct pace p = {0};

	note(&p, 20, 5 * MS);
	note(&p, 100, MS / 20);
	cr_assert(is_expected_after(&p, 5 * MS));
	note(&p, 100, UINT64_MAX);
	cr_assert(is_expected_after(&p, 5 * MS));
}
