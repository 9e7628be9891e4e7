/* SPDX-License-Identifier: MIT */

/*
 * What is left to do when members of channels have gone, a little at each turn of the loop. That a
 * departed consumer's work is done, or its process dead, nobody says: that is looked at every now
 * and then.
 */

#include <limits.h>

#include <event2/event.h>

#include "base/clock.h"
#include "broker/broker.h"
#include "broker/channel/inside.h"
#include "broker/log/log.h"

#define TURN                4096 /* tickets; about half a millisecond */
#define LOOK_AGAIN_MS       50
#define DEPARTURES_PER_TURN 64

static const struct timeval at_once = {0, 0};
static const struct timeval later = {0, LOOK_AGAIN_MS * 1000};

void channels_work_soon(struct broker *b)
{
	broker_set_timer(b, b->channels->work, &at_once);
}

/* True when nothing of it is needed any more. */
static bool look_at_departed(struct member *m, int *budget)
{
	if (!m->died && m->timelines->dead) {
		m->died = true;
		estates_consumer_gone(m);
	}
	if (m->as_consumer.holds > 0)
		return false;
	return m->died || m->channel->n_producers == 0 ||
	       (m->as_consumer.departure && departure_look(m->as_consumer.departure, budget));
}

static void work_on_departures(struct broker *b, int *budget)
{
	struct member *last = TAILQ_LAST(&b->channels->departing, member_list), *m;
	struct channel *ch;

	for (int i = 0; i<DEPARTURES_PER_TURN && * budget> 0; i++) {
		m = TAILQ_FIRST(&b->channels->departing);
		if (!m)
			return;
		TAILQ_REMOVE(&b->channels->departing, m, as_consumer.departing);
		ch = m->channel;
		if (look_at_departed(m, budget)) {
			LIST_REMOVE(m, as_consumer.of_departed);
			i = m == last ? DEPARTURES_PER_TURN : i;
			member_free(m);
			channel_end_if_unused(ch);
			continue;
		}
		TAILQ_INSERT_TAIL(&b->channels->departing, m, as_consumer.departing);
		if (m == last)
			return;
	}
}

/* Those that need longer take turns. */
static void work_on_estates(struct broker *b, int *budget)
{
	struct estate *e;

	while (*budget > 0 && (e = TAILQ_FIRST(&b->channels->estates)))
		if (estate_work(e, budget))
			estate_goes_last(e);
}

void channels_on_work(evutil_socket_t fd, short what, void *data)
{
	struct broker *b = data;
	uint64_t now = clock_ms();
	int budget = TURN;

	(void)fd, (void)what;
	if (now - b->channels->looked_ms >= LOOK_AGAIN_MS) {
		b->channels->looked_ms = now;
		estates_look_again(b);
	}
	work_on_estates(b, &budget);
	/* whoever makes estates without end keeps no departed members waiting */
	budget = TURN;
	work_on_departures(b, &budget);
	if (!TAILQ_EMPTY(&b->channels->estates))
		broker_set_timer(b, b->channels->work, &at_once);
	else if (!TAILQ_EMPTY(&b->channels->departing) || !TAILQ_EMPTY(&b->channels->waiting))
		broker_set_timer(b, b->channels->work, budget > 0 ? &later : &at_once);
}

void channels_end(struct broker *b)
{
	/* whoever is dead may be what an estate waits for, and the other way round */
	for (int i = 0; i < 4 && !TAILQ_EMPTY(&b->channels->list); i++) {
		int budget = INT_MAX;

		estates_look_again(b);
		work_on_estates(b, &budget);
		for (size_t left = b->channels->n_members + 1; left > 0; left--)
			work_on_departures(b, &budget);
	}
	if (!TAILQ_EMPTY(&b->channels->list) || b->channels->n_members > 0)
		log_bug("channels outlive the broker");
}
