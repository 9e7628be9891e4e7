/* SPDX-License-Identifier: MIT */

/* Deadlines: what is left of a time limit is never more than it was, and never less than nothing.
 */

#include <limits.h>

#include <criterion/criterion.h>

#include "base/clock.h"

TestSuite(clock, .timeout = 60);

Test(clock, no_time_limit_is_no_deadline)
{
	cr_assert_eq(deadline_from(-1), -1);
	cr_assert_eq(deadline_left(-1), -1);
	cr_assert_eq(deadline_left(deadline_from(INT_MIN)), -1);
}

Test(clock, what_is_left_is_at_most_the_time_limit)
{
	int left = deadline_left(deadline_from(60000));

	cr_assert(left > 0 && left <= 60000, "%d", left);
	left = deadline_left(deadline_from(INT_MAX));
	cr_assert(left > INT_MAX - 60000, "%d", left);
}

Test(clock, nothing_is_left_of_a_deadline_that_is_past)
{
	cr_assert_eq(deadline_left(deadline_from(0)), 0);
	cr_assert_eq(deadline_left(0), 0);
}

Test(clock, a_point_in_time_to_come_is_a_valid_one)
{
	uint64_t before = clock_ns();

	for (int ms = 0; ms < 3000; ms += 7) {
		struct timespec t = clock_after_ms(ms);
		uint64_t ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;

		cr_assert(t.tv_nsec >= 0 && t.tv_nsec < 1000000000, "%ld", t.tv_nsec);
		cr_assert_geq(ns, before + (uint64_t)ms * 1000000);
	}
}

Test(clock, all_clocks_are_one)
{
	uint64_t coarse = (uint64_t)clock_coarse_ms(), ms = clock_ms(), ns = clock_ns();

	cr_assert_leq(coarse, ms);
	cr_assert_leq(ms, ns / 1000000);
	cr_assert_leq(ns / 1000000 - coarse, 60000);
}
