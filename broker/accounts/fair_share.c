/* SPDX-License-Identifier: MIT */

/* This file knows numbers only. */

#include "broker/accounts/fair_share.h"
#include "base/mutation.h"

uint64_t fair_share_most(const struct fair_share *s, uint64_t mine)
{
	uint64_t left = s->total > s->used ? s->total - s->used : 0;
	uint64_t reserve = FAIR_SHARE_RESERVE(s->total), each, most;

	if (s->users == 1)
		return mine + left;
	if (s->users == 0) {
		/* whoever takes so much more has as much then as is left */
		most = MUTATION(take_the_rest) ? mine + left : (mine + left) / 2;
		each = s->least;
	} else {
		most = mine + left > reserve ? mine + left - reserve : 0;
		each = MUTATION(leave_no_part) ? 0 : s->total / s->users;
	}
	return most > each ? most : each;
}
