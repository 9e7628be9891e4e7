/* SPDX-License-Identifier: MIT */

/*
 * Counting. A time is put into its class by its highest bit alone, so that this costs a few
 * instructions and the classes need no table. That makes a class as wide as the times in it are
 * long. So a quantile that is read off is at most twice too large, whatever its size.
 */

#include "broker/counters.h"

/* Returns the class of a time. It is rounded up, so that a class has its longest time in it. */
static int class_of(uint64_t ns)
{
	int bits = ns > 1 ? 64 - __builtin_clzll(ns - 1) : 0;
	int class = bits - LATENCY_FIRST_BITS;

	if (class < 0)
		return 0;
	return class < LATENCY_CLASSES ? class : LATENCY_CLASSES - 1;
}

void latency_add(struct latency *l, uint64_t ns)
{
	l->n++;
	l->sum_ns += ns;
	l->in_class[class_of(ns)]++;
}

uint64_t latency_longest(int class)
{
	return class < LATENCY_CLASSES - 1 ? UINT64_C(1) << (LATENCY_FIRST_BITS + class)
					   : UINT64_MAX;
}

static enum counted_error place_of(int error)
{
	switch (error) {
#define PLACE(name, number, text) \
	case number:              \
		return COUNTED_##name;
		SHARE_ERRORS(PLACE)
#undef PLACE
	default:
		return COUNTED_OTHER;
	}
}

void count_refusal(struct broker_counters *c, enum wire_type type, int error)
{
	c->by_message[type].refused[place_of(error)]++;
}
