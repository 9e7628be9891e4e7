/* SPDX-License-Identifier: MIT */

/*
 * A client can only name buffers on which it has a lease or a loan, and a loan is good for reading
 * metadata and for a lease: clients that name others', or what they have acknowledged.
 */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/support/raw_channel.h"

#define METADATA "{\"secret\": 7}"

static share_client *witness;
static struct raw a, b, third;
static struct party producer, consumer, stranger;
static uint64_t pool;

static void start(void)
{
	fixture_start();
	witness = connect_as("witness");
	raw_open(&a, "producer");
	raw_open(&b, "consumer");
	raw_open(&third, "third");
	party_join(&producer, &a, "c", SHARE_PRODUCER);
	party_join(&consumer, &b, "c", SHARE_CONSUMER);
	party_join(&stranger, &third, "other", SHARE_CONSUMER);
	pool = raw_pool(&a, "default");
}

static void goodbye(struct party *p)
{
	struct raw *r = p->r;

	party_forget(p);
	raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

static void stop(void)
{
	if (!check_has_failed()) {
		if (producer.r)
			goodbye(&producer);
		goodbye(&consumer);
		goodbye(&stranger);
		settle(witness, s.clients == 1 && s.buffers == 0 && s.leases == 0);
	}
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(loan_hostile, .init = start, .fini = stop, .timeout = 60);

static uint64_t described(void)
{
	struct wire_message m = {.type = WIRE_METADATA_SET};

	m.metadata_set.buffer = raw_alloc(&a, pool, 4096);
	m.metadata_set.json = raw_text(METADATA);
	raw_ask(&a, &m, WIRE_DONE);
	return m.metadata_set.buffer;
}

/* What a consumer says to have. */
struct loan {
	struct raw *r;
	uint64_t member, producer, buffer;
};

static void ask(const struct loan *l, struct wire_message *m)
{
	*m = (struct wire_message){.type = WIRE_CHANNEL_METADATA};
	m->channel_metadata.member = l->member;
	m->channel_metadata.producer = l->producer;
	m->channel_metadata.buffer = l->buffer;
}

static void expect_metadata(const struct loan *l)
{
	struct wire_message m;

	ask(l, &m);
	raw_ask(l->r, &m, WIRE_METADATA);
	check_eq(l->r->m.metadata.json.size, strlen(METADATA));
	check_eq(memcmp(l->r->m.metadata.json.data, METADATA, strlen(METADATA)), 0);
}

/* Neither the metadata nor a lease. */
static void expect_refused(const struct loan *l, int error)
{
	struct wire_message m, retain = {.type = WIRE_CHANNEL_RETAIN};

	ask(l, &m);
	raw_ask_error(l->r, &m, error);
	retain.channel_retain.member = l->member;
	retain.channel_retain.producer = l->producer;
	retain.channel_retain.buffer = l->buffer;
	retain.channel_retain.size = 1;
	raw_ask_error(l->r, &retain, error);
}

static struct loan lend(uint32_t ticket, uint32_t version)
{
	struct loan l = {&b, consumer.id, producer.id, described()};

	party_put(&producer, ticket, l.buffer, version);
	return l;
}

static void release(struct raw *r, uint64_t buffer)
{
	struct wire_message m = {.type = WIRE_RELEASE};

	m.release.buffer = buffer;
	m.release.count = 1;
	raw_ask(r, &m, WIRE_DONE);
}

Test(loan_hostile, what_was_not_lent_is_not_read)
{
	struct loan l = lend(3, 1);

	expect_metadata(&l);
	l.buffer = described(); /* which is in no message */
	expect_refused(&l, SHARE_ENOENT);
	l.buffer++;
	expect_refused(&l, SHARE_ENOENT);
	l.buffer = 0;
	expect_refused(&l, SHARE_ENOENT);
}

Test(loan_hostile, what_a_producer_names_that_it_does_not_have_is_not_read)
{
	struct wire_message m = {.type = WIRE_METADATA_SET};
	uint64_t its = raw_alloc(&third, raw_pool(&third, "default"), 4096);
	struct loan l = {&b, consumer.id, producer.id, its};

	m.metadata_set.buffer = its;
	m.metadata_set.json = raw_text(METADATA);
	raw_ask(&third, &m, WIRE_DONE);
	party_put(&producer, 0, its, 1);
	expect_refused(&l, SHARE_ENOENT);
}

Test(loan_hostile, others_members_and_producers_lend_nothing)
{
	struct loan l = lend(3, 1), lie = l;

	lie.member = stranger.id;
	expect_refused(&lie, SHARE_ESTALE);
	lie.member = 0;
	expect_refused(&lie, SHARE_ESTALE);
	lie = l;
	lie.producer = stranger.id;
	expect_refused(&lie, SHARE_ENOENT);
	lie.producer = UINT64_MAX;
	expect_refused(&lie, SHARE_ENOENT);
	lie.producer = consumer.id;
	expect_refused(&lie, SHARE_ENOENT);
	/* a member of another channel, with this one's producer or without it */
	lie = l;
	lie.r = &third;
	expect_refused(&lie, SHARE_ESTALE);
	lie.member = stranger.id;
	expect_refused(&lie, SHARE_ENOENT);
	/* who produces has leases on what it sends */
	lie = (struct loan){&a, producer.id, producer.id, described()};
	release(&a, lie.buffer);
	expect_refused(&lie, SHARE_EINVAL);
	expect_metadata(&l);
}

Test(loan_hostile, a_membership_that_is_not_ready_lends_nothing)
{
	struct loan l = lend(3, 1);
	struct wire_message m = party_request("c", SHARE_CONSUMER);
	struct party early;

	party_open(&early, &b, &m);
	l.member = early.id;
	expect_refused(&l, SHARE_EINVAL);
	party_close(&early);
	expect_refused(&l, SHARE_ESTALE);
}

Test(loan_hostile, what_is_acknowledged_is_over)
{
	struct loan l = lend(3, 1);

	expect_metadata(&l);
	party_acknowledge(&consumer, &producer, 3, 1, 0, 0);
	expect_refused(&l, SHARE_ENOENT);
	/* sent again it is another loan */
	party_put(&producer, 3, l.buffer, 2);
	expect_metadata(&l);
	/* acknowledged, though the work on it goes on */
	party_acknowledge(&consumer, &producer, 3, 2, 5, 7);
	expect_refused(&l, SHARE_ENOENT);
	/* in two messages it is lent until both are acknowledged */
	party_put(&producer, 4, l.buffer, 1);
	party_put(&producer, 5, l.buffer, 1);
	party_acknowledge(&consumer, &producer, 4, 1, 0, 0);
	expect_metadata(&l);
	party_acknowledge(&consumer, &producer, 5, 1, 0, 0);
	expect_refused(&l, SHARE_ENOENT);
}

Test(loan_hostile, what_is_acknowledged_is_over_when_the_producer_is_gone)
{
	struct loan l, other;
	struct listing list;
	struct party gone;

	party_sync(&consumer, &list);
	party_admit(&producer, &consumer);
	l = lend(3, 1);
	other = lend(4, 1);
	gone = producer;
	goodbye(&producer);
	settle(witness, s.clients == 3 && s.buffers == 2);
	expect_metadata(&l);
	expect_metadata(&other);
	/* the work on it goes on, and keeps it */
	party_acknowledge(&consumer, &gone, 3, 1, 5, 7);
	expect_refused(&l, SHARE_ENOENT);
	expect_metadata(&other);
	party_acknowledge(&consumer, &gone, 4, 1, 0, 0);
	expect_refused(&other, SHARE_ENOENT);
	timeline_signal(b.page, 5, 7);
	party_drained(&consumer, l.producer);
}

/* What it has retained it has by a lease, whatever becomes of the message. */
Test(loan_hostile, what_was_retained_is_read_by_the_lease)
{
	struct wire_message m = {.type = WIRE_CHANNEL_RETAIN};
	struct loan l = lend(3, 1);

	m.channel_retain.member = l.member;
	m.channel_retain.producer = l.producer;
	m.channel_retain.buffer = l.buffer;
	m.channel_retain.size = 100;
	raw_ask(&b, &m, WIRE_GRANT);
	fd_list_close(&b.fds);
	party_acknowledge(&consumer, &producer, 3, 1, 0, 0);
	expect_metadata(&l);
	party_close(&consumer);
	expect_metadata(&l);
	release(&b, l.buffer);
	expect_refused(&l, SHARE_ESTALE);
	party_join(&consumer, &b, "c", SHARE_CONSUMER);
}

Test(loan_hostile, what_is_lent_is_not_changed_kept_or_led_to)
{
	struct loan l = lend(3, 1);
	struct wire_message m[] = {
	    {.type = WIRE_METADATA_GET, .metadata_get = {.buffer = l.buffer}},
	    {.type = WIRE_METADATA_SET,
	     .metadata_set = {.buffer = l.buffer, .json = raw_text("{}")}},
	    {.type = WIRE_RECIPE_GET, .recipe_get = {.buffer = l.buffer}},
	    {.type = WIRE_RELEASE, .release = {.buffer = l.buffer, .count = 1}},
	    {.type = WIRE_PUBLISH,
	     .publish = {.buffer = l.buffer, .name = raw_text("name"), .size = 1}},
	    {.type = WIRE_EXPORT, .export = {.buffer = l.buffer, .mode = SHARE_RDONLY, .size = 1}},
	    {.type = WIRE_RECLAIM, .reclaim = {.buffer = l.buffer}},
	};

	for (size_t i = 0; i < sizeof(m) / sizeof(m[0]); i++)
		raw_ask_error(&b, &m[i], SHARE_ESTALE);
	expect_metadata(&l);
}
