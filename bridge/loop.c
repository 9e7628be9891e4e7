/* SPDX-License-Identifier: MIT */

/* What all parts ask of the program's loop: a timer, without which they would stand still, its turn
 * for others, and to end when nothing can go on. */

#include <stdlib.h>

#include "bridge/bridge.h"

void timer_in(struct event *timer, uint32_t ms)
{
	struct timeval in = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	if (evtimer_add(timer, &in) != 0) {
		say("no memory");
		exit(EXIT_FAILURE);
	}
}

void let_others(struct bridge *b)
{
	event_base_loopcontinue(b->base);
}

void bridge_give_up(struct bridge *b)
{
	b->lost = true;
	event_base_loopbreak(b->base);
}
