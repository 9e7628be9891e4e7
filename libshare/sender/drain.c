/* SPDX-License-Identifier: MIT */

/*
 * What a producer may have to wait for before it closes a channel: that nothing waits for consumers
 * any more, or that all of it is done with.
 */

#include <share/private/core.h>

#include "base/clock.h"
#include "libshare/program/error.h"
#include "libshare/program/range.h"
#include "libshare/sender/inside.h"

/* What is waited for: that nothing waits for consumers any more, or that every message with a
 * smaller number than @before is done with. */
struct goal {
	bool acknowledged;
	uint64_t before;
};

static bool is_reached_unlocking(struct sender *sender, const struct goal *goal)
{
	struct ring_producer_stats s;
	struct ring_sleep sleep;

	/* consumers ring once a sleep, so it is announced before each look; whoever acknowledges
	 * something wakes the background thread, and that us */
	if (goal->acknowledged)
		ring_producer_sleep(sender->ring, true, &sleep);
	sender_reclaim_unlocking(sender);
	/* so does whoever makes room */
	sender_watch_backlog_unlocking(sender);
	ring_producer_get_stats(sender->ring, &s);
	return goal->acknowledged ? s.done >= goal->before : s.waiting == 0;
}

/* Whether somebody is there who could do it, or may come. 0 or SHARE_EDISCONNECTED. */
static int look_for_others(struct sender *sender, const struct goal *goal)
{
	/* also who was left behind, or has closed the channel */
	if (goal->acknowledged && ring_producer_keepers(sender->ring) != 0)
		return 0;
	return members_look_for_broker(sender->members);
}

static int wait_for_unlocking(struct sender *sender, const struct goal *goal, int64_t deadline)
{
	if (sender->members->given_up)
		return wait_given_up();

	uint32_t call = goal->acknowledged ? READY_DRAIN : READY_FLUSH;
	/* what an event loop is told is another thread's, if we wait */
	bool looks_only = deadline_left(deadline) == 0;

	while (!is_reached_unlocking(sender, goal)) {
		int left = deadline_left(deadline), r = 0;

		if (left == 0 && (!sender_arm(sender, call) || !is_reached_unlocking(sender, goal)))
			return SHARE_ETIMEDOUT;
		if (left == 0)
			break;
		r = look_for_others(sender, goal);
		if (r < 0)
			return r;
		if (members_are_out_of_date(sender->members))
			r = members_sync_until_unlocking(sender->members, deadline);
		else
			r = members_wait_unlocking(sender->members, left);
		if (sender->members->given_up)
			r = wait_given_up();
		if (r < 0)
			return r;
	}
	if (looks_only)
		sender_disarm(sender, call);
	return 0;
}

static int not_reached(struct sender *sender, const struct goal *goal, int error)
{
	uint64_t who = goal->acknowledged ? ring_producer_keepers(sender->ring) : 0;
	char name[SENDER_NAME_SIZE];

	if (!who)
		return fail_constant(error,
				     ring_producer_is_deserted(sender->ring)
					 ? "messages wait for a consumer, and the channel has none"
					 : "messages wait for consumers to have room");
	return fail(error, "of the channel's consumers, %s yet to acknowledge messages",
		    sender_name(sender, who, name));
}

/* From a handle. Of what is to be acknowledged, it is what was sent until now, at most. */
static int wait_for(share_channel *ch, struct goal goal, int timeout_ms)
{
	struct ring_producer_stats s;
	struct sender *sender;
	int r = channel_resolve_as(&ch, SHARE_PRODUCER);

	if (r == 0 && timeout_ms < -1)
		r = fail(SHARE_EINVAL, "a time limit is -1, 0, or milliseconds");
	if (r != 0)
		return r;
	sender = sender_lock(ch);
	ring_producer_get_stats(sender->ring, &s);
	goal.before = goal.before < s.sent ? goal.before : s.sent;
	sender->drains += goal.acknowledged;
	sender->members->waiting++;
	r = wait_for_unlocking(sender, &goal, deadline_from(timeout_ms));
	sender->members->waiting--;
	sender->drains -= goal.acknowledged;
	sender_awake(sender);
	if (r == SHARE_ETIMEDOUT)
		r = not_reached(sender, &goal, timeout_ms == 0 ? SHARE_EAGAIN : SHARE_ETIMEDOUT);
	channel_unlock_and_end(ch);
	return r;
}

int share_channel_flush(share_channel *ch, int timeout_ms)
{
	RANGE("share_channel_flush", 0);
	HAZARDS;
	return wait_for(ch, (struct goal){.acknowledged = false}, timeout_ms);
}

int share_channel_drain(share_channel *ch, int timeout_ms)
{
	RANGE("share_channel_drain", 0);
	HAZARDS;
	return wait_for(ch, (struct goal){true, UINT64_MAX}, timeout_ms);
}

int share_drain_before(share_channel *ch, uint64_t before, int timeout_ms)
{
	RANGE("share_channel_drain", 0);
	HAZARDS;
	return wait_for(ch, (struct goal){true, before}, timeout_ms);
}
