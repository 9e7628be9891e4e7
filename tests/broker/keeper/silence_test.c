/* SPDX-License-Identifier: MIT */

/* When a process counts as one that hangs. The time is what the test says. */

#include <criterion/criterion.h>

#include "broker/keeper/silence.h"

TestSuite(silence, .timeout = 30);

/* Until it hangs, and at most @limit looks, each @every later than the one before; their number. */
static unsigned look(struct silence *s, unsigned hang_ms, uint64_t *now, unsigned every,
		     unsigned limit)
{
	unsigned n = 0;

	while (n < limit) {
		*now += every;
		n++;
		if (silence_look(s, s->beat, hang_ms, *now))
			break;
	}
	return n;
}

Test(silence, is_counted_in_looks)
{
	struct silence s;
	uint64_t now = 1000000;

	cr_assert_eq(silence_look_ms(15000), 1000);
	silence_begin(&s, 7, now);
	cr_assert_eq(look(&s, 15000, &now, 1000, 100), 15);
	/* looks that come a little late count as one */
	silence_begin(&s, 7, now);
	cr_assert_eq(look(&s, 15000, &now, 1500, 100), 15);
	/* and who looks too early does not look */
	silence_begin(&s, 7, now);
	cr_assert_eq(look(&s, 15000, &now, 10, 10000), 1500);
}

Test(silence, lasts_as_long_as_was_said)
{
	static const unsigned all[] = {150, 1000, 3000, 15000, 60000, 600000};
	struct silence s;
	uint64_t now = 1000000, begun;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		begun = now;
		silence_begin(&s, 7, now);
		look(&s, all[i], &now, silence_look_ms(all[i]), 1000);
		cr_assert_geq(now - begun, all[i] - silence_look_ms(all[i]));
		cr_assert_leq(now - begun, all[i] + silence_look_ms(all[i]));
	}
}

/* However often something else happens, it is looked in time. */
Test(silence, is_looked_at_in_time_whatever_else_happens)
{
	struct silence s;
	uint64_t now = 1000000, begun = now;
	unsigned left;

	silence_begin(&s, 7, now);
	do {
		left = silence_left_ms(&s, 15000, now);
		now += left < 900 ? left : 900;
	} while (!silence_look(&s, 7, 15000, now));
	cr_assert_eq(now - begun, 15000);
	cr_assert_eq(silence_left_ms(&s, 15000, now + 5000), 0);
}

Test(silence, ends_with_a_beat)
{
	struct silence s;
	uint64_t now = 0;

	silence_begin(&s, 7, now);
	cr_assert_eq(look(&s, 15000, &now, 1000, 14), 14);
	cr_assert_not(silence_look(&s, 8, 15000, now += 1000));
	cr_assert_eq(look(&s, 15000, &now, 1000, 100), 15);
}

/* Both have stood still, or only who looks: nothing is known of the other one. */
Test(silence, is_counted_anew_after_a_look_that_came_late)
{
	struct silence s;
	uint64_t now = 0;

	silence_begin(&s, 7, now);
	cr_assert_eq(look(&s, 15000, &now, 1000, 14), 14);
	cr_assert_not(silence_look(&s, 7, 15000, now += 1501));
	cr_assert_eq(look(&s, 15000, &now, 1000, 100), 15);
	cr_assert_eq(look(&s, 15000, &now, 1000000, 100), 100);
}

Test(silence, does_not_matter_where_nobody_hangs)
{
	struct silence s;
	uint64_t now = 0;

	cr_assert_eq(silence_look_ms(0), 1000);
	silence_begin(&s, 7, now);
	cr_assert_eq(look(&s, 0, &now, 1000, 10000), 10000);
}
