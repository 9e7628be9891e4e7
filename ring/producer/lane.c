/* SPDX-License-Identifier: MIT */

/*
 * Whether a lane has room: all for whom it is have taken what was at the next place, or it was
 * dropped. How far they have got is looked at only when what is known of it does not suffice.
 */

#include "ring/producer/inside.h"

bool ring_has_room(struct ring_producer *p, uint32_t lane)
{
	struct ring_lane *l = &p->lanes[lane];
	uint64_t lowest = l->tail;

	if (l->tail < l->limit)
		return true;
	if (p->shape.mode != CHANNEL_BROADCAST)
		lowest = ring_taken(p, lane);
	else if (p->consumers.admitted == 0)
		lowest = l->base;
	else
		for (uint64_t who = p->consumers.admitted & ~p->consumers.latest; who;
		     who &= who - 1) {
			uint64_t taken = ring_taken(p, (uint32_t)__builtin_ctzll(who));

			lowest = taken < lowest ? taken : lowest;
		}
	if (lowest < l->head)
		lowest = l->head;
	/* nothing is dropped for some while others have no room anyhow */
	if (p->consumers.latest != 0 && l->tail < lowest + p->shape.depth) {
		uint64_t left = ring_pass_over_for_room(p);

		lowest = left < lowest ? left : lowest;
	}
	l->limit = lowest + p->shape.depth;
	return l->tail < l->limit;
}
