/* SPDX-License-Identifier: MIT */

/* How claims are looked at, and what is given up when their consumers are done with it. */

#include "broker/channel/progress.h"
#include "broker/channel/records.h"
#include "broker/membership/inside.h"
#include "broker/orphan/orphan.h"

static bool is_done_with(struct claim *claim, const struct entry *entry)
{
	const struct inherited *inherited = entry->inherited;
	enum acknowledgement acknowledged;

	if (entry->further_of)
		return false;
	acknowledged = claim_ask_row(claim, inherited->ticket, inherited->version);
	if (orphan_look(claim, inherited, acknowledged))
		return true;
	switch (acknowledged) {
	case STILL_RUNS:
		return false;
	case DONE_WITH:
		return true;
	case NOT_ACKNOWLEDGED:
		break;
	}
	return claim->over;
}

/* Looks at each entry once at most; giving up one may give up others of the same message. Each part
 * of the row is looked for once: a consumer that has thousands of entries and writes nothing would
 * have the broker look for its row as often, again after each message that it fetches. */
static void look_at_entries(struct claim *claim, int *budget)
{
	struct member *consumer = claim->consumer;
	struct entry *entry;

	member_remember_looks(
	    consumer, channel_row_at(consumer->page.memory, &consumer->channel->shape, claim->row));
	for (uint32_t left = claim->n;
	     left > 0 && *budget > 0 && (entry = TAILQ_FIRST(&claim->entries)); left--, --*budget) {
		if (is_done_with(claim, entry)) {
			entry_give_up(claim, entry);
			continue;
		}
		TAILQ_REMOVE(&claim->entries, entry, link);
		TAILQ_INSERT_TAIL(&claim->entries, entry, link);
	}
	member_forget_looks(consumer);
}

/* While both take part, the producer itself sees what the consumer acknowledges. */
static bool has_parted(const struct claim *claim)
{
	return claim->producer->state == MEMBER_GONE || claim->consumer->state == MEMBER_GONE;
}

void claim_look(struct claim *claim, int *budget)
{
	bool ends = claim->over && has_parted(claim);

	look_at_entries(claim, budget);
	if (claim->n == 0 && ends && claim_is_quiet(claim, budget)) {
		producer_note_acknowledged(claim->producer);
		claim_end(claim);
	} else if (claim->n == 0 && !ends) {
		claim_unfollow(claim);
	}
}

void claim_is_over(struct claim *claim)
{
	/* Said again, it changes nothing, but each time would cost a look at everything. */
	if (claim->over)
		return;
	claim_tell_left_behind(claim);
	claim->over = true;
	claim_note(claim);
	claim_follow(claim);
}

void claims_are_over(struct member *consumer)
{
	for (struct claim *claim = claims_first(consumer); claim;
	     claim = claims_next(consumer, claim)) {
		claim->over = true;
		claim_note(claim);
		claim_follow(claim);
	}
}
