/* SPDX-License-Identifier: MIT */

/*
 * What consumers may cost a producer that has no room. Each may keep it waiting for `stall_ms` and
 * is left behind then. So that nobody gets that again by opening the channel again, it is the user
 * who has the time: what its consumers that went, or were left behind, had kept the producer
 * waiting is missing to those that come after them, which have half of what is left of two stalls,
 * and is forgotten eight times as slowly as it was spent. So however often a user's consumers come,
 * in the long run they cost an eighth of the time, and an honest one that has failed is soon waited
 * for again. Who moves is waited for as long as it does: a consumer that is slow is no stall.
 *
 * Those who take part already keep the patience that they have come with, whatever others of their
 * user do.
 */

#include <time.h>

#include "base/clock.h"
#include "libshare/channel/channel.h"

#define SLICE_MS         500
#define COOLING_SLICE_MS 1 /* a GPU wakes nobody up */
#define LOOK_MS          100
#define STALLS           2
#define FORGOTTEN_IN     8

static uint64_t bit_of(const share_channel *ch, const struct channel_peer *p)
{
	return UINT64_C(1) << (p - ch->peers);
}

/* ------------------------------------------------------------------------------------------- */
/* A user's time                                                                               */

static int64_t spent_by(const struct channel_user *u, int64_t now)
{
	int64_t forgotten = (now - u->at_ms) / FORGOTTEN_IN;

	return forgotten < u->spent_ms ? u->spent_ms - forgotten : 0;
}

/* Its entry, or the one that there is least in. */
static struct channel_user *user_of(share_channel *ch, uint32_t uid, int64_t now)
{
	struct channel_user *least = &ch->users[0];

	for (size_t i = 0; i < CHANNEL_MEMBERS_MAX; i++) {
		struct channel_user *u = &ch->users[i];

		if (u->uid == uid && u->spent_ms > 0)
			return u;
		if (spent_by(u, now) < spent_by(least, now))
			least = u;
	}
	return least;
}

static void spend(share_channel *ch, uint32_t uid, int64_t since, int64_t now)
{
	struct channel_user *u = user_of(ch, uid, now);
	int64_t before = u->uid == uid ? spent_by(u, now) : 0;

	/* that its consumers stall at the same time costs no more than if one does */
	if (u->uid == uid && u->spent_ms > 0 && since < u->at_ms)
		since = u->at_ms;
	if (now - since > ch->stall_ms)
		since = now - ch->stall_ms;
	*u = (struct channel_user){uid, before + now - since, now};
}

void channel_set_patience_locked(share_channel *ch, struct channel_peer *p)
{
	int64_t now = clock_coarse_ms(), left;
	const struct channel_user *u;

	p->patience_ms = ch->stall_ms;
	if (ch->stall_ms == UINT32_MAX)
		return;
	u = user_of(ch, p->uid, now);
	if (u->uid == p->uid) {
		left = ((int64_t)STALLS * ch->stall_ms - spent_by(u, now)) / 2;
		if (left < p->patience_ms)
			p->patience_ms = left > 0 ? (uint32_t)left : 0;
	}
	if (p->patience_ms < ch->patience_ms)
		ch->patience_ms = p->patience_ms;
}

/* Of the user's consumers that stall, the one that has for longest. */
static int64_t stalled_since(const share_channel *ch, uint32_t uid)
{
	int64_t since = INT64_MAX;

	for (uint64_t who = ch->stalling; who; who &= who - 1) {
		const struct channel_peer *p = &ch->peers[__builtin_ctzll(who)];

		if (p->uid == uid && p->stalled_since < since)
			since = p->stalled_since;
	}
	return since == INT64_MAX ? ch->full_since : since;
}

void channel_charge_stall_locked(share_channel *ch, struct channel_peer *p)
{
	if (ch->full_since && !p->charged)
		spend(ch, p->uid, stalled_since(ch, p->uid), clock_coarse_ms());
	p->charged = true;
}

void channel_charge_ghost_locked(share_channel *ch, uint32_t uid)
{
	if (ch->full_since)
		spend(ch, uid, ch->full_since, clock_coarse_ms());
}

/* ------------------------------------------------------------------------------------------- */
/* While there is no room                                                                      */

void channel_leave_locked(share_channel *ch, struct channel_peer *p)
{
	channel_charge_stall_locked(ch, p);
	ring_producer_dismiss(ch->producer, (uint32_t)(p - ch->peers), false);
	p->left = true;
	ch->stalling &= ~bit_of(ch, p);
}

/* That is expensive, and those who try again and again need not look each time. */
static bool is_time_to_look_locked(share_channel *ch, int64_t now)
{
	int64_t step = ch->patience_ms / 8 < LOOK_MS ? ch->patience_ms / 8 : LOOK_MS;
	bool due = step == 0 || (ch->look_at != 0 && now >= ch->look_at);

	if (due || ch->look_at == 0)
		ch->look_at = now + step;
	return due;
}

static uint32_t least_patience(const share_channel *ch)
{
	uint32_t least = ch->stall_ms;

	for (uint32_t i = 0; i < ch->shape.consumers; i++) {
		const struct channel_peer *p = &ch->peers[i];

		if (p->known && !p->left && p->patience_ms < least)
			least = p->patience_ms;
	}
	return least;
}

bool channel_leave_behind_locked(share_channel *ch)
{
	int64_t now = clock_coarse_ms();
	uint64_t holdups;
	bool any = false;

	if (ch->stall_ms == UINT32_MAX)
		return false;
	if (!ch->full_since)
		ch->full_since = now;
	if (!is_time_to_look_locked(ch, now))
		return false;
	ch->patience_ms = least_patience(ch);
	holdups = ring_producer_holdups(ch->producer);
	ch->stalling &= holdups;
	for (; holdups; holdups &= holdups - 1) {
		uint32_t slot = (uint32_t)__builtin_ctzll(holdups);
		struct channel_peer *p = &ch->peers[slot];
		bool moved = ring_producer_has_moved(ch->producer, slot);

		if (moved || !(ch->stalling & bit_of(ch, p))) {
			p->stalled_since = now;
			ch->stalling |= bit_of(ch, p);
		}
		if (!moved && p->known && !p->left && now - p->stalled_since >= p->patience_ms) {
			channel_leave_locked(ch, p);
			any = true;
		}
	}
	any |= channel_leave_cooling_locked(ch, now);
	if (any)
		channel_watch_backlog_locked(ch);
	return any;
}

void channel_has_room_locked(share_channel *ch)
{
	uint64_t leaving = ch->full_since ? ring_producer_leaving(ch->producer) : 0;

	for (; leaving; leaving &= leaving - 1)
		channel_charge_stall_locked(ch, &ch->peers[__builtin_ctzll(leaving)]);
	ch->full_since = ch->look_at = 0;
	ch->stalling = 0;
}

int channel_slice_locked(const share_channel *ch, int left)
{
	int slice = STAILQ_EMPTY(&ch->cooling) ? SLICE_MS : COOLING_SLICE_MS;

	if (ch->patience_ms / 2 < (uint32_t)slice)
		slice = (int)(ch->patience_ms / 2) + 1;
	return left >= 0 && left < slice ? left : slice;
}
