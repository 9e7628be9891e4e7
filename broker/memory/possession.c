/* SPDX-License-Identifier: MIT */

/*
 * What a client has of segments: those that it was sent. They are written down by index, so that
 * nothing is sent twice. A user who cannot pay for what is written down is refused.
 */

#include <errno.h>
#include <stdlib.h>

#include "base/mutation.h"
#include "base/slab.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/memory.h"
#include "broker/memory/segment.h"

#define UNMAPPING_MAX 256
#define OVERDUE_MAX   4096

#define GROUP_SIZE (POSSESSION_GROUP * sizeof(struct possession))

void client_memory_deinit(struct client *c)
{
	struct client_memory *m = c->memory;
	uint64_t bytes = m->n_groups * sizeof(struct possession *);

	for (uint32_t i = 0; i < m->n_groups; i++) {
		bytes += m->groups[i] ? GROUP_SIZE : 0;
		free(m->groups[i]);
	}
	if (c->account)
		account_give_back(c->account, bytes);
	free(m->groups);
}

struct possession *client_possession(const struct client *c, uint32_t segment)
{
	const struct client_memory *m = c->memory;
	uint32_t group = segment / POSSESSION_GROUP;

	if (group >= m->n_groups || !m->groups[group])
		return NULL;
	return &m->groups[group][segment % POSSESSION_GROUP];
}

static int add_group(struct client *c, uint32_t group)
{
	struct client_memory *m = c->memory;
	void *groups = m->groups;

	if (group >= m->n_groups) {
		if (paid_grow(c->account, &groups, &m->n_groups, group,
			      sizeof(struct possession *)) < 0)
			return -ENOMEM;
		m->groups = groups;
	}
	m->groups[group] = calloc(1, GROUP_SIZE);
	if (!m->groups[group])
		return -ENOMEM;
	account_must_add(c->account, GROUP_SIZE);
	return 0;
}

int client_reserve_possession(struct client *c, uint32_t segment)
{
	const struct possession *has = client_possession(c, segment);
	uint32_t n = c->memory->n_groups, group = segment / POSSESSION_GROUP;
	uint64_t price = PRICE_POSSESSION;

	if (has && has->what)
		return 0;
	if (!has)
		price += GROUP_SIZE;
	if (group >= n)
		price += (paid_room(n, group) - n) * sizeof(struct possession *);
	if (!account_may_add(c->account, LIMIT_MEMORY, price) && !MUTATION(map_unpaid))
		return -EDQUOT;
	return has ? 0 : add_group(c, group);
}

bool client_is_overdue(struct client *c)
{
	/* libshare unmaps before it makes its next request; a client that never does piles up
	 * segments */
	return c->memory->n_unmapping > UNMAPPING_MAX && ++c->memory->n_overdue > OVERDUE_MAX;
}

uint32_t client_possessions_end(const struct client *c)
{
	return c->memory->n_groups * POSSESSION_GROUP;
}

bool client_has_segments(const struct client *c)
{
	for (uint32_t i = 0; i < client_possessions_end(c); i++) {
		const struct possession *has = client_possession(c, i);

		if (has && has->what)
			return true;
	}
	return false;
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

const struct object_kind possession_kind =
    OBJECT_KIND(RECORD_POSSESSION, "segment that a client has", struct had, possession_fields,
		possession_attach);

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
