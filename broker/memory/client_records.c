/* SPDX-License-Identifier: MIT */

/* The records of what clients have of memory: pools that are open, and segments. */

#include <errno.h>
#include <stdlib.h>

#include "base/slab.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/inside.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/records.h"
#include "broker/memory/segment.h"

static void open_pool_fields(struct record *r, void *object)
{
	struct open_pool *open = object;

	record_client(r, &open->client);
	record_pool(r, &open->pool);
	record_u64(r, &open->count);
	record_flag(r, &open->asks);
	record_flag(r, &open->has_magazine);
}

static int open_pool_attach(struct broker *b, void *object)
{
	struct open_pool *open = object;
	struct client *c = open->client;

	(void)b;
	if (!c || open->count == 0 || client_find_pool(c, open->pool->id))
		return -EBADMSG;
	client_has_open(open);
	return open->asks && pool_user_comes(open->pool, c->account) < 0 ? -ENOMEM : 0;
}

static const struct object_kind open_pool_kind = {
    .type = RECORD_OPEN_POOL,
    .name = "pool that is open",
    .size = sizeof(struct open_pool),
    .record = offsetof(struct open_pool, record),
    .fields = open_pool_fields,
    .attach = open_pool_attach,
};

void open_pool_note(struct open_pool *open)
{
	object_put(open->pool->broker->journal, &open_pool_kind, open);
}

int open_pools_restore(struct broker *b)
{
	return objects_restore(b->journal, &open_pool_kind, b);
}

/* ------------------------------------------------------------------------------------------- */

/* What a client has of a segment, as its record says it. In the client this is smaller (struct
 * possession). */
struct had {
	struct client *client;
	uint32_t segment, what, record;
};

static void possession_fields(struct record *r, void *object)
{
	struct had *had = object;

	record_client(r, &had->client);
	record_u32(r, &had->segment);
	record_u32(r, &had->what);
}

static int possession_attach(struct broker *b, void *object)
{
	struct had *had = object;
	struct client *c = had->client;
	struct segment *s = slab_at(&b->memory->segments, had->segment);
	bool maps = had->what & (SEGMENT_READABLE | SEGMENT_WRITABLE);
	bool unmaps = had->what & SEGMENT_UNMAPPING;
	struct possession *has;
	int r;

	if (!c || !s || !s->in_use || had->what == 0 ||
	    had->what > (SEGMENT_READABLE | SEGMENT_WRITABLE | SEGMENT_UNMAPPING))
		return -EBADMSG;
	/* no limit counts while a broker takes over: what the client was sent it has */
	r = client_reserve_possession(c, had->segment);
	if (r < 0)
		return r;
	has = client_possession(c, had->segment);
	if (has->what)
		return -EBADMSG;
	has->what = (uint8_t)had->what;
	has->record = had->record;
	s->importers += maps;
	s->unmapping += unmaps;
	c->memory->n_unmapping += unmaps;
	account_must_add(c->account, PRICE_POSSESSION);
	free(had);
	return 0;
}

static const struct object_kind possession_kind = {
    .type = RECORD_POSSESSION,
    .name = "segment that a client has",
    .size = sizeof(struct had),
    .record = offsetof(struct had, record),
    .fields = possession_fields,
    .attach = possession_attach,
};

void possession_note(struct client *c, uint32_t index)
{
	struct possession *has = client_possession(c, index);
	struct had had = {.client = c, .segment = index};

	if (!has)
		return;
	had.what = has->what;
	had.record = has->record;
	if (had.what)
		object_put(c->broker->journal, &possession_kind, &had);
	else
		journal_drop(c->broker->journal, &had.record);
	/* the record is paid for; there is none any more once the journal has ended */
	if (had.record && !has->record)
		account_must_add(c->account, PRICE_POSSESSION);
	else if (!had.record && has->record)
		account_give_back(c->account, PRICE_POSSESSION);
	has->record = had.record;
}

int possessions_restore(struct broker *b)
{
	return objects_restore(b->journal, &possession_kind, b);
}
