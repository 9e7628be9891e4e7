/* SPDX-License-Identifier: MIT */

/*
 * Which producers that are gone a channel keeps messages of: of 64. If there are more, the oldest
 * producer of the user who has most leaves, so that nobody takes the places of others. What a
 * consumer has takes no place, as each consumer has rows for a limited number of producers.
 */

#include "broker/broker.h"
#include "broker/orphan/inside.h"

static void take_out(struct member *m)
{
	struct producer *p = &m->as_producer;
	struct channel *ch = m->channel;

	if (p->place == PRODUCER_STAYS) {
		TAILQ_REMOVE(&ch->orphans.producers, m, as_producer.link);
		ch->orphans.n_producers--;
	} else if (p->place == PRODUCER_LEAVES) {
		TAILQ_REMOVE(&ch->broker->channels->leaving, m, as_producer.link);
	}
	p->place = PRODUCER_NOWHERE;
}

/* Puts a producer into its channel's list, which is sorted; there are only a few in it. */
static void put_in(struct member *m)
{
	struct member_list *all = &m->channel->orphans.producers;
	struct member *before = TAILQ_LAST(all, member_list);

	while (before && before->id > m->id)
		before = TAILQ_PREV(before, member_list, as_producer.link);
	if (before)
		TAILQ_INSERT_AFTER(all, before, m, as_producer.link);
	else
		TAILQ_INSERT_HEAD(all, m, as_producer.link);
	m->channel->orphans.n_producers++;
	m->as_producer.place = PRODUCER_STAYS;
}

static uint32_t count_of(const struct channel *ch, const struct account *user)
{
	const struct member *m;
	uint32_t n = 0;

	TAILQ_FOREACH (m, &ch->orphans.producers, as_producer.link)
		n += m->timelines->account == user;
	return n;
}

/* Returns the oldest producer of the user who has most. */
static struct member *one_too_many(const struct channel *ch)
{
	struct member *m, *found = NULL;
	uint32_t most = 0, n;

	TAILQ_FOREACH (m, &ch->orphans.producers, as_producer.link) {
		n = count_of(ch, m->timelines->account);
		if (n <= most)
			continue;
		found = m;
		most = n;
	}
	return found;
}

static void leave(struct member *m)
{
	struct channels *channels = m->channel->broker->channels;

	take_out(m);
	m->as_producer.place = PRODUCER_LEAVES;
	TAILQ_INSERT_TAIL(&channels->leaving, m, as_producer.link);
	channels->n_steps++;
	channels_work_soon(m->channel->broker);
}

void producer_sort_in(struct member *m)
{
	struct producer *p = &m->as_producer;

	if (m->state != MEMBER_GONE || (p->n_waiting > 0) == (p->place != PRODUCER_NOWHERE))
		return;
	if (p->n_waiting == 0) {
		take_out(m);
		return;
	}
	put_in(m);
	if (m->channel->orphans.n_producers > PRODUCERS_MAX)
		leave(one_too_many(m->channel));
}
