/* SPDX-License-Identifier: MIT */

/*
 * A broker that looks whether its journal says what is: after each commit (of large brokers, after
 * some) it notes all objects again, and each record has to be what is there already. A record that
 * belongs to no object counts as well. Whoever has changed something and has not noted it is found
 * out so, and the broker dies of it: "BUG".
 *
 * What is written in place is no copy, but for a few numbers, which are compared. Of a block's
 * fences the journal may have some that are reached by now.
 */

#include <inttypes.h>
#include <string.h>
#include <sys/uio.h>

#include <share/channel.h>

#include "base/slab.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/buffer/records.h"
#include "broker/buffer/scrub.h"
#include "broker/channel/channel_object.h"
#include "broker/channel/records.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/inside.h"
#include "broker/client/records.h"
#include "broker/device/agent.h"
#include "broker/device/child.h"
#include "broker/device/device.h"
#include "broker/device/ipc_event.h"
#include "broker/journal/generations.h"
#include "broker/journal/journal.h"
#include "broker/keeper/keeper.h"
#include "broker/log/log.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/records.h"
#include "broker/memory/segment.h"
#include "broker/names/name.h"
#include "broker/names/names.h"
#include "broker/names/token.h"
#include "broker/names/watch.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "broker/order/records.h"
#include "broker/orphan/orphan.h"
#include "broker/pools/open_pools.h"
#include "broker/pools/pool_records.h"
#include "tests/themes/survival/audit.h"

#define FEW      1000       /* buffers and events */
#define ONE_IN   64         /* commits, of a broker with more */
#define ALL_LOST UINT32_MAX /* number of fences in the record of a block */

static struct broker *broker;
static bool auditing;
static uint32_t found[RECORD_TYPES];

/* ------------------------------------------------------------------------------------------- */
/* What is noted while it looks                                                                */

/* Of the record of a block. */
static bool has_fence(const unsigned char *record, uint32_t n, const unsigned char *fence)
{
	const unsigned char *fences = record + sizeof(struct block_record);

	for (uint32_t i = 0; i < n; i++)
		if (memcmp(fences + i * sizeof(struct fence_record), fence,
			   sizeof(struct fence_record)) == 0)
			return true;
	return false;
}

static bool is_same_block(const unsigned char *record, size_t size, const unsigned char *now,
			  size_t now_size)
{
	const unsigned char *fences = now + sizeof(struct block_record);
	struct block_record was, is;
	uint32_t n_was, n_is;

	if (!block_record_read(record, size, &was) || !block_record_read(now, now_size, &is))
		return false;
	n_was = was.n_fences;
	n_is = is.n_fences;
	was.n_fences = is.n_fences = 0;
	if (memcmp(&was, &is, sizeof(was)) != 0)
		return false;
	if (n_was == ALL_LOST || n_is == ALL_LOST)
		return n_was == ALL_LOST;
	for (uint32_t i = 0; i < n_is; i++)
		if (!has_fence(record, n_was, fences + i * sizeof(struct fence_record)))
			return false;
	return true;
}

static void compare(const struct journal *j, enum record_type type, uint32_t record,
		    const struct iovec *parts, size_t n)
{
	static unsigned char now[2 * RECORD_SIZE_MAX];
	const unsigned char *bytes;
	size_t size = 0, room;

	found[type]++;
	if (!record) {
		log_bug("an object has no record (type %d)", type);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (parts[i].iov_len > 0)
			memcpy(now + size, parts[i].iov_base, parts[i].iov_len);
		size += parts[i].iov_len;
	}
	bytes = journal_bytes(j, record, &room);
	if (size < room)
		memset(now + size, 0, room - size);
	if (type == RECORD_BUFFER ? !is_same_block(bytes, room, now, size)
				  : size > room || memcmp(bytes, now, room) != 0) {
		size = 0;
		while (size < room && bytes[size] == now[size])
			size++;
		log_bug("a record is not what its object is (type %d, byte %zu of %zu)", type, size,
			room);
	}
}

void __real_journal_put(struct journal *j, enum record_type type, uint32_t *record,
			const void *bytes, size_t size);
void __wrap_journal_put(struct journal *j, enum record_type type, uint32_t *record,
			const void *bytes, size_t size);
void __wrap_journal_put(struct journal *j, enum record_type type, uint32_t *record,
			const void *bytes, size_t size)
{
	const struct iovec part = {(void *)(uintptr_t)bytes, size};

	if (auditing)
		compare(j, type, *record, &part, 1);
	else
		__real_journal_put(j, type, record, bytes, size);
}

void __real_journal_put_parts(struct journal *j, enum record_type type, uint32_t *record,
			      const struct iovec *parts, size_t n);
void __wrap_journal_put_parts(struct journal *j, enum record_type type, uint32_t *record,
			      const struct iovec *parts, size_t n);
void __wrap_journal_put_parts(struct journal *j, enum record_type type, uint32_t *record,
			      const struct iovec *parts, size_t n)
{
	if (auditing)
		compare(j, type, *record, parts, n);
	else
		__real_journal_put_parts(j, type, record, parts, n);
}

void __real_journal_drop(struct journal *j, uint32_t *record);
void __wrap_journal_drop(struct journal *j, uint32_t *record);
void __wrap_journal_drop(struct journal *j, uint32_t *record)
{
	if (!auditing)
		__real_journal_drop(j, record);
	else if (*record)
		log_bug("something that is no more has a record");
}

/* ------------------------------------------------------------------------------------------- */
/* All objects                                                                                 */

static void audit_generation(const struct generations *g, uint32_t index, uint32_t generation)
{
	uint32_t part = index / GENERATIONS_PART;

	/* it may be a later one, which a broker that died had noted and not used: of a slot that it
	 * had emptied and given out again, and had not come to a commit */
	if (part >= g->n_parts || !g->parts[part] ||
	    g->parts[part][index % GENERATIONS_PART] < generation)
		log_bug("a generation is not noted");
}

static void audit_timelines(const struct client *c)
{
	const struct timelines *t = c->order->timelines;

	if (t->in_place->id != t->id || t->in_place->dead != t->dead ||
	    (c->record && t->in_place->client != c->id) ||
	    (c->record && t->in_place->uid != c->peer.uid))
		log_bug("a page's record is not what it is");
}

static void audit_client(struct client *c)
{
	struct open_pool *open;
	struct unanswered *u;
	struct queued *q;
	struct lease *lease;

	client_note(c);
	if (c->order->timelines)
		audit_timelines(c);
	LIST_FOREACH (open, &c->memory->pools, link)
		open_pool_note(open);
	for (uint32_t i = 0; i < client_possessions_end(c); i++)
		possession_note(c, i);
	TAILQ_FOREACH (lease, &c->buffers->leases, of_client)
		lease_note(lease);
	TAILQ_FOREACH (u, &c->requests.unanswered, of_client)
		found[RECORD_WAITING]++;
	if (!c->connection)
		return;
	TAILQ_FOREACH (q, &c->connection->queue, link)
		queued_note(q);
}

static void audit_memory(struct broker *b)
{
	struct pool *p;

	LIST_FOREACH (p, &b->memory->pools, link) {
		struct block *block = p->gated.n > 0 ? p->gated.first : NULL;

		pool_note(p);
		for (uint32_t i = 0; i < p->gated.n; i++, block = block->owner)
			block_note_gated(block);
	}
	for (uint32_t i = 0; i < slab_end(&b->memory->segments); i++) {
		struct segment *s = slab_at(&b->memory->segments, i);

		if (!s || !s->in_use)
			continue;
		segment_note(b, s);
		audit_generation(&b->memory->generations, i, s->generation);
	}
}

static void audit_buffers(struct broker *b)
{
	for (uint32_t i = 0; i < slab_end(&b->buffers->slab); i++) {
		struct buffer *buffer = slab_at(&b->buffers->slab, i);

		if (!buffer || buffer->refs == 0)
			continue;
		buffer_note(buffer);
		if (buffer->metadata)
			metadata_note(buffer);
		audit_generation(&b->buffers->generations, i, buffer->generation);
	}
}

static void audit_names(struct broker *b)
{
	struct name *n = name_next(b, "", 0, true);
	struct watch *w;

	for (; n; n = name_next(b, n->text, n->size, false))
		name_note(b, n);
	TAILQ_FOREACH (w, &b->names->watches, link)
		watch_note(b, w);
	for (uint32_t i = 0; i < slab_end(&b->names->token_slab); i++) {
		struct token *t = slab_at(&b->names->token_slab, i);

		if (!t || !t->live)
			continue;
		token_note(b, t);
		audit_generation(&b->names->token_generations, i, t->generation);
	}
}

/* One of several buffers is found by each of its tickets. */
static bool stands_for_a_message(struct member *producer, uint32_t ticket)
{
	const struct orphan *o = orphan_find(producer, ticket);

	return o && o->ticket == ticket;
}

static void audit_channels(struct broker *b)
{
	struct channel *ch;
	struct member *m;

	TAILQ_FOREACH (ch, &b->channels->list, link) {
		channel_note(ch);
		TAILQ_FOREACH (m, &ch->members, of_channel) {
			struct acknowledged *a = m->as_producer.acknowledged;
			struct claim *claim = claims_first(m);
			struct entry *entry;

			member_note(m);
			for (; m->role == SHARE_PRODUCER && claim; claim = claims_next(m, claim)) {
				claim_note(claim);
				TAILQ_FOREACH (entry, &claim->entries, link)
					entry_note(claim, entry);
			}
			for (uint32_t i = 0; i < ch->shape.in_flight; i++)
				if (m->role == SHARE_PRODUCER && stands_for_a_message(m, i))
					orphan_note(orphan_find(m, i));
			if (a && a->is_noted)
				acknowledged_note(a);
			else if (a && a->record) /* what is new is noted when a claim ends */
				found[RECORD_ACKNOWLEDGED]++;
		}
	}
}

static void audit_devices(struct broker *b)
{
	struct event_lease *lease;
	struct ipc_event *e;
	struct device *d;

	LIST_FOREACH (d, &b->devices->list, link) {
		/* what a look finds is noted when it is over */
		if (d->record && !b->devices->looking)
			device_note(d);
		else
			found[RECORD_DEVICE] += d->record != 0;
		agent_note(d->agent);
		TAILQ_FOREACH (e, &d->events, link) {
			event_note(e);
			LIST_FOREACH (lease, &e->leases, of_event)
				event_lease_note(lease);
		}
	}
	children_note(b);
	scrubs_note(b);
}

/* Of which there need not be one for each object: those of pages are also there for fences of who
 * is gone. */
static bool is_counted(enum record_type type)
{
	return type != RECORD_IDS && type != RECORD_TIMELINES && type != RECORD_DIED_PAGES &&
	       type != RECORD_GENERATIONS;
}

/* Also of a type that nothing here knows objects of. */
static void audit_counts(const struct journal *j)
{
	for (enum record_type type = RECORD_NONE + 1; type < RECORD_TYPES; type++)
		if (is_counted(type) && journal_count(j, type) != found[type])
			log_bug("the journal has %" PRIu32 " records of type %d for %" PRIu32
				" objects",
				journal_count(j, type), type, found[type]);
}

/* Of all users together, of what each record is charged to one. */
static void audit_accounts(const struct broker *b, const struct journal *j)
{
	static const struct {
		enum limit_kind resource;
		enum record_type type;
	} counted[] = {
	    {LIMIT_LEASES, RECORD_LEASE},
	    {LIMIT_NAMES, RECORD_NAME},
	    {LIMIT_TOKENS, RECORD_TOKEN},
	    {LIMIT_CHANNELS, RECORD_MEMBER},
	};
	const struct account *a;

	for (size_t i = 0; i < sizeof(counted) / sizeof(counted[0]); i++)
		if (accounts_used(b->accounts, counted[i].resource) !=
		    journal_count(j, counted[i].type))
			log_bug("users have %" PRIu64 " %s, and the journal %" PRIu32,
				accounts_used(b->accounts, counted[i].resource),
				limit_name(counted[i].resource), journal_count(j, counted[i].type));
	for (int kind = 0; kind < LIMIT_KINDS; kind++) {
		uint64_t at = 0, sum = accounts_nobodys(b->accounts, (enum limit_kind)kind);

		for (; (a = account_from(b->accounts, at)); at = (uint64_t)account_uid(a) + 1)
			sum += account_used(a, (enum limit_kind)kind);
		if (sum != accounts_used(b->accounts, kind))
			log_bug("all users and nobody have %" PRIu64
				" of %s, and together %" PRIu64,
				sum, limit_name((enum limit_kind)kind),
				accounts_used(b->accounts, kind));
	}
}

static unsigned n_events(const struct broker *b)
{
	const struct device *d;
	unsigned n = 0;

	LIST_FOREACH (d, &b->devices->list, link)
		n += d->n_leased;
	return n;
}

void audit(struct journal *j)
{
	static unsigned n;
	struct broker *b = broker;

	if (!b || b->journal != j || b->has_ended || broker_is_ending(b))
		return;
	if (slab_live(&b->buffers->slab) + n_events(b) > FEW && ++n % ONE_IN > 0)
		return;
	auditing = true;
	memset(found, 0, sizeof(found));
	for (uint32_t i = 0; i < b->clients->n_slots; i++)
		if (b->clients->by_slot[i])
			audit_client(b->clients->by_slot[i]);
	audit_memory(b);
	audit_buffers(b);
	audit_names(b);
	audit_channels(b);
	audit_devices(b);
	audit_counts(j);
	audit_accounts(b, j);
	auditing = false;
}

int __real_broker_new(struct config *config, const struct keeper *keeper, struct broker **out);
int __wrap_broker_new(struct config *config, const struct keeper *keeper, struct broker **out);
int __wrap_broker_new(struct config *config, const struct keeper *keeper, struct broker **out)
{
	int r = __real_broker_new(config, keeper, out);

	broker = r < 0 ? NULL : *out;
	return r;
}
