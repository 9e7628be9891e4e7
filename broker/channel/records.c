/* SPDX-License-Identifier: MIT */

/*
 * The records of channels. Who waits for what is not in them, as members say so in their own pages.
 * What the broker itself writes to a channel's page, which is that somebody has come or gone, may
 * be written twice: whoever is woken asks, and is told what there is.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <share/channel.h>

#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/channel/orphan.h"
#include "broker/channel/records.h"
#include "broker/client/client.h"
#include "broker/client/records.h"
#include "broker/journal/object.h"
#include "broker/keeper/kept.h"
#include "broker/memory/pool.h"
#include "broker/memory/records.h"
#include "broker/order/order.h"
#include "broker/order/records.h"

/* The objects that are restored already, by which those that refer to them find them. */
struct channels_restored {
	struct restored channels, members, claims;
};

/* ------------------------------------------------------------------------------------------- */
/* Channels                                                                                    */

static void record_control(struct record *r, struct channel *ch)
{
	uint32_t id = r->is_read ? 0 : kept_id(ch->control_fd);
	void *control;

	record_u32(r, &id);
	if (!record_reads(r))
		return;
	ch->control_fd = kept_take_mapped(id, CHANNEL_CONTROL_SIZE, &control);
	if (ch->control_fd < 0)
		record_fail(r, -EBADMSG);
	else
		ch->control = control;
}

static void channel_fields(struct record *r, void *object)
{
	struct channel *ch = object;
	uint32_t layout = ch->layout;

	record_u64(r, &ch->id);
	record_pool(r, &ch->pool);
	record_bytes(r, &ch->shape, CHANNEL_SHAPE_SENT, sizeof(uint32_t));
	record_u32(r, &ch->producers);
	record_flag(r, &ch->service);
	record_control(r, ch);
	record_rest_of(r, ch->name, &ch->size);
	/* earlier brokers have had a gap here, which is 0: then there are no copies */
	record_u32(r, &layout);
	ch->layout = layout;
	if (record_has(r, 1)) {
		record_u64(r, &ch->orphans.lost);
		record_u64(r, &ch->orphans.untold);
		record_u32(r, &ch->shape.buffers);
	}
}

static uint64_t channel_order(const void *object)
{
	return ((const struct channel *)object)->id;
}

static int channel_restore(struct broker *b, void *object)
{
	struct channel *ch = object;

	if (ch->id == 0 || ch->id > b->channels->last_channel || ch->size == 0 ||
	    ch->size > SHARE_NAME_MAX || channel_find(b, ch->name, ch->size) ||
	    !channel_shape_is_valid(&ch->shape) || ch->layout >= CHANNEL_LAYOUTS)
		return -EBADMSG;
	channel_attach(b, ch, ch->pool);
	return restored_add(&b->channels->restored->channels, ch->id, ch);
}

static const struct object_kind channel_kind = {
    .type = RECORD_CHANNEL,
    .name = "channel",
    .size = sizeof(struct channel),
    .record = offsetof(struct channel, record),
    .order = channel_order,
    .fields = channel_fields,
    .attach = channel_restore,
};

void channel_note(struct channel *ch)
{
	object_put(ch->broker->journal, &channel_kind, ch);
}

/* ------------------------------------------------------------------------------------------- */
/* Members                                                                                     */

static void record_channel(struct record *r, struct channel **ch)
{
	uint64_t id = *ch ? (*ch)->id : 0;

	record_u64(r, &id);
	if (record_reads(r))
		*ch = restored_find(&r->broker->channels->restored->channels, id);
}

static void record_timelines(struct record *r, struct timelines **t)
{
	uint64_t id = *t ? (*t)->id : 0;

	record_u64(r, &id);
	if (record_reads(r))
		*t = timelines_ref(timelines_find(r->broker, id));
}

static void member_fields(struct record *r, void *object)
{
	struct member *m = object;
	uint32_t state = m->state, serial = m->role == SHARE_PRODUCER ? m->as_producer.serial
								      : m->as_consumer.fetched;

	record_u64(r, &m->id);
	record_channel(r, &m->channel);
	record_client(r, &m->client);
	record_u64(r, &m->client_id);
	record_timelines(r, &m->timelines);
	record_i32(r, &m->pid);
	record_u32(r, &m->role);
	record_u32(r, &state);
	m->state = state;
	record_u32(r, &serial); /* of a consumer, how many orphans it has fetched */
	m->as_producer.serial = m->role == SHARE_PRODUCER ? serial : 0;
	m->as_consumer.fetched = m->role == SHARE_CONSUMER ? serial : 0;
	record_u32(r, &m->as_consumer.slot);
	record_fd(r, &m->page.fd);
	record_fd(r, &m->pidfd);
	record_fd(r, &m->doorbell);
	record_flag8(r, &m->as_producer.closed);
	record_flag8(r, &m->as_producer.closing);
	record_flag8(r, &m->as_consumer.writable);
	record_flag8(r, &m->as_consumer.oldest);
	record_flag8(r, &m->as_consumer.expelled);
	if (record_has(r, 1)) {
		record_u64(r, &m->as_consumer.lost);
		record_flag(r, &m->as_producer.transient);
		record_flag(r, &m->as_consumer.latest);
	}
}

static uint64_t member_order(const void *object)
{
	return ((const struct member *)object)->id;
}

/* Whether what was read can be a member. One that is GONE is no client's any more, and all others
 * are. */
static bool is_member(const struct broker *b, const struct member *m)
{
	if (m->id == 0 || m->id > b->channels->last_member)
		return false;
	if (!m->channel || !m->timelines || (uint32_t)m->state > MEMBER_GONE ||
	    (m->role != SHARE_PRODUCER && m->role != SHARE_CONSUMER) ||
	    (m->state == MEMBER_GONE) != !m->client ||
	    (m->state == MEMBER_GONE && m->as_producer.closing) ||
	    (m->client && m->client->order->timelines != m->timelines))
		return false;
	if (m->role == SHARE_PRODUCER ? m->as_consumer.expelled
				      : m->as_producer.closing || m->as_producer.closed)
		return false;
	return m->page.fd >= 0;
}

static int member_restore(struct broker *b, void *object)
{
	struct member *m = object;

	if (!is_member(b, m))
		return -EBADMSG;
	if (restored_add(&b->channels->restored->members, m->id, m) < 0)
		return -ENOMEM;
	return member_attach(m);
}

static const struct object_kind member_kind = {
    .type = RECORD_MEMBER,
    .name = "member of a channel",
    .size = sizeof(struct member),
    .record = offsetof(struct member, record),
    .order = member_order,
    .fields = member_fields,
    .attach = member_restore,
};

void member_note(struct member *m)
{
	object_put(m->channel->broker->journal, &member_kind, m);
}

/* ------------------------------------------------------------------------------------------- */
/* Claims                                                                                      */

static void record_member(struct record *r, struct member **m)
{
	uint64_t id = *m ? (*m)->id : 0;

	record_u64(r, &id);
	if (record_reads(r))
		*m = restored_find(&r->broker->channels->restored->members, id);
}

static void claim_fields(struct record *r, void *object)
{
	struct claim *claim = object;

	record_member(r, &claim->producer);
	record_member(r, &claim->consumer);
	record_u32(r, &claim->number);
	record_u32(r, &claim->row);
	record_u32(r, &claim->next_ticket);
	claim->for_fetch = claim->next_ticket == CLAIM_FOR_FETCH;
	record_flag8(r, &claim->told_producer);
	record_flag8(r, &claim->told_consumer);
	record_flag8(r, &claim->over);
	record_flag8(r, &claim->taken);
}

static uint64_t claim_order(const void *object)
{
	return ((const struct claim *)object)->number;
}

/* Whether what was read can be a claim: of two members of one channel, with a row that is no
 * other's. */
static bool is_claim(const struct broker *b, const struct claim *claim)
{
	const struct member *producer = claim->producer, *consumer = claim->consumer;

	if (claim->number == 0 || claim->number > b->channels->last_claim)
		return false;
	return producer && consumer && producer->channel == consumer->channel &&
	       producer->role == SHARE_PRODUCER && consumer->role == SHARE_CONSUMER &&
	       claim->row < consumer->channel->shape.rows &&
	       !(consumer->as_consumer.rows & UINT64_C(1) << claim->row) &&
	       !claim_find(producer, consumer->id);
}

static int claim_restore(struct broker *b, void *object)
{
	struct claim *claim = object;

	if (!is_claim(b, claim))
		return -EBADMSG;
	if (restored_add(&b->channels->restored->claims, claim->number, claim) < 0)
		return -ENOMEM;
	claim_attach(claim);
	return 0;
}

static const struct object_kind claim_kind = {
    .type = RECORD_CLAIM,
    .name = "claim",
    .size = sizeof(struct claim),
    .record = offsetof(struct claim, record),
    .order = claim_order,
    .fields = claim_fields,
    .attach = claim_restore,
};

void claim_note(struct claim *claim)
{
	object_put(claim->producer->channel->broker->journal, &claim_kind, claim);
}

/* ------------------------------------------------------------------------------------------- */
/* Entries of claims, which are no objects of their own                                        */

/* What the record of an entry says. */
struct taken {
	struct claim *claim;
	struct buffer *buffer;
	uint32_t ticket, version, record;
	bool consumer_pays;
};

/* Records a buffer that may be NULL. */
static void record_buffer_or_none(struct record *r, struct buffer **buffer)
{
	uint64_t id = *buffer ? buffer_id(*buffer) : 0;

	record_u64(r, &id);
	if (!record_reads(r) || id == 0)
		return;
	*buffer = buffer_find(r->broker, id);
	if (!*buffer)
		record_fail(r, -EBADMSG);
}

static void record_claim(struct record *r, struct claim **claim)
{
	uint32_t number = *claim ? (*claim)->number : 0;

	record_u32(r, &number);
	if (record_reads(r))
		*claim = restored_find(&r->broker->channels->restored->claims, number);
}

static void taken_fields(struct record *r, void *object)
{
	struct taken *t = object;

	record_buffer_or_none(r, &t->buffer);
	record_claim(r, &t->claim);
	record_u32(r, &t->ticket);
	record_u32(r, &t->version);
	record_flag(r, &t->consumer_pays);
}

/* Sorts the entries. Those of the same ticket come together, as several consumers may have the
 * message; and of messages that used a ticket one after the other, the last one comes last. */
static uint64_t taken_order(const void *object)
{
	const struct taken *t = object;

	return (uint64_t)t->ticket << 32 | t->version;
}

static int taken_restore(struct broker *b, void *object)
{
	struct taken *t = object;
	int r;

	(void)b;
	if (!t->claim || t->ticket >= t->claim->producer->channel->shape.in_flight)
		return -EBADMSG;
	r = claim_restore_entry(t->claim, t->ticket, t->version, t->buffer, t->consumer_pays,
				t->record);
	free(t);
	return r;
}

static const struct object_kind taken_kind = {
    .type = RECORD_ENTRY,
    .name = "message that was taken over",
    .size = sizeof(struct taken),
    .record = offsetof(struct taken, record),
    .order = taken_order,
    .fields = taken_fields,
    .attach = taken_restore,
};

void entry_note(struct claim *claim, struct entry *entry)
{
	struct taken t = {
	    .claim = claim,
	    .buffer = entry->inherited->buffer,
	    .ticket = entry->inherited->ticket,
	    .version = entry->inherited->version,
	    .record = entry->record,
	    .consumer_pays = entry->referrer.account == claim->consumer->timelines->account,
	};

	object_put(claim->producer->channel->broker->journal, &taken_kind, &t);
	entry->record = t.record;
}

/* ------------------------------------------------------------------------------------------- */
/* Orphans, and what is known of those that are to come                                        */

/* What the record says of a buffer behind the first one. */
struct further_fields {
	uint64_t buffer;
	uint32_t ticket, version;
};

static void read_further_record(struct record *r, struct orphan *o, const struct iovec *part)
{
	size_t n = part->iov_len / sizeof(struct further_fields);
	struct further_fields f;

	if (n == 0 || !record_reads(r))
		return;
	o->further = n < CHANNEL_BUFFERS_MAX ? calloc(n, sizeof(*o->further)) : NULL;
	if (!o->further) {
		record_fail(r, n < CHANNEL_BUFFERS_MAX ? -ENOMEM : -EBADMSG);
		return;
	}
	o->n_further = (uint8_t)n;
	for (size_t i = 0; i < n; i++) {
		memcpy(&f, (const char *)part->iov_base + i * sizeof(f), sizeof(f));
		o->further[i].buffer = buffer_find(r->broker, f.buffer);
		o->further[i].ticket = f.ticket;
		o->further[i].version = f.version;
		if (!o->further[i].buffer)
			record_fail(r, -EBADMSG);
	}
	if (!record_reads(r))
		free(o->further);
}

static void record_further(struct record *r, struct orphan *o)
{
	static struct further_fields
	    all[CHANNEL_BUFFERS_MAX - 1]; /* used until the record is put */
	size_t n = r->is_read ? 0 : o->n_further;
	struct iovec part;

	for (size_t i = 0; i < n; i++)
		all[i] = (struct further_fields){
		    .buffer = buffer_id(o->further[i].buffer),
		    .ticket = o->further[i].ticket,
		    .version = o->further[i].version,
		};
	part = record_rest(r, all, n * sizeof(all[0]), sizeof(all[0]));
	if (r->is_read)
		read_further_record(r, o, &part);
}

static void orphan_fields(struct record *r, void *object)
{
	struct orphan *o = object;
	bool owned = o->owner;

	record_member(r, &o->producer);
	record_u64(r, &o->number);
	record_buffer_or_none(r, &o->buffer);
	record_u64(r, &o->position);
	record_flag(r, &owned);
	record_claim(r, &o->owner);
	if (record_reads(r) && owned && !o->owner)
		record_fail(r, -EBADMSG);
	record_u32(r, &o->ticket);
	record_u32(r, &o->version);
	record_u32(r, &o->deliveries);
	record_u32(r, &o->fetch);
	if (record_has(r, 1))
		record_further(r, o);
}

static uint64_t orphan_order(const void *object)
{
	return ((const struct orphan *)object)->number;
}

static const struct object_kind orphan_kind = {
    .type = RECORD_ORPHAN,
    .name = "message of a producer that is gone",
    .size = sizeof(struct orphan),
    .record = offsetof(struct orphan, record),
    .order = orphan_order,
    .fields = orphan_fields,
    .attach = orphan_attach,
};

void orphan_note(struct orphan *o)
{
	object_put(o->producer->channel->broker->journal, &orphan_kind, o);
}

static void acknowledged_fields(struct record *r, void *object)
{
	struct acknowledged *a = object;

	record_member(r, &a->producer);
	record_rest_of(r, (char *)a->versions, &a->size);
}

static const struct object_kind acknowledged_kind = {
    .type = RECORD_ACKNOWLEDGED,
    .name = "producer's messages that were acknowledged by who is gone",
    .size = sizeof(struct acknowledged),
    .record = offsetof(struct acknowledged, record),
    .fields = acknowledged_fields,
    .attach = acknowledged_attach,
};

void acknowledged_note(struct acknowledged *a)
{
	object_put(a->producer->channel->broker->journal, &acknowledged_kind, a);
}

/* ------------------------------------------------------------------------------------------- */

/* Whether a channel or a member was read that nothing would ever end. */
static bool any_is_unused(const struct broker *b)
{
	const struct channel *ch;
	const struct member *m;

	TAILQ_FOREACH (ch, &b->channels->list, link) {
		if (TAILQ_EMPTY(&ch->members))
			return true;
		TAILQ_FOREACH (m, &ch->members, of_channel)
			if (m->state == MEMBER_GONE && !claims_first(m) && !producer_has_orphans(m))
				return true;
	}
	return false;
}

/* Restores the objects of a kind. @all finds them if others refer to them; NULL: none do. */
static int restore_kind(struct broker *b, const struct object_kind *kind, struct restored *all)
{
	int r = objects_restore(b->journal, kind, b);

	return r == 0 && all ? restored_ready(all) : r;
}

int channels_restore(struct broker *b)
{
	struct channels_restored all = {.channels = {0}};
	const struct {
		const struct object_kind *kind;
		struct restored *all;
	} kinds[] = {
	    {&channel_kind, &all.channels}, {&member_kind, &all.members},
	    {&claim_kind, &all.claims},     {&taken_kind, NULL},
	    {&orphan_kind, NULL},           {&acknowledged_kind, NULL},
	};
	int r = 0;

	b->channels->restored = &all;
	for (size_t i = 0; r == 0 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		r = restore_kind(b, kinds[i].kind, kinds[i].all);
	if (r == 0 && any_is_unused(b))
		r = -EBADMSG;
	for (size_t i = 0; r == 0 && i < all.claims.n; i++)
		if (!orphans_have_entries(all.claims.all[i].object))
			r = -EBADMSG;
	for (size_t i = 0; r == 0 && i < all.claims.n; i++)
		claim_follow(all.claims.all[i].object);
	b->channels->restored = NULL;
	restored_deinit(&all.channels);
	restored_deinit(&all.members);
	restored_deinit(&all.claims);
	return r;
}
