/* SPDX-License-Identifier: MIT */

/*
 * Orphans that nobody gets. They wait for an hour without a consumer that may ask for them, unless
 * there are too many (room.c). What goes is counted and logged, and the next consumer is
 * told.
 *
 * There may be 64 times 8192 of them, so they go in several turns of the loop. Each turn has its
 * budget, and what is left then goes in the next one.
 */

#include <limits.h>
#include <stdio.h>

#include <share/channel.h>

#include "base/clock.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/memory/pool.h"
#include "broker/orphan/inside.h"

#define DESERTED_MS (60 * 60 * 1000)
#define LOOK_MS     1000

uint64_t orphans_lose_waiting(struct member *producer, int *budget)
{
	uint64_t n = 0;

	for (; producer->as_producer.n_waiting > 0 && *budget > 0; --*budget, n++)
		orphan_lose(TAILQ_FIRST(&producer->as_producer.waiting));
	return n;
}

/* Loses orphans that wait, of those producers for whose users @by (NULL: whoever) answers, as far
 * as there is time. Returns their number. */
static uint64_t lose_waiting_of(struct channel *ch, const struct client *by, const char *why,
				int *budget)
{
	uint64_t n = 0;
	struct member *m, *next;

	for (m = TAILQ_FIRST(&ch->members); m && *budget > 0; m = next) {
		next = TAILQ_NEXT(m, of_channel);
		if (m->role != SHARE_PRODUCER || m->state != MEMBER_GONE ||
		    (by && !client_answers_for(by, account_uid(m->timelines->account))))
			continue;
		n += orphans_lose_waiting(m, budget);
		member_free_if_unused(m);
	}
	channel_tell_lost(ch, n, NULL, why);
	return n;
}

/* A consumer that has lost its connection or was expelled may not ask; and a program with an older
 * library does not. */
bool anybody_may_fetch(const struct channel *ch, const struct member *but)
{
	for (uint32_t i = 0; i < ch->shape.consumers; i++) {
		const struct member *m = ch->consumers[i];

		if (m && m != but && (m->state == MEMBER_HERE || m->state == MEMBER_PREPARING) &&
		    m->client->version >= WIRE_VERSION_ORPHANS)
			return true;
	}
	return false;
}

/* Has the loop look again at once, as there was no time for all. */
static void look_again(struct broker *b)
{
	b->channels->looked_ms = 0;
	b->channels->n_steps++;
	channels_work_soon(b);
}

static void look(struct channel *ch, uint64_t now, int *budget)
{
	if (ch->orphans.waiting == 0 || anybody_may_fetch(ch, NULL)) {
		ch->orphans.deserted_ms = 0;
		return;
	}
	if (ch->orphans.deserted_ms == 0)
		ch->orphans.deserted_ms = now;
	if (ch->pool->destroyed)
		lose_waiting_of(ch, NULL, "their pool was destroyed", budget);
	else if (now - ch->orphans.deserted_ms >= DESERTED_MS)
		lose_waiting_of(ch, NULL, "no consumer has come for an hour", budget);
	/* those that come now have an hour of their own */
	if (ch->orphans.waiting == 0)
		ch->orphans.deserted_ms = 0;
	channel_end_if_unused(ch);
}

void orphans_look(struct broker *b, int *budget)
{
	struct channel *ch, *next;
	uint64_t now = clock_ms();

	if (b->channels->n_orphans == 0 || now - b->channels->looked_ms < LOOK_MS)
		return;
	b->channels->looked_ms = now;
	for (ch = TAILQ_FIRST(&b->channels->list); ch && *budget > 0; ch = next) {
		next = TAILQ_NEXT(ch, link);
		look(ch, now, budget);
	}
	if (*budget <= 0)
		look_again(b);
}

/* ------------------------------------------------------------------------------------------- */

bool channel_drop_messages(struct broker *b, const void *name, size_t size, const struct client *by,
			   uint64_t *n)
{
	struct channel *ch = channel_find(b, name, size);
	int budget = CHANNELS_TURN;
	char why[64];

	*n = 0;
	if (!ch)
		return true;
	snprintf(why, sizeof(why), "user %u has ended them", (unsigned)by->peer.uid);
	*n = lose_waiting_of(ch, by, why, &budget);
	channel_end_if_unused(ch);
	return budget > 0;
}

void orphans_end_all(struct broker *b)
{
	struct channel *ch, *next;
	int budget = INT_MAX;

	for (ch = TAILQ_FIRST(&b->channels->list); ch; ch = next) {
		next = TAILQ_NEXT(ch, link);
		if (ch->orphans.waiting > 0)
			lose_waiting_of(ch, NULL, "", &budget);
		channel_end_if_unused(ch);
	}
}
