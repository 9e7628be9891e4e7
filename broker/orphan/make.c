/* SPDX-License-Identifier: MIT */

/* How messages of a producer that goes become orphans, before its leases go. */

#include <errno.h>
#include <stdlib.h>

#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/channel/records.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/conversation.h"
#include "broker/memory/pool.h"
#include "broker/orphan/inside.h"

static uint32_t deliveries_of(const struct member *producer, const struct copy *copy)
{
	uint32_t most = producer->channel->shape.deliveries;

	return copy->deliveries == 0 ? 1 : copy->deliveries < most ? copy->deliveries : most;
}

/* Finds a buffer that the ring names, which may be none. False: it is not the producer's. */
static bool find_buffer(struct member *producer, uint64_t id, struct buffer **out)
{
	struct broker *b = producer->channel->broker;

	*out = id == CHANNEL_NO_BUFFER ? NULL : buffer_find(b, id);
	return id == CHANNEL_NO_BUFFER || (*out && buffer_pool(*out) == producer->channel->pool &&
					   lease_find(b, producer->client, *out));
}

static bool was_acknowledged(const struct member *producer, const struct claim *claim,
			     uint32_t ticket, uint32_t version)
{
	return producer_has_noted(producer, ticket, version) ||
	       (claim && claim_ask_row(claim, ticket, version) != NOT_ACKNOWLEDGED);
}

static void discard(struct orphan *o)
{
	free(o->further);
	free(o);
}

/* Finds the buffers behind the first one. False: some are not the producer's, or cannot be. */
static bool read_further(struct orphan *o, const struct copy *copy)
{
	for (uint32_t i = 0; i < o->n_further; i++) {
		struct orphan_further *f = &o->further[i];
		struct copy_further said;

		if (!copy_ask_further(o->producer, o->ticket, copy, i, &said) ||
		    !find_buffer(o->producer, said.buffer, &f->buffer))
			return false;
		f->ticket = said.ticket;
		f->version = said.version;
	}
	return orphan_has_tickets(o);
}

/* Makes an orphan that is nobody's yet, and not attached. NULL without memory, or if (*nonsense)
 * there can be no such message. */
static struct orphan *begin(struct member *producer, uint32_t ticket, const struct copy *copy,
			    struct buffer *buffer, bool *nonsense)
{
	struct orphan *o = orphans_prepare(producer) ? calloc(1, sizeof(*o)) : NULL;

	*nonsense = false;
	if (!o)
		return NULL;
	o->producer = producer;
	o->buffer = buffer;
	o->ticket = ticket;
	o->version = copy->version;
	o->number = copy->number;
	if (copy->n_further == 0)
		return o;
	o->n_further = (uint8_t)copy->n_further;
	o->further = calloc(o->n_further, sizeof(*o->further));
	*nonsense = o->further && !read_further(o, copy);
	if (o->further && !*nonsense)
		return o;
	discard(o);
	return NULL;
}

/* Makes an orphan of the message of this ticket, if it is one. False without memory. */
static bool make_orphan(struct member *producer, uint32_t ticket, int *budget)
{
	struct channel *ch = producer->channel;
	struct claim *claim = NULL;
	struct buffer *buffer;
	struct orphan *o;
	struct copy copy;
	bool in_lane, owned, had, nonsense;

	if (!copy_ask(producer, ticket, &copy) || copy.sequence == CHANNEL_COPY_FINISHED ||
	    orphan_find(producer, ticket)) /* an earlier broker has made it an orphan already */
		return true;
	*budget -= (int)copy.n_further;
	in_lane = copy.sequence != CHANNEL_COPY_WAITS;
	if (in_lane)
		claim = copy_owner(producer, &copy);
	if (was_acknowledged(producer, claim, ticket, copy.version) ||
	    !find_buffer(producer, copy.buffer, &buffer))
		return true;
	owned = claim && !claim->over;
	/* if its row is gone, nobody knows whether that consumer had received it */
	had = in_lane && !owned && (!claim || claim_taken(claim) >= copy.sequence);
	if (had && deliveries_of(producer, &copy) == ch->shape.deliveries) {
		orphans_lose_often(producer, 1);
		return true;
	}
	o = begin(producer, ticket, &copy, buffer, &nonsense);
	if (!o)
		return nonsense;
	if (owned && !orphan_add_entries(o, claim)) {
		discard(o);
		return false;
	}
	orphan_place(o);
	o->deliveries = deliveries_of(producer, &copy) + had;
	o->position = owned ? copy.sequence : 0;
	if (owned)
		orphan_set_owner(o, claim);
	else
		orphan_wait(o, false);
	orphan_note(o);
	return true;
}

static int compare_tickets(const void *left, const void *right)
{
	const struct orphan *a = *(struct orphan *const *)left, *b = *(struct orphan *const *)right;

	return (a->number > b->number) - (a->number < b->number);
}

/* Sorts the orphans that wait: they were found in the order of their tickets, and are received in
 * the order in which they were sent. Without memory for that they stay as they are. */
static void sort_waiting(struct producer *p)
{
	struct orphan **all =
	    p->n_waiting > 1 ? calloc(p->n_waiting, sizeof(struct orphan *)) : NULL;
	uint32_t n = 0;

	while (all && n < p->n_waiting) {
		all[n] = TAILQ_FIRST(&p->waiting);
		TAILQ_REMOVE(&p->waiting, all[n], link);
		n++;
	}
	if (all)
		qsort(all, n, sizeof(struct orphan *), compare_tickets);
	for (uint32_t i = 0; i < n; i++)
		TAILQ_INSERT_TAIL(&p->waiting, all[i], link);
	free(all);
}

bool orphans_make(struct member *producer, int *budget)
{
	struct producer *p = &producer->as_producer;
	struct channel *ch = producer->channel;

	if (p->orphans_made || p->transient || !channel_has_copies(&ch->shape, ch->layout) ||
	    ch->broker->has_ended || MUTATION(make_no_orphans))
		return true;
	/* each ticket is looked at once, as its message may be lost, which is counted */
	for (; member_next_ticket(producer, &p->next_orphan); p->next_orphan++, --*budget) {
		if (*budget <= 0)
			return false;
		if (!make_orphan(producer, p->next_orphan, budget)) {
			client_lose(producer->client, -ENOMEM);
			*budget = BUDGET_NO_MEMORY;
			return false;
		}
	}
	sort_waiting(p);
	p->orphans_made = true;
	return true;
}
