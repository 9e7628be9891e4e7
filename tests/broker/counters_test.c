/* SPDX-License-Identifier: MIT */
/*
 * Counting: into which class a time goes, and which errors are told apart.
 */
#include <criterion/criterion.h>

#include "broker/counters.h"

TestSuite(counters, .timeout = 30);

static int class_of(uint64_t ns)
{
	struct latency l = {0};

	latency_add(&l, ns);
	cr_assert_eq(l.n, 1);
	cr_assert_eq(l.sum_ns, ns);
	for (int i = 0; i < LATENCY_CLASSES; i++)
		if (l.in_class[i] == 1)
			return i;
	return -1;
}

Test(counters, a_class_has_all_times_up_to_its_longest)
{
	cr_assert_eq(class_of(0), 0);
	cr_assert_eq(class_of(1), 0);
	for (int i = 0; i < LATENCY_CLASSES - 1; i++) {
		cr_assert_eq(class_of(latency_longest(i)), i);
		cr_assert_eq(class_of(latency_longest(i) + 1), i + 1);
	}
}

Test(counters, each_class_is_twice_as_long_as_the_one_before)
{
	cr_assert_eq(latency_longest(0), 1024);
	for (int i = 1; i < LATENCY_CLASSES - 1; i++)
		cr_assert_eq(latency_longest(i), 2 * latency_longest(i - 1));
}

Test(counters, the_last_class_has_no_end)
{
	cr_assert_eq(latency_longest(LATENCY_CLASSES - 1), UINT64_MAX);
	cr_assert_eq(class_of(UINT64_MAX), LATENCY_CLASSES - 1);
	cr_assert_eq(class_of(UINT64_C(1) << 63), LATENCY_CLASSES - 1);
}

Test(counters, errors_are_told_apart_and_unknown_ones_are_counted_too)
{
	static struct broker_counters c;

	count_refusal(&c, WIRE_ALLOC, SHARE_ENOENT);
	count_refusal(&c, WIRE_ALLOC, SHARE_ENOENT);
	count_refusal(&c, WIRE_ALLOC, SHARE_EQUOTA);
	count_refusal(&c, WIRE_ALLOC, SHARE_EQUOTA - 1000);
	count_refusal(&c, WIRE_ALLOC, -1000);
	count_refusal(&c, WIRE_LOOKUP, 1);
	cr_assert_eq(c.by_message[WIRE_ALLOC].refused[COUNTED_SHARE_ENOENT], 2);
	cr_assert_eq(c.by_message[WIRE_ALLOC].refused[COUNTED_SHARE_EQUOTA], 1);
	cr_assert_eq(c.by_message[WIRE_ALLOC].refused[COUNTED_OTHER], 2);
	cr_assert_eq(c.by_message[WIRE_LOOKUP].refused[COUNTED_OTHER], 1);
}
