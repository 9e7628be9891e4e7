/* SPDX-License-Identifier: MIT */

/*
 * How a producer wakes those who sleep, and for whom it waits and sleeps itself. A barrier is
 * needed only for consumers that sleep now and then, once for as many messages as there are.
 */

#include "ring/producer/inside.h"

/* Those of whom the announcement has to be looked at, of those that got something. */
static uint64_t who_may_sleep(struct ring_producer *p)
{
	uint64_t who, leaving;

	do {
		who = leaving = 0;
		for (uint64_t fresh =
			 p->consumers.fresh & (p->consumers.admitted | p->consumers.lingering);
		     fresh; fresh &= fresh - 1) {
			uint32_t consumer = (uint32_t)__builtin_ctzll(fresh);
			const struct channel_ledger *ledger = p->peers[consumer].ledger;

			if (!p->ordered || ring_may_sleep(&ledger->sleeping))
				who |= RING_BIT(consumer);
			if (atomic_load_explicit(&ledger->receives_no_more, memory_order_relaxed))
				leaving |= RING_BIT(consumer);
		}
		/* who gets it instead may be leaving, too */
	} while (leaving && ring_notice_leaving(p, leaving));
	p->consumers.fresh = 0;
	return who;
}

/* One ring is enough for a sleep. */
uint64_t ring_producer_wake(struct ring_producer *p)
{
	uint64_t who = who_may_sleep(p), doorbells = 0, bells = 0;

	if (who)
		ring_barrier();
	for (; who; who &= who - 1) {
		uint32_t consumer = (uint32_t)__builtin_ctzll(who);
		struct ring_peer *peer = &p->peers[consumer];
		uint32_t sleeping =
		    atomic_load_explicit(&peer->ledger->sleeping, memory_order_relaxed);
		uint32_t state = sleeping & CHANNEL_SLEEP_STATE;

		if (state == CHANNEL_AWAKE || sleeping == peer->rung)
			continue;
		if (state == CHANNEL_ON_FUTEX)
			bells |= RING_BIT(channel_lane_of(&p->shape, consumer));
		else if (state == CHANNEL_ON_DOORBELL)
			doorbells |= RING_BIT(consumer);
		peer->rung = sleeping;
	}
	for (; bells; bells &= bells - 1)
		ring_bell(&p->lanes[__builtin_ctzll(bells)].shared->bell);
	return doorbells;
}

/* Whoever sleeps is told, without a look at who does: it is done once, so no barrier is spared. A
 * consumer reads the bell first and the word after that, so either it sees the word, or its bell
 * has changed. */
uint64_t ring_producer_sends_no_more(struct ring_producer *p)
{
	/* behind all that was sent: whoever sees it sees every message */
	atomic_store_explicit(&p->page.header->sends_no_more, 1, memory_order_release);
	for (uint32_t i = 0; i < channel_lanes(&p->shape); i++)
		ring_bell(&p->lanes[i].shared->bell);
	return p->consumers.admitted | p->consumers.lingering;
}

/* Any ticket may be the one that comes back. */
static uint64_t who_keeps_tickets(struct ring_producer *p)
{
	uint64_t who = 0;

	for (uint32_t i = 0; i < p->shape.in_flight; i++) {
		struct ring_ticket *t = &p->tickets[i];

		if (t->pending && t->list < LISTS)
			ring_observe(p, (uint16_t)i, true);
		who |= t->pending;
	}
	return who;
}

static uint64_t who_keeps_room(struct ring_producer *p)
{
	uint64_t who = 0;

	if (ring_is_queue(p))
		return p->consumers.admitted;
	if (p->shape.mode == CHANNEL_DIRECT)
		return p->consumers.admitted &
		       (p->full.target < CHANNEL_MEMBERS_MAX ? RING_BIT(p->full.target) : 0);
	for (uint64_t i = p->consumers.admitted & ~p->consumers.latest; i; i &= i - 1) {
		uint32_t consumer = (uint32_t)__builtin_ctzll(i);

		if (ring_taken(p, consumer) + p->shape.depth <= p->lanes[0].tail)
			who |= RING_BIT(consumer);
	}
	return who;
}

static uint64_t who_must_act(struct ring_producer *p)
{
	if (p->full.for_consumers)
		return 0;
	return p->full.for_tickets ? who_keeps_tickets(p) : who_keeps_room(p);
}

bool ring_producer_lacks_tickets(const struct ring_producer *p)
{
	return !p->full.for_consumers &&
	       (p->full.for_tickets || p->free.n == 0 || p->shape.mode == CHANNEL_DIRECT);
}

bool ring_producer_has_made_way(const struct ring_producer *p)
{
	return p->full.for_tickets && p->full.comes_back;
}

bool ring_producer_lacks_consumers(const struct ring_producer *p)
{
	return p->full.for_consumers;
}

bool ring_producer_has_plenty(const struct ring_producer *p)
{
	return p->free.n >= (p->shape.in_flight - p->shape.history + 1) / 2;
}

bool ring_producer_is_deserted(const struct ring_producer *p)
{
	return p->consumers.admitted == 0;
}

uint64_t ring_producer_holdups(struct ring_producer *p)
{
	uint64_t who = who_must_act(p) & (p->consumers.admitted | p->consumers.leaving);

	return who & p->consumers.latest ? who & ~ring_who_is_modest(p) : who;
}

uint64_t ring_producer_keepers(struct ring_producer *p)
{
	return who_keeps_tickets(p) & ~p->consumers.latest;
}

uint64_t ring_producer_leaving(const struct ring_producer *p)
{
	return p->consumers.leaving;
}

bool ring_producer_has_moved(struct ring_producer *p, uint32_t consumer)
{
	struct ring_peer *peer = &p->peers[consumer];
	uint64_t progress;

	if (!((p->consumers.admitted | p->consumers.leaving) & RING_BIT(consumer)))
		return false;
	for (uint32_t i = 0; i < p->shape.in_flight; i++)
		if (p->tickets[i].pending & RING_BIT(consumer) &&
		    ring_observe_one(p, (uint16_t)i, consumer))
			ring_finish_if_through(p, (uint16_t)i);
	progress = ring_taken(p, consumer) + peer->acknowledged;
	if (progress == peer->progress)
		return false;
	peer->progress = progress;
	return true;
}

bool ring_producer_has_backlog(const struct ring_producer *p)
{
	return p->lists[LIST_BACKLOG].n > 0;
}

/*
 * On the futex of one consumer only if nobody else could make room. It is asked again after the
 * announcement: from then on that one rings whenever it does anything, and until it has, nothing
 * that anybody else does makes room.
 */
void ring_producer_sleep(struct ring_producer *p, bool doorbell, struct ring_sleep *out)
{
	uint64_t who = who_must_act(p);

	*out = (struct ring_sleep){NULL, 0, false};
	if (!doorbell && who && !(who & (who - 1))) {
		const struct ring_peer *peer = &p->peers[__builtin_ctzll(who)];
		struct ring_sleep sleep = {.word = &peer->ledger->bell};

		sleep.value = atomic_load_explicit(sleep.word, memory_order_acquire);
		sleep.unsure = !ring_sleeper_announce(&p->sleeper, CHANNEL_ON_FUTEX);
		if (who_must_act(p) == who) {
			*out = sleep;
			return;
		}
	}
	out->unsure = !ring_sleeper_announce(&p->sleeper, CHANNEL_ON_DOORBELL);
}

void ring_producer_awake(struct ring_producer *p)
{
	ring_sleeper_awake(&p->sleeper);
}
