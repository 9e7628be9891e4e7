/* SPDX-License-Identifier: MIT */

/* How members go: they close the channel, their clients lose the connection, or end. */

#include <share/channel.h>

#include "broker/channel/claim.h"
#include "broker/channel/progress.h"
#include "broker/channel/records.h"
#include "broker/client/client.h"
#include "broker/keeper/kept.h"
#include "broker/membership/inside.h"
#include "broker/membership/membership.h"

/* Frees a member that was never ready, of which nobody is told. */
static void forget(struct member *m)
{
	struct channel *ch = m->channel;

	member_detach(m);
	member_free(m);
	channel_end_if_unused(ch);
}

static void tell_if_left_behind(struct member *m)
{
	for (struct claim *claim = claims_first(m); claim; claim = claims_next(m, claim))
		claim_tell_left_behind(claim);
}

static void consumer_goes(struct member *m)
{
	struct channel *ch = m->channel;

	tell_if_left_behind(m);
	m->state = MEMBER_GONE;
	member_detach(m);
	member_give_slot_back(m);
	m->doorbell = kept_close(m->doorbell);
	m->pidfd = kept_close(m->pidfd);
	member_note(m);
	claims_are_over(m);
	channel_changed(ch, SHARE_CONSUMER);
	member_free_if_unused(m);
	channel_end_if_unused(ch);
}

bool member_close(struct member *m, uint32_t serial)
{
	if (m->state == MEMBER_PREPARING) {
		forget(m);
		return true;
	}
	if (m->role == SHARE_CONSUMER) {
		consumer_goes(m);
		return true;
	}
	m->as_producer.closed = true; /* member_take_over_later() notes that, too */
	member_take_over_later(m, serial);
	return false;
}

void members_leave(struct client *c)
{
	struct member *m = LIST_FIRST(&c->members), *next;

	for (; m; m = next) {
		next = LIST_NEXT(m, of_client);
		if (m->state == MEMBER_PREPARING) {
			forget(m);
		} else if (m->state == MEMBER_HERE) {
			if (m->role == SHARE_CONSUMER)
				tell_if_left_behind(m);
			m->state = MEMBER_LEFT;
			member_note(m);
			m->channel->left |= 1u << m->role;
		}
	}
	/* the others hear of it once, however many members of theirs the client was */
	LIST_FOREACH (m, &c->members, of_client) {
		uint32_t role = m->channel->left & 1u << m->role;

		m->channel->left &= ~role;
		if (role)
			channel_changed(m->channel, m->role);
	}
}

bool members_end(struct client *c, int *budget)
{
	struct member *m;

	while ((m = LIST_FIRST(&c->members))) {
		if (*budget <= 0)
			return false;
		if (c->requests.goodbye && !m->as_producer.closed) {
			m->as_producer.closed = true;
			member_note(m);
		}
		if (m->state == MEMBER_PREPARING)
			forget(m);
		else if (m->role == SHARE_CONSUMER)
			consumer_goes(m);
		else if (!member_take_over(m, budget))
			return false;
		*budget -= MEMBER_COST;
	}
	return true;
}
