/* SPDX-License-Identifier: MIT */

/* What is counted, logged and told of messages of producers that are gone that nobody gets. */

#include <inttypes.h>

#include <share/channel.h>

#include "base/text.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/channel/records.h"
#include "broker/log/log.h"
#include "broker/monitor/monitor.h"
#include "broker/orphan/inside.h"

void channel_tell_lost(struct channel *ch, uint64_t n, const struct member *producer,
		       const char *why)
{
	struct access_object pool;
	const struct access_object what = channel_object(ch, &pool);
	uid_t uid = producer ? account_uid(producer->timelines->account) : LOG_UID_UNKNOWN;

	if (n == 0 || ch->broker->has_ended)
		return;
	ch->broker->counters.messages_lost += n;
	log_warning_of(uid,
		       "channel '%s' loses %" PRIu64 " message%s of producers that are gone: %s",
		       ch->name, n, text_plural(n), why);
	if (monitors_any(ch->broker))
		monitors_tell(ch->broker, &(struct notice){.action = "lose-messages",
							   .what = &what,
							   .uid = producer ? uid : NOTICE_NOBODY,
							   .count = n});
}

void orphans_lose_often(struct member *producer, uint64_t n)
{
	struct channel *ch = producer->channel;

	if (n == 0)
		return;
	channel_tell_lost(ch, n, producer, "they were delivered as often as the channel allows");
	ch->orphans.lost += n;
	ch->orphans.untold += n;
	channel_note(ch);
}

void orphans_lose_aside(struct member *producer)
{
	const struct channel_ring *ring = producer->page.memory;
	uint64_t n = atomic_load_explicit(&ring->set_aside, memory_order_relaxed) -
		     atomic_load_explicit(&ring->taken_back, memory_order_relaxed);
	bool counts =
	    atomic_load_explicit(&ring->heeds, memory_order_relaxed) & CHANNEL_COUNTS_TAKEN_BACK;

	/* Transient messages end with their producer; and a producer that writes nonsense has not
	 * sent as many. */
	if (counts && !producer->as_producer.transient && n <= UINT32_MAX)
		orphans_lose_often(producer, n);
}

void orphans_tell_lost(struct member *consumer)
{
	struct channel *ch = consumer->channel;

	if (ch->orphans.untold == 0)
		return;
	consumer->as_consumer.lost += ch->orphans.untold;
	ch->orphans.untold = 0;
	channel_note(ch);
	member_note(consumer);
}
