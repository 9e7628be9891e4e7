/* SPDX-License-Identifier: MIT */

/*
 * The records of channels. Who waits for what is not in them, as members say so in their own pages;
 * and what the broker writes to a channel's page itself, that somebody has come or gone, may be
 * written twice: whoever is woken asks, and is told what there is.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include <share/channel.h>

#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/channel/claim.h"
#include "broker/channel/records.h"
#include "broker/client/account.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/keeper/kept.h"
#include "broker/log/log.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/records.h"

/* The name follows. */
struct channel_record {
	uint64_t id, pool;
	struct channel_shape shape;
	uint32_t producers, service;
	uint32_t control; /* as the keeper has it */
	uint32_t size;
	uint32_t unused;
};

void channel_note(struct channel *ch)
{
	struct channel_record r = {
	    .id = ch->id,
	    .pool = ch->pool->id,
	    .shape = ch->shape,
	    .producers = ch->producers,
	    .service = ch->service,
	    .control = kept_id(ch->control_fd),
	    .size = (uint32_t)ch->size,
	};
	const struct iovec parts[] = {{&r, sizeof(r)}, {ch->name, ch->size}};

	journal_put_parts(ch->broker->journal, RECORD_CHANNEL, &ch->record, parts, 2);
}

struct member_record {
	uint64_t id, channel;
	uint64_t client, client_id; /* the former is 0 once it is not a client's any more */
	uint64_t timelines;
	int32_t pid;
	uint32_t role, state, serial, slot;
	uint32_t page, pidfd, doorbell; /* as the keeper has them */
	uint8_t closed, closing, writable, oldest, expelled, unused[3];
};

void member_note(struct member *m)
{
	const struct member_record r = {
	    .id = m->id,
	    .channel = m->channel->id,
	    .client = m->client ? m->client->id : 0,
	    .client_id = m->client_id,
	    .timelines = m->timelines->id,
	    .pid = m->pid,
	    .role = m->role,
	    .state = m->state,
	    .serial = m->as_producer.serial,
	    .slot = m->as_consumer.slot,
	    .page = kept_id(m->page.fd),
	    .pidfd = kept_id(m->pidfd),
	    .doorbell = kept_id(m->doorbell),
	    .closed = m->as_producer.closed,
	    .closing = m->as_producer.closing,
	    .writable = m->as_consumer.writable,
	    .oldest = m->as_consumer.oldest,
	    .expelled = m->as_consumer.expelled,
	};

	journal_put(m->channel->broker->journal, RECORD_MEMBER, &m->record, &r, sizeof(r));
}

struct claim_record {
	uint64_t producer, consumer;
	uint32_t number, row, next_ticket;
	uint8_t told_producer, told_consumer, over, taken;
};

void claim_note(struct claim *claim)
{
	const struct claim_record r = {
	    .producer = claim->producer->id,
	    .consumer = claim->consumer->id,
	    .number = claim->number,
	    .row = claim->row,
	    .next_ticket = claim->next_ticket,
	    .told_producer = claim->told_producer,
	    .told_consumer = claim->told_consumer,
	    .over = claim->over,
	    .taken = claim->taken,
	};

	journal_put(claim->producer->channel->broker->journal, RECORD_CLAIM, &claim->record, &r,
		    sizeof(r));
}

struct entry_record {
	uint64_t buffer;
	uint32_t claim, ticket, version;
	uint32_t consumer_pays;
};

void entry_note(const struct claim *claim, struct entry *entry)
{
	const struct entry_record r = {
	    .buffer = buffer_id(entry->kept->buffer),
	    .claim = claim->number,
	    .ticket = entry->kept->ticket,
	    .version = entry->kept->version,
	    .consumer_pays = entry->keep.account == claim->consumer->timelines->account,
	};

	journal_put(claim->producer->channel->broker->journal, RECORD_ENTRY, &entry->record, &r,
		    sizeof(r));
}

/* ------------------------------------------------------------------------------------------- */

/* Records that have to be read in order: copies of their beginnings. */
struct found {
	uint64_t order[2];
	uint32_t record;
};

struct reading {
	struct broker *broker;
	int error;
	struct found *found;
	size_t n, room;
	void (*order)(const void *bytes, uint64_t order[2]);
	/* While claims and what is in them are made again: by number, and by identifier. */
	struct claim **claims;
	size_t n_claims;
	struct member **members;
	size_t n_members;
};

static int find(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct reading *r = data;
	struct found *grown;

	(void)size;
	if (r->n == r->room) {
		r->room = r->room ? r->room * 2 : 64;
		grown = realloc(r->found, r->room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		r->found = grown;
	}
	r->found[r->n].record = record;
	r->order(bytes, r->found[r->n].order);
	r->n++;
	return 0;
}

static int compare(const void *left, const void *right)
{
	const struct found *a = left, *b = right;

	if (a->order[0] != b->order[0])
		return a->order[0] < b->order[0] ? -1 : 1;
	return (a->order[1] > b->order[1]) - (a->order[1] < b->order[1]);
}

typedef int restore_one(struct reading *r, uint32_t record, const void *bytes, size_t size);

static void restore_in_order(struct reading *r, enum record_type type, size_t least,
			     void (*order)(const void *bytes, uint64_t order[2]),
			     restore_one *restore)
{
	const void *bytes;
	size_t size;

	r->n = 0;
	r->order = order;
	if (r->error == 0)
		r->error = journal_read(r->broker->journal, type, least, find, r);
	if (r->n > 0)
		qsort(r->found, r->n, sizeof(*r->found), compare);
	for (size_t i = 0; r->error == 0 && i < r->n; i++) {
		bytes = journal_bytes(r->broker->journal, r->found[i].record, &size);
		r->error = restore(r, r->found[i].record, bytes, size);
	}
}

/* Of all but entries: their first number, which grows with what was made later. */
static void by_id(const void *bytes, uint64_t order[2])
{
	memcpy(order, bytes, sizeof(*order));
	order[1] = 0;
}

/* ------------------------------------------------------------------------------------------- */

static struct channel *find_channel(struct broker *b, uint64_t id)
{
	struct channel *ch;

	TAILQ_FOREACH (ch, &b->channels->list, link)
		if (ch->id == id)
			return ch;
	return NULL;
}

static bool is_channel(struct broker *b, const struct channel_record *r, const char *name,
		       size_t room)
{
	return r->id > 0 && r->id <= b->channels->last_channel && !find_channel(b, r->id) &&
	       r->size > 0 && r->size <= SHARE_NAME_MAX && r->size <= room &&
	       !channel_find(b, name, r->size) && channel_shape_is_valid(&r->shape);
}

static int restore_channel(struct reading *reading, uint32_t record, const void *bytes, size_t size)
{
	struct channel_record r;
	struct channel *ch;
	struct pool *pool;
	void *control;
	int fd;

	memcpy(&r, bytes, sizeof(r));
	pool = pool_of_record(reading->broker, r.pool);
	if (!pool ||
	    !is_channel(reading->broker, &r, (const char *)bytes + sizeof(r), size - sizeof(r)))
		return -EBADMSG;
	fd = kept_take_mapped(r.control, CHANNEL_CONTROL_SIZE, &control);
	if (fd < 0)
		return -EBADMSG;
	ch = calloc(1, sizeof(*ch) + r.size + 1);
	if (!ch)
		return -ENOMEM;
	ch->record = record;
	ch->control_fd = fd;
	ch->control = control;
	ch->id = r.id;
	ch->shape = r.shape;
	ch->producers = r.producers;
	ch->service = r.service;
	memcpy(ch->name, (const char *)bytes + sizeof(r), r.size);
	ch->size = r.size;
	channel_attach(reading->broker, ch, pool);
	return 0;
}

/* Who is GONE is nobody's any more, and all others somebody's. */
static bool is_member(const struct reading *reading, const struct member *m,
		      const struct member_record *r)
{
	size_t n = reading->n_members;

	if (m->id == 0 || m->id > reading->broker->channels->last_member ||
	    (n > 0 && reading->members[n - 1]->id == m->id))
		return false;
	if (!m->channel || !m->timelines || m->state > MEMBER_GONE ||
	    (m->role != SHARE_PRODUCER && m->role != SHARE_CONSUMER) ||
	    (m->state == MEMBER_GONE) != (r->client == 0) || (r->client && !m->client) ||
	    (m->client && m->client->memory->timelines != m->timelines))
		return false;
	if (m->role == SHARE_PRODUCER ? m->as_consumer.expelled
				      : m->as_producer.closing || m->as_producer.closed)
		return false;
	return m->page.fd >= 0 && (!r->pidfd || m->pidfd >= 0) &&
	       (!r->doorbell || m->doorbell >= 0);
}

static int restore_member(struct reading *reading, uint32_t record, const void *bytes, size_t size)
{
	struct broker *b = reading->broker;
	struct member **grown;
	struct member_record r;
	struct member *m = calloc(1, sizeof(*m));

	(void)size;
	grown = realloc(reading->members, (reading->n_members + 1) * sizeof(struct member *));
	if (grown)
		reading->members = grown;
	if (!m || !grown) {
		free(m);
		return -ENOMEM;
	}
	memcpy(&r, bytes, sizeof(r));
	m->record = record;
	m->id = r.id;
	m->channel = find_channel(b, r.channel);
	m->client = r.client ? clients_find(b->clients, r.client) : NULL;
	m->client_id = r.client_id;
	m->timelines = timelines_ref(timelines_find(b, r.timelines));
	m->pid = r.pid;
	m->role = r.role;
	m->state = r.state;
	m->as_producer.serial = r.serial;
	m->as_producer.closed = r.closed;
	m->as_producer.closing = r.closing;
	m->as_consumer.slot = r.slot;
	m->as_consumer.writable = r.writable;
	m->as_consumer.oldest = r.oldest;
	m->as_consumer.expelled = r.expelled;
	m->page.fd = kept_take(r.page);
	m->pidfd = kept_take(r.pidfd);
	m->doorbell = kept_take(r.doorbell);
	if (!is_member(reading, m, &r)) {
		timelines_unref(m->timelines);
		free(m);
		return -EBADMSG;
	}
	reading->members[reading->n_members++] = m;
	return member_attach(m);
}

/* They are in the order of their identifiers. */
static struct member *find_member(const struct reading *r, uint64_t id)
{
	size_t from = 0, to = r->n_members;

	while (from < to) {
		size_t middle = (from + to) / 2;

		if (r->members[middle]->id == id)
			return r->members[middle];
		if (r->members[middle]->id < id)
			from = middle + 1;
		else
			to = middle;
	}
	return NULL;
}

static void by_number(const void *bytes, uint64_t order[2])
{
	struct claim_record r;

	memcpy(&r, bytes, sizeof(r));
	order[0] = r.number;
	order[1] = 0;
}

/* Of members of one channel, with a row that is no other's. */
static bool is_claim(const struct reading *reading, const struct claim *claim)
{
	const struct member *producer = claim->producer, *consumer = claim->consumer;
	size_t n = reading->n_claims;

	if (claim->number == 0 || claim->number > reading->broker->channels->last_claim ||
	    (n > 0 && reading->claims[n - 1]->number == claim->number))
		return false;
	return producer && consumer && producer->channel == consumer->channel &&
	       producer->role == SHARE_PRODUCER && consumer->role == SHARE_CONSUMER &&
	       claim->row < consumer->channel->shape.rows &&
	       !(consumer->as_consumer.rows & UINT64_C(1) << claim->row) &&
	       !claim_find(producer, consumer->id);
}

static int restore_claim(struct reading *reading, uint32_t record, const void *bytes, size_t size)
{
	struct claim **grown;
	struct claim_record r;
	struct claim *claim;

	(void)size;
	memcpy(&r, bytes, sizeof(r));
	grown = realloc(reading->claims, (reading->n_claims + 1) * sizeof(struct claim *));
	claim = calloc(1, sizeof(*claim));
	if (grown)
		reading->claims = grown;
	if (!grown || !claim) {
		free(claim);
		return -ENOMEM;
	}
	claim->record = record;
	claim->producer = find_member(reading, r.producer);
	claim->consumer = find_member(reading, r.consumer);
	claim->number = r.number;
	claim->row = r.row;
	claim->next_ticket = r.next_ticket;
	claim->told_producer = r.told_producer;
	claim->told_consumer = r.told_consumer;
	claim->over = r.over;
	claim->taken = r.taken;
	if (!is_claim(reading, claim)) {
		free(claim);
		return -EBADMSG;
	}
	claim_attach(claim);
	reading->claims[reading->n_claims++] = claim;
	return 0;
}

static struct claim *find_claim(const struct reading *r, uint32_t number)
{
	size_t from = 0, to = r->n_claims;

	while (from < to) {
		size_t middle = (from + to) / 2;

		if (r->claims[middle]->number == number)
			return r->claims[middle];
		if (r->claims[middle]->number < number)
			from = middle + 1;
		else
			to = middle;
	}
	return NULL;
}

/* What is of the same ticket comes together, as several consumers may have it; and of those that
 * used a ticket one after the other, the last one comes last. */
static void by_ticket(const void *bytes, uint64_t order[2])
{
	struct entry_record r;

	memcpy(&r, bytes, sizeof(r));
	order[0] = (uint64_t)r.ticket << 32 | r.version;
	order[1] = r.buffer;
}

static int restore_entry(struct reading *reading, uint32_t record, const void *bytes, size_t size)
{
	struct entry_record r;
	struct claim *claim;
	struct buffer *buffer;

	(void)size;
	memcpy(&r, bytes, sizeof(r));
	claim = find_claim(reading, r.claim);
	buffer = buffer_find(reading->broker, r.buffer);
	if (!claim || !buffer || r.ticket >= claim->producer->channel->shape.in_flight)
		return -EBADMSG;
	return claim_keep_again(claim, r.ticket, r.version, buffer, r.consumer_pays, record);
}

/* What nothing would ever end. */
static bool any_is_unused(const struct broker *b)
{
	const struct channel *ch;
	const struct member *m;

	TAILQ_FOREACH (ch, &b->channels->list, link) {
		if (TAILQ_EMPTY(&ch->members))
			return true;
		TAILQ_FOREACH (m, &ch->members, of_channel)
			if (m->state == MEMBER_GONE && !claims_first(m))
				return true;
	}
	return false;
}

int channels_restore(struct broker *b)
{
	struct reading r = {.broker = b};

	restore_in_order(&r, RECORD_CHANNEL, sizeof(struct channel_record), by_id, restore_channel);
	restore_in_order(&r, RECORD_MEMBER, sizeof(struct member_record), by_id, restore_member);
	restore_in_order(&r, RECORD_CLAIM, sizeof(struct claim_record), by_number, restore_claim);
	restore_in_order(&r, RECORD_ENTRY, sizeof(struct entry_record), by_ticket, restore_entry);
	if (r.error == 0 && any_is_unused(b))
		r.error = -EBADMSG;
	for (size_t i = 0; r.error == 0 && i < r.n_claims; i++)
		claim_follow(r.claims[i]);
	free(r.found);
	free(r.claims);
	free(r.members);
	if (r.error < 0)
		log_error("the journal's channels cannot be made again: %s", strerror(-r.error));
	return r.error;
}
