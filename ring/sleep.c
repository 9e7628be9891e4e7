/* SPDX-License-Identifier: MIT */

/*
 * Who goes to sleep announces it, and looks once more whether there is something to do; who has
 * something for it says so, and looks at the announcement. One of them must see the other's word,
 * and for that each has to pass a barrier between its store and its load. The barrier of those who
 * send and acknowledge would cost them more than all the rest: it waits until the line written
 * before is theirs. So it is spared as long as the other side only looks and never sleeps, which
 * one load in a line that hardly ever changes tells.
 *
 * The first sleep then is the expensive one: CHANNEL_MAY_SLEEP is set, and the kernel makes all
 * processes that have registered for it pass a barrier. Whoever had not looked at the announcement
 * before that, sees it; and what those who had looked have stored before, we see, since their
 * barrier came after. From then on, until the habit is given up, both sides have barriers of their
 * own, and sleeping is not made dearer by interrupting everybody.
 *
 * A process that could not register always passes barriers; one that cannot make others pass them
 * says from the start that it may sleep. Where a filter takes the call away later, it fails, and
 * the sleeper is told that it may not be seen.
 */

#include <linux/membarrier.h>

#include "ring/inside.h"

static int membarrier(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* Each time, as a process that was forked may or may not have it from its parent; that it is there
 * already is found out at once. */
bool ring_can_be_ordered(void)
{
	return membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

static bool can_order_others(void)
{
	int commands = membarrier(MEMBARRIER_CMD_QUERY);

	return commands > 0 && commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED;
}

/* Before anybody knows us: no barrier is needed. */
void ring_sleeper_init(struct ring_sleeper *s, _Atomic uint32_t *word)
{
	*s = (struct ring_sleeper){.word = word, .always = !can_order_others()};
	if (s->always)
		atomic_store_explicit(word, CHANNEL_MAY_SLEEP, memory_order_relaxed);
}

static uint32_t number_of(uint32_t word)
{
	return word & ~(CHANNEL_SLEEP_ONE - 1);
}

/* What the caller looks at next is there if it was done by somebody who has not seen this. */
bool ring_sleeper_announce(struct ring_sleeper *s, enum channel_sleep state)
{
	uint32_t before = atomic_load_explicit(s->word, memory_order_relaxed);

	s->idle = 0;
	atomic_store_explicit(s->word,
			      (number_of(before) + CHANNEL_SLEEP_ONE) | CHANNEL_MAY_SLEEP | state,
			      memory_order_relaxed);
	ring_barrier();
	if (!(before & CHANNEL_MAY_SLEEP))
		s->unsure = membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0;
	return !s->unsure;
}

void ring_sleeper_awake(struct ring_sleeper *s)
{
	uint32_t before = atomic_load_explicit(s->word, memory_order_relaxed);

	atomic_store_explicit(s->word, before & ~CHANNEL_SLEEP_STATE, memory_order_relaxed);
}

/* Only looking, for now. */
void ring_sleeper_forget(struct ring_sleeper *s)
{
	uint32_t before = atomic_load_explicit(s->word, memory_order_relaxed);

	s->idle = 0;
	if (!s->always && (before & CHANNEL_SLEEP_STATE) == CHANNEL_AWAKE)
		atomic_store_explicit(s->word, number_of(before), memory_order_relaxed);
}
