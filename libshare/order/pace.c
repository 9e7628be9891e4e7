/* SPDX-License-Identifier: MIT */

/* A mean length and a mean distance from it, as TCP has them of round trips. */

#include "libshare/order/pace.h"

#define UNIT_NS   256
#define SHORT_NS  100000  /* who waits looks for so long without a pause anyway */
#define MARGIN_NS 100000  /* what a sleep before may last, and of work that always takes as long */
#define STEADY    16      /* the distance is at most this part of the length */
#define MOST_NS   1000000 /* to each side: of what is longer, more would be a core for seconds */

struct lengths {
	uint32_t mean, distance;
};

static struct lengths lengths_of(const struct pace *p)
{
	uint64_t word = atomic_load_explicit(&p->word, memory_order_relaxed);

	return (struct lengths){(uint32_t)(word >> 32), (uint32_t)word};
}

void pace_expect(const struct pace *p, uint64_t now, uint64_t *from, uint64_t *until)
{
	struct lengths l = lengths_of(p);
	uint64_t mean = (uint64_t)l.mean * UNIT_NS,
		 margin = (uint64_t)l.distance * 2 * UNIT_NS + MARGIN_NS;

	*from = *until = now;
	if (l.mean == 0 || l.distance > l.mean / STEADY || margin > MOST_NS)
		return;
	*from = now + (mean > margin ? mean - margin : 0);
	*until = now + mean + margin;
}

/* Threads that wait for the same timeline at once may overwrite what the other has learned. */
void pace_note(struct pace *p, uint64_t took)
{
	uint64_t length = took / UNIT_NS;
	struct lengths l = lengths_of(p);
	int64_t away;

	if (took <= SHORT_NS || length > UINT32_MAX / 2)
		return;
	if (l.mean == 0) {
		l = (struct lengths){(uint32_t)length, (uint32_t)length / 2};
	} else {
		away = (int64_t)length - l.mean;
		l.mean = (uint32_t)(l.mean + away / 8);
		away = (away < 0 ? -away : away) - (int64_t)l.distance;
		l.distance = (uint32_t)(l.distance + away / 4);
	}
	atomic_store_explicit(&p->word, (uint64_t)l.mean << 32 | l.distance, memory_order_relaxed);
}
