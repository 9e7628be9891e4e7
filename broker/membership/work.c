/* SPDX-License-Identifier: MIT */

/*
 * What is left to do when members of channels have gone, a little at each turn of the loop. Nobody
 * says that a consumer's work is done, or its process dead, so claims are looked at every now and
 * then.
 */

#include <errno.h>
#include <limits.h>

#include <event2/event.h>

#include "broker/broker.h"
#include "broker/client/clients.h"
#include "broker/log/log.h"
#include "broker/membership/inside.h"
#include "broker/membership/membership.h"
#include "broker/orphan/orphan.h"

#define CLOSING_LOOKS 512 /* tickets of one producer that are looked at before the next one's */
#define LEAST_LOOKS   64  /* tickets of one claim that are looked at in any case */
#define LOOK_AGAIN_MS 50
#define SELDOM_MS     1000 /* how often it is looked whether anybody comes for what waits */

/* Takes over from producers in turn, so that nobody waits for all that another one leaves behind.
 * Those for which there is no memory come last, each once. True if there is more to do, and
 * something could be done. */
static bool work_on_closing(struct broker *b, int *budget)
{
	struct member_list *closing = &b->channels->closing;
	struct member *stuck = NULL, *m; /* the first one without memory, behind all others */
	bool gets_on = false;
	int given, left;

	while (*budget > 0 && (m = TAILQ_FIRST(closing)) && m != stuck) {
		given = CLOSING_LOOKS < *budget ? CLOSING_LOOKS : *budget;
		left = given;
		if (member_take_over(m, &left)) {
			*budget -= given - left + MEMBER_COST;
			gets_on = true;
			continue;
		}
		TAILQ_REMOVE(closing, m, as_producer.link);
		if (left != BUDGET_NO_MEMORY && stuck)
			TAILQ_INSERT_BEFORE(stuck, m, as_producer.link);
		else
			TAILQ_INSERT_TAIL(closing, m, as_producer.link);
		if (left != BUDGET_NO_MEMORY) {
			*budget -= given;
			gets_on = true;
			continue;
		}
		*budget -= MEMBER_COST;
		stuck = stuck ? stuck : m;
	}
	return gets_on && !TAILQ_EMPTY(closing);
}

/* Returns how many tickets of each claim are looked at in a turn. */
static int share_of_a_claim(const struct broker *b, int budget)
{
	int share = b->channels->n_followed > 0 ? budget / (int)b->channels->n_followed : budget;

	return share > LEAST_LOOKS ? share : LEAST_LOOKS;
}

/* Looks at each claim once at most. Those for which there is no time come first the next time. */
static void look_at_claims(struct broker *b, int *budget)
{
	const struct claim *last = NULL;
	struct claim *claim = TAILQ_FIRST(&b->channels->claims);
	int share = share_of_a_claim(b, *budget), left;
	bool was_last = !claim;

	if (claim)
		last = TAILQ_LAST(&b->channels->claims, claim_list);
	while (!was_last && *budget > 0) {
		claim = TAILQ_FIRST(&b->channels->claims);
		was_last = claim == last;
		TAILQ_REMOVE(&b->channels->claims, claim, link);
		TAILQ_INSERT_TAIL(&b->channels->claims, claim, link);
		left = share;
		claim_look(claim, &left);
		*budget -= share - left + 1;
	}
}

/* Goes on at once as long as claims end, give something up or have only been looked through in
 * part, as there is something that has had no turn yet. */
static void on_work(evutil_socket_t fd, short what, void *data)
{
	struct broker *b = data;
	uint64_t before = b->channels->n_steps;
	int turn = clients_turn(b->clients, CHANNELS_TURN), budget = turn;
	bool at_work;

	(void)fd, (void)what;
	at_work = work_on_closing(b, &budget);
	/* the budget is a new one, so that whoever closes channels without end does not keep
	 * memory from coming back */
	budget = turn;
	look_at_claims(b, &budget);
	budget = turn;
	orphans_leave(b, &budget);
	orphans_look(b, &budget);
	if (at_work || b->channels->n_steps != before)
		broker_set_timer(b, b->channels->work, 0);
	else if (!TAILQ_EMPTY(&b->channels->closing) || !TAILQ_EMPTY(&b->channels->claims))
		broker_set_timer(b, b->channels->work, LOOK_AGAIN_MS);
	else if (b->channels->n_orphans > 0)
		broker_set_timer(b, b->channels->work, SELDOM_MS);
}

int channels_start(struct broker *b)
{
	supply_start(b->memory);
	b->channels->work = event_new(b->base, -1, 0, on_work, b);
	return b->channels->work ? 0 : -ENOMEM;
}

void channels_wake(struct broker *b)
{
	struct channel *ch;

	TAILQ_FOREACH (ch, &b->channels->list, link)
		channel_changed(ch, 0);
}

/* Everybody is dead by now, so that all claims can end. */
void channels_end(struct broker *b)
{
	int budget = INT_MAX;

	look_at_claims(b, &budget);
	orphans_end_all(b);
	if (!TAILQ_EMPTY(&b->channels->list) || b->channels->n_members > 0)
		log_bug("channels outlive the broker");
}
