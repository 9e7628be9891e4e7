/* SPDX-License-Identifier: MIT */

/*
 * Opens channels. Whoever comes first says what a channel is like, those who come later have to
 * agree, and all are held to the access rules of its pool.
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <share/channel.h>

#include "base/text.h"
#include "broker/broker.h"
#include "broker/channel/records.h"
#include "broker/client/client.h"
#include "broker/membership/inside.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/pools/pools.h"
#include "broker/reply/deferred.h"
#include "broker/reply/request.h"

#define FLAGS_KNOWN                                                                  \
	(SHARE_CHANNEL_WRITABLE | SHARE_CHANNEL_EXISTING | SHARE_CHANNEL_TRANSIENT | \
	 SHARE_CHANNEL_LATEST | WIRE_CHANNEL_OLDEST | WIRE_CHANNEL_SERVICE)

#define TEXT_MAX 258 /* bytes of a name in quotes */

#define ROWS_BYTES (1 << 20) /* for which a ledger has rows, if that is more than it needs */

#define DEFAULT_DEPTH      64
#define DEFAULT_PRODUCERS  16
#define DEFAULT_DELIVERIES 3

static uint32_t or_default(uint32_t value, uint32_t standard)
{
	return value ? value : standard;
}

/* Returns how many rows a ledger has: for the producers that are there, and for as many that are
 * gone while something of them is still owed. As a row that nobody has written takes no memory,
 * there are more where that costs little. */
static uint32_t choose_rows(uint32_t in_flight, uint32_t producers)
{
	uint64_t fit = ROWS_BYTES / (sizeof(struct channel_row) +
				     (uint64_t)in_flight * sizeof(struct channel_ack));
	uint64_t rows = fit > 2 * (uint64_t)producers ? fit : 2 * (uint64_t)producers;

	return rows < CHANNEL_MEMBERS_MAX ? (uint32_t)rows : CHANNEL_MEMBERS_MAX;
}

/* Fills in what whoever comes first asks for. */
static void choose_shape(const struct wire_channel_open *m, struct channel_shape *out,
			 uint32_t *producers)
{
	uint32_t depth = or_default(m->depth, DEFAULT_DEPTH), twice = 2 * depth;

	if (twice > CHANNEL_IN_FLIGHT_MAX)
		twice = CHANNEL_IN_FLIGHT_MAX;
	*producers = or_default(m->producers, DEFAULT_PRODUCERS);
	*out = (struct channel_shape){
	    .mode = or_default(m->mode, CHANNEL_BROADCAST),
	    .when_full = or_default(m->when_full, SHARE_FULL_BLOCK),
	    .depth = depth,
	    .in_flight = or_default(m->in_flight, twice),
	    .data_max = or_default(m->data_max, SHARE_MESSAGE_DATA_MAX),
	    .consumers = or_default(m->consumers, CHANNEL_MEMBERS_MAX),
	    .deliveries = or_default(m->deliveries, DEFAULT_DELIVERIES),
	    .history = m->history,
	    .buffers = or_default(m->buffers, 1),
	};
	out->rows = choose_rows(out->in_flight, *producers);
}

/* False when answered. */
static bool check_range(struct request *r, const char *what, uint32_t value, uint32_t most)
{
	if (value > 0 && value <= most)
		return true;
	return request_fail(r, SHARE_EINVAL, "a channel's %s is 1 to %u, not %u", what, most,
			    value);
}

static bool check_shape(struct request *r, const struct channel_shape *s, uint32_t producers)
{
	uint32_t above;

	if (!check_range(r, "mode", s->mode, CHANNEL_DIRECT) ||
	    !check_range(r, "when_full", s->when_full, SHARE_FULL_DROP) ||
	    !check_range(r, "depth", s->depth, CHANNEL_DEPTH_MAX) ||
	    !check_range(r, "in_flight", s->in_flight, CHANNEL_IN_FLIGHT_MAX) ||
	    !check_range(r, "data_max", s->data_max, CHANNEL_DATA_MAX) ||
	    !check_range(r, "producers", producers, CHANNEL_MEMBERS_MAX) ||
	    !check_range(r, "consumers", s->consumers, CHANNEL_MEMBERS_MAX) ||
	    !check_range(r, "deliveries", s->deliveries, CHANNEL_DELIVERIES_MAX) ||
	    !check_range(r, "buffers", s->buffers, CHANNEL_BUFFERS_MAX))
		return false;
	if (s->buffers > 1 && (s->history + 1) * s->buffers > s->in_flight)
		return request_fail(
		    r, SHARE_EINVAL,
		    "messages of %u buffers and a history of %u take an in_flight of %u, "
		    "which counts buffers, and not %u",
		    s->buffers, s->history, (s->history + 1) * s->buffers, s->in_flight);
	if (s->history > 0 &&
	    (s->mode != CHANNEL_BROADCAST || s->history > s->depth || s->history >= s->in_flight))
		return request_fail(
		    r, SHARE_EINVAL,
		    "a history of %u messages takes a broadcast whose depth (%u) is at "
		    "least that, and whose in_flight (%u) is more",
		    s->history, s->depth, s->in_flight);
	if (s->in_flight * channel_far_size(s) > CHANNEL_FAR_MAX)
		return request_fail(
		    r, SHARE_EINVAL,
		    "%u messages in flight with up to %u bytes are more than the %d MiB "
		    "that a producer's messages may carry at a time: ask for a smaller "
		    "in_flight or data_max",
		    s->in_flight, s->data_max, CHANNEL_FAR_MAX >> 20);
	if (channel_shape_is_valid(s))
		return true;
	for (above = 1; above < s->depth;)
		above *= 2;
	return request_fail(r, SHARE_EINVAL,
			    "a channel's depth is a power of two, as %u, and not %u", above,
			    s->depth);
}

/* Answers that an option is not what there is. Where nobody takes part any more and messages wait,
 * it does not help that somebody closes the channel, so the answer says what does. */
static bool fail_unlike(struct request *r, const struct channel *ch, const char *what,
			const char *is, const char *wanted)
{
	uint64_t n = ch->orphans.waiting;

	if (n == 0 || channel_count(ch, SHARE_PRODUCER) + channel_count(ch, SHARE_CONSUMER) > 0)
		return request_fail_unlike(r, what, "channel", ch->name, is, wanted);
	return request_fail(r, SHARE_EEXIST,
			    "%s of channel '%s' is %s, not %s, and %" PRIu64
			    " message%s of producers that are gone wait%s in it for a consumer: "
			    "receive what waits, or end it (sharectl end-channel)",
			    what, ch->name, is, wanted, n, text_plural(n), n == 1 ? "s" : "");
}

/* Checks that what somebody asks for who comes later is what there is. False when answered. */
static bool check_same(struct request *r, const struct channel *ch)
{
	const struct wire_channel_open *m = &r->m->channel_open;
	const struct {
		const char *what;
		uint32_t is, wanted;
		const char *(*name)(uint32_t value);
	} all[] = {
	    {"mode", ch->shape.mode, m->mode, channel_mode_name},
	    {"when_full", ch->shape.when_full, m->when_full, channel_when_full_name},
	    {"depth", ch->shape.depth, m->depth, NULL},
	    {"in_flight", ch->shape.in_flight, m->in_flight, NULL},
	    {"data_max", ch->shape.data_max, m->data_max, NULL},
	    {"producers", ch->producers, m->producers, NULL},
	    {"consumers", ch->shape.consumers, m->consumers, NULL},
	    {"deliveries", ch->shape.deliveries, m->deliveries, NULL},
	    {"history", ch->shape.history, m->history, NULL},
	    {"buffers", channel_buffers(&ch->shape), m->buffers, NULL},
	};
	bool service = m->flags & WIRE_CHANNEL_SERVICE;
	char is[TEXT_MAX], wanted[TEXT_MAX];

	/* either would take the other's messages for nonsense */
	if (service != ch->service)
		return request_fail(r, SHARE_EEXIST, "channel '%s' is %s", ch->name,
				    service ? "not of a service" : "of a service");
	if (m->pool.size && (strlen(ch->pool->name) != m->pool.size ||
			     memcmp(ch->pool->name, m->pool.data, m->pool.size) != 0)) {
		snprintf(is, sizeof(is), "'%s'", ch->pool->name);
		snprintf(wanted, sizeof(wanted), "'%.*s'", (int)m->pool.size,
			 (const char *)m->pool.data);
		return fail_unlike(r, ch, "pool", is, wanted);
	}
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (all[i].wanted == 0 || all[i].wanted == all[i].is)
			continue;
		snprintf(is, sizeof(is), "%u", all[i].is);
		snprintf(wanted, sizeof(wanted), "%u", all[i].wanted);
		return fail_unlike(r, ch, all[i].what, all[i].name ? all[i].name(all[i].is) : is,
				   all[i].name ? all[i].name(all[i].wanted) : wanted);
	}
	return true;
}

static bool check_pool(struct request *r, struct pool *p)
{
	const struct wire_channel_open *m = &r->m->channel_open;
	bool writes = m->role == SHARE_PRODUCER || m->flags & SHARE_CHANNEL_WRITABLE;

	if (!request_pool_right(r, p, writes ? RIGHT_WRITE : RIGHT_READ))
		return false;
	if (p->destroyed)
		return request_fail(r, SHARE_ENOENT, "pool '%s' was destroyed", p->name);
	if (m->flags & SHARE_CHANNEL_WRITABLE && p->reuse == SHARE_REUSE_SCRUB)
		return request_fail(
		    r, SHARE_ENOTSUP,
		    "pool '%s' scrubs, so it must know who writes: no consumers that "
		    "write (\"reuse\": "
		    "\"gate\" or \"clean\" in the broker's configuration lets them)",
		    p->name);
	return request_resolve_pool(r, p);
}

/* Answers that there is no member, or has the request go on when there may be one. */
static bool go_on_without(struct request *r, const struct channel *ch, int error)
{
	bool producer = r->m->channel_open.role == SHARE_PRODUCER;

	switch (error) {
	case MEMBER_NO_SLOT:
		return request_fail(r, SHARE_EBUSY, "channel '%s' has all the %s it may have (%u)",
				    ch->name, producer ? "producers" : "consumers",
				    producer ? ch->producers : ch->shape.consumers);
	case MEMBER_QUOTA:
		return request_fail_quota(r, LIMIT_CHANNELS, "");
	case MEMBER_BYTES_QUOTA:
		return request_fail_quota(r, LIMIT_BYTES, "");
	case MEMBER_NO_DESCRIPTORS:
		return request_fail_quota(r, LIMIT_DESCRIPTORS, "");
	case MEMBER_LATER:
		return request_go_on_later(r);
	default:
		return request_fail(r, SHARE_ESYSTEM, "cannot join channel '%s': %s", ch->name,
				    strerror(-error));
	}
}

static uint32_t count_latest(const struct channel *ch)
{
	const struct member *m;
	uint32_t n = 0;

	TAILQ_FOREACH (m, &ch->members, of_channel)
		n += m->state != MEMBER_GONE && m->as_consumer.latest;
	return n;
}

/* Checks that what those may hold that get the latest alone leaves a message's tickets to all
 * others, so that nobody has to wait for them. False when answered. */
static bool check_latest(struct request *r, const struct channel *ch)
{
	uint32_t others = count_latest(ch), history = ch->shape.history;
	uint32_t buffers = channel_buffers(&ch->shape);
	uint32_t least = (history + CHANNEL_LATEST_HELD * (others + 1) + 1) * buffers;

	if (ch->shape.mode != CHANNEL_BROADCAST)
		return request_fail(
		    r, SHARE_EINVAL,
		    "consumers get the latest alone in a broadcast, and channel '%s' is "
		    "none",
		    ch->name);
	if (ch->shape.in_flight >= least)
		return true;
	return request_fail(
	    r, others > 0 ? SHARE_EBUSY : SHARE_EINVAL,
	    "%u consumers that get the latest alone and a history of %u take an in_flight "
	    "of %u, and channel '%s' has %u",
	    others + 1, history, least, ch->name, ch->shape.in_flight);
}

/* Checks that a client can take messages of this size. A library that would take them for nonsense
 * is refused before it sees one. So is a consumer that has not said that it wants so much, as its
 * program may have room for what was once the most. False when answered. */
static bool check_far(struct request *r, const struct channel *ch)
{
	const struct wire_channel_open *m = &r->m->channel_open;
	uint32_t data_max = ch->shape.data_max, buffers = channel_buffers(&ch->shape);

	if (channel_far_size(&ch->shape) == 0)
		return true;
	if (r->client->version < WIRE_VERSION_FAR)
		return request_fail(
		    r, SHARE_ENOTSUP,
		    "a message of channel '%s' carries up to %u bytes and %u buffers, and "
		    "this process has an earlier version of the library, which knows no "
		    "more than %d and 1",
		    ch->name, data_max, buffers, CHANNEL_DATA_NEAR);
	if (m->role != SHARE_CONSUMER || ((data_max <= CHANNEL_DATA_NEAR || m->data_max != 0) &&
					  (buffers == 1 || m->buffers != 0)))
		return true;
	return request_fail(
	    r, SHARE_EEXIST,
	    "a message of channel '%s' carries up to %u bytes and %u buffers, and a "
	    "consumer gets more than %d and 1 only if it has said so (data_max, buffers)",
	    ch->name, data_max, buffers, CHANNEL_DATA_NEAR);
}

static bool let_join(struct request *r, struct channel *ch)
{
	const struct wire_channel_open *m = &r->m->channel_open;
	struct wire_message reply = {.type = WIRE_CHANNEL};
	bool consumer = m->role == SHARE_CONSUMER;
	struct member *member;
	bool waits;
	int e;

	if (!check_far(r, ch) || (m->flags & SHARE_CHANNEL_LATEST && !check_latest(r, ch))) {
		channel_end_if_unused(ch);
		return false;
	}
	e = member_new(ch, r->client, m->role, m->flags, &member);
	if (e != 0) {
		waits = go_on_without(r, ch, e);
		channel_end_if_unused(ch);
		return waits;
	}
	if (!consumer && m->flags & SHARE_CHANNEL_TRANSIENT) {
		member->as_producer.transient = true;
		member_note(member);
	}
	reply.channel = (struct wire_channel){
	    .member = member->id,
	    .pool = ch->pool->id,
	    .slot = member->as_consumer.slot,
	    .shape = {&ch->shape, CHANNEL_SHAPE_SENT},
	    .buffers = channel_buffers(&ch->shape),
	    .layout = ch->layout,
	};
	return request_reply(r, &reply,
			     (const int[]){member->page.fd, ch->control_fd, member->doorbell}, 3);
}

/* @hidden: the channel of this name, which is not for this user; NULL: there is none. */
static bool make_channel(struct request *r, const struct channel *hidden)
{
	const struct wire_channel_open *m = &r->m->channel_open;
	const struct wire_bytes *name =
	    m->pool.size ? &m->pool : &(struct wire_bytes){"default", 7};
	struct channel_shape shape;
	uint32_t producers;
	struct channel *ch;
	struct pool *p;
	int e;

	if (m->flags & SHARE_CHANNEL_EXISTING)
		return request_fail_absent(r, "channel", &m->name);
	/* as with SHARE_CHANNEL_EXISTING, so that who may not make it can wait for who may */
	if (!request_may_name(r, RIGHT_CREATE, &m->name))
		return request_fail_foreign_name(r, SHARE_ENOENT, "make a channel", &m->name);
	choose_shape(m, &shape, &producers);
	if (!request_name(r, name) || !check_shape(r, &shape, producers))
		return false;
	p = request_pool(r, name);
	if (!p || !check_pool(r, p))
		return false;
	/* who may make a channel of this name may know that there is one */
	if (hidden)
		return request_fail(r, SHARE_EEXIST,
				    "'%s' is taken, by a channel that this user may not use",
				    hidden->name);
	e = channel_new(r->broker, m->name.data, m->name.size, p, &shape, producers,
			m->flags & WIRE_CHANNEL_SERVICE, &ch);
	if (e < 0)
		return request_fail(r, SHARE_ESYSTEM, "cannot make a channel: %s", strerror(-e));
	return let_join(r, ch);
}

bool handle_channel_open(struct request *r)
{
	const struct wire_channel_open *m = &r->m->channel_open;
	struct channel *ch;

	if (!request_name(r, &m->name))
		return false;
	if ((m->role != SHARE_PRODUCER && m->role != SHARE_CONSUMER) ||
	    m->flags & ~(uint32_t)FLAGS_KNOWN)
		return request_fail(r, SHARE_EINVAL, "role %u or flags 0x%x are unknown", m->role,
				    m->flags);
	ch = channel_find(r->broker, m->name.data, m->name.size);
	if (ch && !channel_may(ch, r->client, RIGHT_READ)) {
		request_hide(r, "user %u may not use channel '%s', which is in pool '%s'",
			     (unsigned)r->client->peer.uid, ch->name, ch->pool->name);
		return make_channel(r, ch);
	}
	if (!ch)
		return make_channel(r, NULL);
	return check_pool(r, ch->pool) && check_same(r, ch) && let_join(r, ch);
}
