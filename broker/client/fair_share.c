/* SPDX-License-Identifier: MIT */

/* Knows numbers only. */

#include "broker/client/fair_share.h"

uint64_t fair_share_most(const struct fair_share *s, uint64_t mine)
{
	uint64_t left = s->total > s->used ? s->total - s->used : 0;
	uint64_t reserve = FAIR_SHARE_RESERVE(s->total), each, most;

	/* who takes so much more has as much as is left then */
	if (s->users == 0)
		return (mine + left) / 2;
	if (s->users == 1)
		return mine + left;
	each = s->total / s->users;
	most = mine + left > reserve ? mine + left - reserve : 0;
	return most > each ? most : each;
}
