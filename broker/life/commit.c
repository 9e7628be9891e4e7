/* SPDX-License-Identifier: MIT */

/*
 * What each turn of the loop ends with, and each request: all that has happened counts from then
 * on, with the numbers that were given out, and who waits for an answer gets it.
 */

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/channel/channel.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/device/device.h"
#include "broker/journal/journal.h"
#include "broker/journal/record.h"
#include "broker/keeper/blame.h"
#include "broker/keeper/kept.h"
#include "broker/life/inside.h"
#include "broker/memory/memory.h"
#include "broker/names/names.h"
#include "broker/order/order.h"

#define IDS_LEAST 104 /* the bytes of the record in layout 0 */

/* The last of each number that was given out by this broker and those before it, as none is ever
 * given out twice. They are read first, as one of them is the layout of all other records. They are
 * compared in each turn of the loop; inline that takes a fifth of the instructions, as each place
 * in the record is known then. */
static inline __attribute__((always_inline)) void ids_fields(struct record *r, struct broker *b)
{
	uint64_t layout = journal_layout(b->journal);

	record_u64(r, &b->clients->last_id);
	record_u64(r, &b->order->last_page);
	record_u64(r, &b->memory->last_pool);
	record_u64(r, &b->memory->next_address);
	record_u64(r, &b->names->last_watch);
	record_u64(r, &b->names->last_version);
	record_u64(r, &b->channels->last_channel);
	record_u64(r, &b->channels->last_member);
	record_u32(r, &b->channels->last_claim);
	record_u64(r, &b->clients->last_waiting);
	record_u64(r, &b->devices->last_event);
	record_u64(r, &b->started_ms); /* the start of the first broker */
	record_u64(r, &layout);
	if (r->is_read)
		r->error = journal_set_layout(b->journal, layout);
	r->layout = (uint32_t)layout;
	assert(r->at <= sizeof(b->life->ids));
}

static void ids_note(struct broker *b)
{
	unsigned char now[sizeof(b->life->ids)];
	struct record r = {.bytes = now};

	ids_fields(&r, b);
	if (memcmp(now, b->life->ids, r.at) == 0 || MUTATION(numbers_not_noted))
		return;
	memcpy(b->life->ids, now, r.at);
	journal_put(b->journal, RECORD_IDS, &b->life->ids_record, now, r.at);
}

static int read_ids(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct broker *b = data;
	struct record r = {.bytes = (unsigned char *)(uintptr_t)bytes, .is_read = true};

	(void)size;
	if (b->life->ids_record)
		return -EBADMSG;
	b->life->ids_record = record;
	ids_fields(&r, b);
	return r.error;
}

/* There is no record of them if the broker died before it had done anything. */
int ids_restore(struct broker *b)
{
	return journal_read(b->journal, RECORD_IDS, IDS_LEAST, read_ids, b);
}

void broker_commit(struct broker *b)
{
	size_t closing;

	do {
		ids_note(b);
		if (MUTATION(said_before_it_counts))
			connections_flush(b);
		journal_commit(b->journal);
		closing = kept_waiting();
		connections_flush(b);
		/* what has to wait has descriptors of its own by now: a record has to say so before
		 * those that it was said with are closed */
		if (closing > 0)
			journal_commit(b->journal);
		kept_flush(closing);
	} while (!TAILQ_EMPTY(&b->clients->news) || kept_waiting() > 0);
	unpaid_count(b);
	blame_end();
}
