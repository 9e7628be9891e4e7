/* SPDX-License-Identifier: MIT */

/*
 * Requests of those who take part in channels, for what they need of each other. A request for what
 * a message named is answered with an error at worst, as whoever sent the message may have lied.
 */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <share/channel.h>

#include "base/text.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/grant.h"
#include "broker/buffer/lease.h"
#include "broker/channel/progress.h"
#include "broker/channel/records.h"
#include "broker/client/client.h"
#include "broker/client/conversation.h"
#include "broker/membership/inside.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/segment.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "broker/orphan/orphan.h"
#include "broker/pools/supply.h"
#include "broker/reply/request.h"

#define MEMBER_FDS 3  /* a member's page, pidfd and doorbell */
#define NEW_MAX    21 /* the most that are new in one CHANNEL_MEMBERS */

/* Finds a member of this client's. NULL when answered. */
static struct member *find_member(struct request *r, uint64_t id)
{
	struct member *m = member_find(r->client, id);

	if (m && !m->as_producer.closing)
		return m;
	request_fail(r, SHARE_ESTALE, "this client has no membership %" PRIx64, id);
	return NULL;
}

/* Finds a member that is not PREPARING. It may have been expelled, as it keeps what it has. NULL
 * when answered. */
static struct member *find_ready(struct request *r, uint64_t id)
{
	struct member *m = find_member(r, id);

	if (!m || m->state != MEMBER_PREPARING)
		return m;
	request_fail(r, SHARE_EINVAL, "CHANNEL_READY has to come first");
	return NULL;
}

static void introduce(struct member *newcomer);

bool handle_channel_ready(struct request *r)
{
	struct member *m = find_member(r, r->m->channel_ready.member);
	int e;

	if (!m)
		return false;
	if (m->state != MEMBER_PREPARING)
		return request_fail(r, SHARE_EINVAL, "this member is ready already");
	e = member_ready(m);
	if (e < 0)
		return request_fail(r, SHARE_ESYSTEM, "cannot seal the page: %s", strerror(-e));
	introduce(m);
	return request_done(r);
}

bool handle_channel_close(struct request *r)
{
	struct member *m = find_member(r, r->m->channel_close.member);

	return m && (!member_close(m, r->m->serial) || request_done(r));
}

/* ------------------------------------------------------------------------------------------- */
/* Who takes part                                                                              */

struct listing {
	struct claim *claims[CHANNEL_MEMBERS_MAX];
	struct wire_member members[CHANNEL_MEMBERS_MAX];
	int fds[NEW_MAX * MEMBER_FDS];
	uint32_t n, n_fds;
	bool more, no_memory;
};

/* Returns as what a member is told of the other one of a claim; 0: it is not told of it. */
static uint16_t state_for(const struct claim *claim, const struct member *other)
{
	switch (other->state) {
	case MEMBER_HERE:
		return WIRE_MEMBER_HERE;
	case MEMBER_LEFT:
		return WIRE_MEMBER_LEFT;
	case MEMBER_GONE:
		if (other->role == SHARE_PRODUCER && !claim->over)
			return other->as_producer.closed ? WIRE_MEMBER_CLOSED : WIRE_MEMBER_DEAD;
		return 0;
	case MEMBER_PREPARING:
		break;
	}
	return 0;
}

static bool *told(struct claim *claim, const struct member *m)
{
	return m == claim->producer ? &claim->told_producer : &claim->told_consumer;
}

static void set_told(struct claim *claim, const struct member *m, bool value)
{
	if (*told(claim, m) == value)
		return;
	*told(claim, m) = value;
	claim_note(claim);
}

static void list_other(struct listing *l, const struct member *m, struct claim *claim)
{
	struct member *other = claim_other(claim, m);
	uint16_t state = state_for(claim, other);
	bool is_new = !*told(claim, m);

	if (!state)
		return;
	/* the process of one that has closed the channel may still work on what it has sent */
	if (is_new && !other->timelines->dead &&
	    !client_let_ask(m->client, other->timelines->client)) {
		l->no_memory = true;
		return;
	}
	if (is_new && l->n_fds == NEW_MAX * MEMBER_FDS) {
		l->more = true;
		return;
	}
	l->claims[l->n] = claim;
	l->members[l->n++] = (struct wire_member){
	    .member = other->id,
	    .page = other->timelines->id,
	    .slot = (uint16_t)claim->consumer->as_consumer.slot,
	    .row = (uint16_t)claim->row,
	    .state = state,
	    .flags = (uint16_t)((is_new ? WIRE_MEMBER_NEW : 0) |
				(other->as_consumer.writable ? WIRE_MEMBER_WRITABLE : 0) |
				(other->as_consumer.oldest ? WIRE_MEMBER_OLDEST : 0) |
				(other->as_consumer.latest ? WIRE_MEMBER_LATEST : 0) |
				(claim->for_fetch ? WIRE_MEMBER_FETCHED : 0)),
	    .uid = account_uid(other->timelines->account),
	    .claim = claim->number,
	};
	if (!is_new)
		return;
	l->fds[l->n_fds++] = other->page.fd;
	l->fds[l->n_fds++] = other->pidfd;
	l->fds[l->n_fds++] = other->doorbell;
}

/* Makes all others new to a member, as it has lost what it was told. */
static void forget_told(struct member *m)
{
	for (struct claim *claim = claims_first(m); claim; claim = claims_next(m, claim))
		set_told(claim, m, false);
}

static uint32_t at_most_u32(uint64_t n)
{
	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* Tells the consumer how many orphans there are, and gives it one. This comes before the list of
 * who takes part, as it may make a claim that belongs into the list. */
static void tell_of_orphans(const struct request *r, struct member *m,
			    struct wire_channel_members *out)
{
	const struct wire_channel_sync *asked = &r->m->channel_sync;
	const struct orphan *o = NULL;

	if (m->role != SHARE_CONSUMER)
		return;
	if (asked->flags & WIRE_CHANNEL_SYNC_FETCH && m->state == MEMBER_HERE)
		o = orphan_fetch(m, asked->had);
	if (o) {
		out->given = 1;
		out->producer = o->producer->id;
		out->ticket = o->ticket;
		out->version = o->version;
		out->deliveries = o->deliveries;
		out->reached = orphan_is_reached(o);
	}
	out->waiting = at_most_u32(m->channel->orphans.waiting);
	out->others = orphans_of_others(m);
	orphans_tell_lost(m);
	out->lost = m->as_consumer.lost;
}

bool handle_channel_sync(struct request *r)
{
	struct member *m = find_ready(r, r->m->channel_sync.member);
	struct wire_message reply = {.type = WIRE_CHANNEL_MEMBERS};
	struct listing l = {.n = 0};

	if (!m)
		return false;
	if (r->m->channel_sync.flags & WIRE_CHANNEL_SYNC_AFRESH)
		forget_told(m);
	tell_of_orphans(r, m, &reply.channel_members);
	l.no_memory = member_supply(m, &l.more) != 0;
	for (struct claim *claim = claims_first(m); claim; claim = claims_next(m, claim))
		list_other(&l, m, claim);
	if (l.no_memory)
		return request_fail(r, SHARE_ESYSTEM, "cannot say who takes part: %s",
				    strerror(ENOMEM));
	for (uint32_t i = 0; i < l.n; i++)
		set_told(l.claims[i], m, true);
	reply.channel_members.epoch = atomic_load(&m->channel->control->epoch);
	reply.channel_members.more = l.more;
	reply.channel_members.expelled = m->as_consumer.expelled;
	reply.channel_members.members =
	    (struct wire_bytes){l.members, l.n * (uint32_t)sizeof(struct wire_member)};
	return request_reply(r, &reply, l.fds, l.n_fds);
}

/* Sends a client the timeline page that the newcomer's fences are on. False when it could not be
 * sent now. */
static bool offer_page(struct client *c, const struct client *newcomer)
{
	const struct timelines *t = newcomer->order->timelines;
	struct wire_message m = {.type = WIRE_TIMELINE_PAGE};

	if (client_has_page(c, newcomer->slot))
		return true;
	m.timeline_page.page = t->id;
	if (client_reserve_page(c, newcomer->slot) < 0 ||
	    !client_offer(c, &m, (int[]){t->fd, t->pidfd}, 2))
		return false;
	client_set_page(c, newcomer->slot);
	return true;
}

static void introduce_to(struct member *m, struct claim *claim, const struct member *newcomer)
{
	struct wire_message message = {.type = WIRE_CHANNEL_MEMBERS};
	struct listing l = {.n = 0};

	if (!offer_page(m->client, newcomer->client))
		return;
	list_other(&l, m, claim);
	if (l.n == 0)
		return;
	message.channel_members.member = m->id;
	message.channel_members.members = (struct wire_bytes){l.members, sizeof(l.members[0])};
	if (client_offer(m->client, &message, l.fds, l.n_fds))
		set_told(claim, m, true);
}

/* Tells those who are there of a newcomer. They would learn of it when they ask who has come, but
 * the broker may be gone by then. Who does not read what it is sent has to ask. */
static void introduce(struct member *newcomer)
{
	struct claim *claim;

	for (claim = claims_first(newcomer); claim; claim = claims_next(newcomer, claim)) {
		struct member *m = claim_other(claim, newcomer);

		if (m->state == MEMBER_HERE)
			introduce_to(m, claim, newcomer);
	}
}

/* Finds the claim of a client's member of this role with another one; NULL: it has ended. */
static struct claim *find_claim(const struct member *m, uint32_t role, uint64_t other)
{
	return m && m->role == role ? claim_find(m, other) : NULL;
}

/* This has no answer. What the message names may be gone by now, and then nothing is left to do. */
bool handle_channel_drained(struct request *r)
{
	struct member *m = member_find(r->client, r->m->channel_drained.member);
	struct claim *claim = find_claim(m, SHARE_CONSUMER, r->m->channel_drained.producer);

	if (claim)
		claim_is_over(claim);
	return true;
}

/* Takes over one claim of a producer that goes on. The consumer may have closed the channel: its
 * streams may have work to do. */
bool handle_channel_abandon(struct request *r)
{
	const struct wire_channel_abandon *a = &r->m->channel_abandon;
	struct member *m = find_ready(r, a->member);
	struct claim *claim;
	int e;

	if (!m)
		return false;
	if (m->role != SHARE_PRODUCER)
		return request_fail(r, SHARE_EINVAL, "consumers have sent nothing");
	claim = find_claim(m, SHARE_PRODUCER, a->consumer);
	e = claim ? claim_abandon(claim, a->tickets.data, a->tickets.size) : 0;
	if (e == -EDQUOT)
		return request_fail_quota(r, LIMIT_MEMORY, "");
	return e == 0 ? request_done(r) : request_fail_memory(r);
}

bool handle_channel_stalled(struct request *r)
{
	struct member *m = member_find(r->client, r->m->channel_stalled.member);

	if (m && m->role == SHARE_PRODUCER && m->state == MEMBER_HERE)
		member_tell_stalled(m);
	return true;
}

/* ------------------------------------------------------------------------------------------- */
/* The segments that messages lie in */

static bool fail_foreign(struct request *r, const struct channel *ch, const struct pool *p)
{
	return request_fail(
	    r, SHARE_EINVAL,
	    "the buffer is of pool '%s', and channel '%s' is of pool '%s': allocate what "
	    "goes through it there, or open a channel of the buffer's pool",
	    p->name, ch->name, ch->pool->name);
}

/* Checks the rights again, as a channel that was opened before gives no access that was taken away
 * since. False when answered. */
static bool check_access(struct request *r, const struct member *m)
{
	return member_may_take_part(m) || request_fail_pool(r, m->channel->pool, member_needs(m));
}

bool handle_channel_segment(struct request *r)
{
	const struct wire_channel_segment *m = &r->m->channel_segment;
	struct wire_message reply = {.type = WIRE_GRANT};
	struct member *member = find_ready(r, m->member);
	struct failure failure;
	struct segment *s;
	int fd, e;

	if (!member)
		return false;
	s = segment_find(r->broker, m->segment);
	if (!s || s->state != SEGMENT_ACTIVE ||
	    (s->pool != member->channel->pool && !pool_may(s->pool, r->client, RIGHT_READ)))
		return request_fail(r, SHARE_ENOENT, "there is no segment %" PRIx64, m->segment);
	if (s->pool != member->channel->pool)
		return fail_foreign(r, member->channel, s->pool);
	if (!check_access(r, member))
		return false;
	e = segment_grant(s, r->client, member_writes(member), &reply, &fd);
	if (e == -EACCES) {
		segment_refuse(s, r->client, &failure);
		return request_fail_with(r, &failure);
	}
	if (e < 0)
		return e == -EDQUOT ? request_fail_quota(r, LIMIT_MEMORY, "")
				    : request_fail_memory(r);
	if (fd >= 0)
		segment_sent(s, r->client, reply.grant.mode == SHARE_RDWR);
	return request_reply(r, &reply, &fd, fd >= 0);
}

/* Finds the buffer that the producer has lent to this client, and the client's membership. NULL
 * when answered. */
static struct buffer *find_loan(struct request *r, uint64_t member, uint64_t producer, uint64_t id,
				struct member **consumer)
{
	struct member *m = find_ready(r, member);
	struct buffer *buffer = buffer_find(r->broker, id);
	struct claim *claim;

	if (!m)
		return NULL;
	if (m->role != SHARE_CONSUMER) {
		request_fail(r, SHARE_EINVAL, "producers have what they send");
		return NULL;
	}
	if (!check_access(r, m))
		return NULL;
	claim = find_claim(m, SHARE_CONSUMER, producer);
	if (!claim || !buffer || buffer_pool(buffer) != m->channel->pool ||
	    !claim_has(claim, buffer)) {
		request_fail(r, SHARE_ENOENT,
			     "that producer has no message with a buffer %" PRIx64
			     " that this consumer has not acknowledged",
			     id);
		return NULL;
	}
	*consumer = m;
	return buffer;
}

bool handle_channel_retain(struct request *r)
{
	const struct wire_channel_retain *m = &r->m->channel_retain;
	struct member *member;
	struct buffer *buffer = find_loan(r, m->member, m->producer, m->buffer, &member);
	struct grant g = {0};
	struct failure failure;

	if (!buffer)
		return false;
	/* as magazines have larger blocks than were asked for, the size is the message's, or what
	 * this consumer says it is */
	if (!buffer_set_size(buffer, m->size, false))
		return request_fail(r, SHARE_EINVAL,
				    "the buffer is smaller than %" PRIu64 " byte%s", m->size,
				    text_plural(m->size));
	g.buffer = buffer;
	g.mode = member->as_consumer.writable ? SHARE_RDWR : SHARE_RDONLY;
	return grant_send(r->broker, r->client, r->m->serial, &g, &failure) == 0 ||
	       request_fail_with(r, &failure);
}

/* A client may ask for the metadata of a loan, or of what it has leased: another of its threads may
 * have retained the buffer, acknowledged the message and closed the channel meanwhile. */
bool handle_channel_metadata(struct request *r)
{
	const struct wire_channel_metadata *m = &r->m->channel_metadata;
	struct buffer *buffer = buffer_find(r->broker, m->buffer);
	struct member *member;

	if (!buffer || !lease_find(r->broker, r->client, buffer))
		buffer = find_loan(r, m->member, m->producer, m->buffer, &member);
	return buffer && request_tell_metadata(r, buffer);
}
