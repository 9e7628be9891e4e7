/* SPDX-License-Identifier: MIT */

/*
 * The records of channels. Who waits for what is not in them, as members say so in their own pages.
 * What the broker itself writes to a channel's page, which is that somebody has come or gone, may
 * be written twice: whoever is woken asks, and is told what there is.
 */

#include <errno.h>
#include <sys/stat.h>

#include <share/channel.h>

#include "broker/broker.h"
#include "broker/channel/claim.h"
#include "broker/channel/page.h"
#include "broker/channel/records.h"
#include "broker/client/client.h"
#include "broker/client/records.h"
#include "broker/keeper/kept.h"
#include "broker/memory/pool.h"
#include "broker/memory/records.h"
#include "broker/order/order.h"
#include "broker/order/records.h"
#include "pages/page.h"

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
	r->order = ch->id;
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

static const struct object_kind channel_kind =
    OBJECT_KIND(RECORD_CHANNEL, "channel", struct channel, channel_fields, channel_restore);

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
	r->order = m->id;
}

/* Has a member that was read from its record take part again. */
static int go_on(struct member *m)
{
	struct channel *ch = m->channel;
	struct stat st;

	member_attach(m);
	if (m->role == SHARE_CONSUMER && m->state != MEMBER_GONE) {
		if (m->as_consumer.slot >= ch->shape.consumers ||
		    ch->consumers[m->as_consumer.slot])
			return -EBADMSG;
		ch->consumers[m->as_consumer.slot] = m;
	}
	if (m->as_producer.closing)
		TAILQ_INSERT_TAIL(&ch->broker->channels->closing, m, as_producer.link);
	channels_work_soon(ch->broker);
	m->page.size = member_page_size(ch, m->role);
	if (fstat(m->page.fd, &st) < 0 || (uint64_t)st.st_size != m->page.size)
		return -EBADMSG;
	if (member_charge(m) != 0)
		return -ENOMEM;
	return page_map(m->page.fd, m->page.size, false, &m->page.memory);
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
	return go_on(m);
}

static const struct object_kind member_kind =
    OBJECT_KIND(RECORD_MEMBER, "member of a channel", struct member, member_fields, member_restore);

void member_note(struct member *m)
{
	object_put(m->channel->broker->journal, &member_kind, m);
}

/* ------------------------------------------------------------------------------------------- */
/* Claims                                                                                      */

void record_member(struct record *r, struct member **m)
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
	r->order = claim->number;
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

static const struct object_kind claim_kind =
    OBJECT_KIND(RECORD_CLAIM, "claim", struct claim, claim_fields, claim_restore);

void claim_note(struct claim *claim)
{
	object_put(claim->producer->channel->broker->journal, &claim_kind, claim);
}

/* ------------------------------------------------------------------------------------------- */
/* What records of others have of these                                                        */

void record_claim(struct record *r, struct claim **claim)
{
	uint32_t number = *claim ? (*claim)->number : 0;

	record_u32(r, &number);
	if (record_reads(r))
		*claim = restored_find(&r->broker->channels->restored->claims, number);
}

/* ------------------------------------------------------------------------------------------- */

int members_restore(struct broker *b)
{
	struct channels_restored *all = b->channels->restored;
	const struct {
		const struct object_kind *kind;
		struct restored *all;
	} kinds[] = {
	    {&channel_kind, &all->channels},
	    {&member_kind, &all->members},
	    {&claim_kind, &all->claims},
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		r = objects_restore(b->journal, kinds[i].kind, b);
		if (r == 0)
			r = restored_ready(kinds[i].all);
	}
	return r;
}
