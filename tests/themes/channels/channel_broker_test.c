/* SPDX-License-Identifier: MIT */

/*
 * The broker's part of channels, as seen on the wire: who may take part, who is told of whom, and
 * what becomes of the memory in flight when a producer goes. Nothing is ever received here: what
 * the broker looks at in the pages is written by hand.
 */

#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>

#include "pages/page.h"
#include "tests/harness/fixture.h"
#include "tests/support/raw_channel.h"

static share_client *witness;
static struct raw a, b;
static struct party producer, consumer;

static void start(void)
{
	fixture_start();
	witness = connect_as("witness");
	raw_open(&a, "a");
	raw_open(&b, "b");
}

static void goodbye(struct raw *r)
{
	raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

static void stop(void)
{
	if (!check_has_failed()) {
		if (producer.r)
			party_forget(&producer);
		if (consumer.r)
			party_forget(&consumer);
		goodbye(&a);
		goodbye(&b);
		settle(witness,
		       s.clients == 1 && s.buffers == 0 && s.leases == 0 && s.dropped == 0);
	}
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(channel_broker, .init = start, .fini = stop, .timeout = 60);

static void join_both(void)
{
	party_join(&producer, &a, "c", SHARE_PRODUCER);
	party_join(&consumer, &b, "c", SHARE_CONSUMER);
}

/* ------------------------------------------------------------------------------------------- */
/* Coming                                                                                      */

Test(channel_broker, the_first_makes_it_with_the_defaults_and_others_get_what_is_there)
{
	join_both();
	check_eq(producer.shape.mode, CHANNEL_BROADCAST);
	check_eq(producer.shape.when_full, SHARE_FULL_BLOCK);
	check_eq(producer.shape.depth, 64);
	check_eq(producer.shape.in_flight, 128);
	check_eq(producer.shape.data_max, 256);
	check_eq(producer.shape.consumers, 64);
	check_eq(producer.shape.deliveries, 3);
	check(producer.shape.rows == 64);
	check(memcmp(&producer.shape, &consumer.shape, sizeof(producer.shape)) == 0);
	check(producer.id != consumer.id);
	check_eq(producer.pool, raw_pool(&a, "default"));
}

Test(channel_broker, who_asks_for_something_else_is_told_what_it_is)
{
	struct wire_message first = party_request("c", SHARE_PRODUCER), m;

	first.channel_open.depth = 8;
	first.channel_open.producers = 2;
	first.channel_open.mode = SHARE_QUEUE;
	party_open(&producer, &a, &first);
	party_ready(&producer);
	check_eq(producer.shape.in_flight, 16);

	m = party_request("c", SHARE_CONSUMER);
	m.channel_open.depth = 16;
	raw_ask_error(&b, &m, SHARE_EEXIST);
	check(memmem(b.m.error.detail.data, b.m.error.detail.size, "depth", 5));
	m = party_request("c", SHARE_CONSUMER);
	m.channel_open.mode = SHARE_BROADCAST;
	raw_ask_error(&b, &m, SHARE_EEXIST);
	m = party_request("c", SHARE_CONSUMER);
	m.channel_open.producers = 16;
	raw_ask_error(&b, &m, SHARE_EEXIST);
	m = party_request("c", SHARE_CONSUMER);
	m.channel_open.pool = raw_text("other");
	raw_ask_error(&b, &m, SHARE_EEXIST);
	m = party_request("c", SHARE_CONSUMER);
	m.channel_open = (struct wire_channel_open){.role = SHARE_CONSUMER,
						    .depth = 8,
						    .in_flight = 16,
						    .mode = SHARE_QUEUE,
						    .producers = 2,
						    .name = raw_text("c"),
						    .pool = raw_text("default")};
	party_open(&consumer, &b, &m);
}

Test(channel_broker, what_is_no_channel_is_refused)
{
	const struct wire_channel_open bad[] = {
	    {.role = 0},
	    {.role = 3},
	    {.role = 1, .flags = 1 << 7},
	    {.role = 1, .mode = 4},
	    {.role = 1, .when_full = 4},
	    {.role = 1, .depth = 63},
	    {.role = 1, .depth = 8192},
	    {.role = 1, .depth = UINT32_MAX},
	    {.role = 1, .depth = UINT32_C(1) << 31},
	    {.role = 1, .in_flight = 8193},
	    {.role = 1, .data_max = 65536},
	    {.role = 1, .data_max = 65535, .in_flight = 1025},
	    {.role = 1, .producers = 65},
	    {.role = 1, .consumers = 65},
	    {.role = 1, .deliveries = 65536},
	};
	struct wire_message m = {.type = WIRE_CHANNEL_OPEN};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		m.channel_open = bad[i];
		m.channel_open.name = raw_text("c");
		raw_ask_error(&a, &m, SHARE_EINVAL);
	}
	m = party_request("c\n", SHARE_PRODUCER);
	raw_ask_error(&a, &m, SHARE_EINVAL);
	m = party_request("c", SHARE_PRODUCER);
	m.channel_open.pool = raw_text("nowhere");
	raw_ask_error(&a, &m, SHARE_ENOENT);
	m = party_request("c", SHARE_PRODUCER);
	m.channel_open.flags = SHARE_CHANNEL_EXISTING;
	raw_ask_error(&a, &m, SHARE_ENOENT);
}

Test(channel_broker, there_are_as_many_as_there_may_be)
{
	struct wire_message m = party_request("c", SHARE_PRODUCER);
	struct party other;

	m.channel_open.producers = m.channel_open.consumers = 1;
	party_open(&producer, &a, &m);
	m = party_request("c", SHARE_PRODUCER);
	raw_ask_error(&b, &m, SHARE_EBUSY);
	party_join(&consumer, &b, "c", SHARE_CONSUMER);
	m = party_request("c", SHARE_CONSUMER);
	raw_ask_error(&a, &m, SHARE_EBUSY);
	party_close(&consumer);
	party_close(&producer);
	party_join(&producer, &b, "c", SHARE_PRODUCER);
	party_join(&other, &a, "c", SHARE_PRODUCER);
	party_forget(&other);
}

Test(channel_broker, a_page_that_is_ready_takes_no_other_writer)
{
	struct wire_message m = party_request("c", SHARE_PRODUCER),
			    ready = {.type = WIRE_CHANNEL_READY},
			    sync = {.type = WIRE_CHANNEL_SYNC};
	size_t size;
	void *page;

	party_open(&producer, &a, &m);
	size = channel_ring_size(&producer.shape, producer.layout);
	sync.channel_sync.member = ready.channel_ready.member = producer.id;
	raw_ask_error(&a, &sync, SHARE_EINVAL);
	check(page_map(producer.page_fd, size, true, &page) == 0);
	page_unmap(page, size);
	party_ready(&producer);
	check(page_map(producer.page_fd, size, true, &page) == -EPERM);
	raw_ask_error(&a, &ready, SHARE_EINVAL);
}

Test(channel_broker, who_is_there_is_told_who_comes_and_what_its_fences_are_on)
{
	struct listing l;
	struct wire_member told;

	party_join(&producer, &a, "c", SHARE_PRODUCER);
	party_join(&consumer, &b, "c", SHARE_CONSUMER);
	check_eq(raw_receive(&a, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(a.m.type, WIRE_TIMELINE_PAGE);
	check_eq(a.m.serial, 0);
	check_eq(a.m.timeline_page.page, b.page_id);
	check_eq(a.fds.n, 2);
	check_eq(raw_receive(&a, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(a.m.type, WIRE_CHANNEL_MEMBERS);
	check_eq(a.m.serial, 0);
	check_eq(a.m.channel_members.member, producer.id);
	check_eq(a.m.channel_members.members.size, sizeof(told));
	memcpy(&told, a.m.channel_members.members.data, sizeof(told));
	check_eq(told.member, consumer.id);
	check_eq(told.flags, WIRE_MEMBER_NEW);
	check_eq(a.fds.n, 3);

	party_sync(&producer, &l);
	check_eq(l.n, 1);
	check_eq(l.members[0].member, consumer.id);
	check_eq(l.members[0].flags, 0);
	check_eq(a.fds.n, 0);
	/* it was there before */
	party_sync(&consumer, &l);
	check_eq(l.members[0].flags, WIRE_MEMBER_NEW);
}

Test(channel_broker, all_are_told_when_somebody_comes_or_goes_and_of_each_once_with_descriptors)
{
	struct listing l;
	uint32_t epoch;
	eventfd_t one;

	party_join(&producer, &a, "c", SHARE_PRODUCER);
	party_sync(&producer, &l);
	check_eq(l.n, 0);
	check_eq(l.epoch, party_epoch(&producer));
	epoch = l.epoch;
	party_was_rung(&producer);

	party_join(&consumer, &b, "c", SHARE_CONSUMER);
	check(party_epoch(&producer) != epoch);
	party_wait_for_ring(&producer);
	producer.sync_flags = WIRE_CHANNEL_SYNC_AFRESH; /* what it was told unasked it has lost */
	party_sync(&producer, &l);
	producer.sync_flags = 0;
	check_eq(l.epoch, party_epoch(&producer));
	check_eq(l.n, 1);
	check_eq(l.members[0].member, consumer.id);
	check_eq(l.members[0].page, b.page_id);
	check_eq(l.members[0].slot, consumer.slot);
	check_eq(l.members[0].state, WIRE_MEMBER_HERE);
	check_eq(l.members[0].flags, WIRE_MEMBER_NEW);
	check_eq(a.fds.n, 3);

	/* its page, for reading; and its doorbell */
	{
		void *page;
		size_t size = channel_ledger_size(&consumer.shape);

		check(page_map(a.fds.fds[0], size, true, &page) == -EPERM);
		check(page_map(a.fds.fds[0], size, false, &page) == 0);
		page_unmap(page, size);
	}
	party_was_rung(&consumer);
	check(!party_was_rung(&consumer));
	check(eventfd_read(a.fds.fds[2], &one) == 0);
	check(party_was_rung(&consumer));

	party_sync(&producer, &l);
	check_eq(l.members[0].flags, 0);
	check_eq(a.fds.n, 0);
	party_sync(&consumer, &l);
	check_eq(l.n, 1);
	check_eq(l.members[0].member, producer.id);
	check_eq(b.fds.n, 3);

	party_was_rung(&consumer);
	party_close(&producer);
	party_wait_for_ring(&consumer);
	party_sync(&consumer, &l);
	check_eq(l.n, 1);
	check_eq(l.members[0].state, WIRE_MEMBER_CLOSED);
	check_eq(l.members[0].flags, 0);
	party_drained(&consumer, l.members[0].member);
	party_sync(&consumer, &l);
	check_eq(l.n, 0);
}

Test(channel_broker, more_members_than_fit_into_one_answer_come_in_several)
{
	struct party others[40];
	struct listing l;
	uint32_t n = 0, rounds = 0;

	party_join(&producer, &a, "c", SHARE_PRODUCER);
	for (int i = 0; i < 40; i++)
		party_join(&others[i], &b, "c", SHARE_CONSUMER);
	producer.sync_flags = WIRE_CHANNEL_SYNC_AFRESH;
	do {
		party_sync(&producer, &l);
		producer.sync_flags = 0;
		n += (uint32_t)a.fds.n / 3;
		rounds++;
	} while (l.more && rounds < 10);
	check_eq(n, 40);
	check_eq(rounds, 2);
	check_eq(l.n, 40);
	for (int i = 0; i < 40; i++) {
		check(listed(&l, &others[i]));
		party_close(&others[i]);
	}
	party_sync(&producer, &l);
	check_eq(l.n, 0);
}

Test(channel_broker, a_slot_is_used_again_and_an_identifier_is_not)
{
	uint64_t last = 0;

	party_join(&producer, &a, "c", SHARE_PRODUCER);
	for (int i = 0; i < 200; i++) {
		party_join(&consumer, &b, "c", SHARE_CONSUMER);
		check_eq(consumer.slot, 0);
		check(consumer.id > last);
		last = consumer.id;
		party_close(&consumer);
	}
}

Test(channel_broker, it_ends_with_its_last_member)
{
	struct wire_message existing = party_request("c", SHARE_CONSUMER), m;

	existing.channel_open.flags = SHARE_CHANNEL_EXISTING;
	m = party_request("c", SHARE_PRODUCER);
	m.channel_open.depth = 2;
	party_open(&producer, &a, &m);
	party_open(&consumer, &b, &existing);
	party_close(&consumer);
	party_close(&producer);
	raw_ask_error(&b, &existing, SHARE_ENOENT);
	party_join(&producer, &a, "c", SHARE_PRODUCER);
	check_eq(producer.shape.depth, 64);
}

Test(channel_broker, keeps_its_pool_until_it_ends)
{
	struct wire_message create = {.type = WIRE_POOL_CREATE}, m;

	create.pool_create.name = raw_text("own");
	create.pool_create.kind = raw_text("host");
	raw_ask(&a, &create, WIRE_POOL);
	m = party_request("c", SHARE_PRODUCER);
	m.channel_open.pool = raw_text("own");
	party_open(&producer, &a, &m);
	m = (struct wire_message){.type = WIRE_POOL_CLOSE, .pool_close = {.pool = producer.pool}};
	raw_ask(&a, &m, WIRE_DONE);
	settle(witness, s.pools == 2);
	party_close(&producer);
	settle(witness, s.pools == 1);
}

/* ------------------------------------------------------------------------------------------- */
/* Messages                                                                                    */

static uint64_t put_one(uint32_t ticket, uint32_t version)
{
	uint64_t buffer = raw_alloc(&a, raw_pool(&a, "default"), 4096);

	party_put(&producer, ticket, buffer, version);
	return buffer;
}

static struct wire_message segment_request(uint64_t member, uint64_t segment)
{
	struct wire_message m = {.type = WIRE_CHANNEL_SEGMENT};

	m.channel_segment.member = member;
	m.channel_segment.segment = segment;
	return m;
}

Test(channel_broker, a_consumer_gets_the_segments_of_the_pool_for_reading)
{
	struct wire_message m;
	uint64_t segment;

	join_both();
	put_one(0, 1);
	segment = a.m.grant.segment;
	/* before its first message, unasked */
	check_eq(raw_receive(&b, 0), RAW_MESSAGE);
	check_eq(b.m.type, WIRE_GRANT);
	check_eq(b.m.serial, 0);
	check_eq(b.m.grant.buffer, 0);
	check_eq(b.m.grant.segment, segment);
	check_eq(b.m.grant.pool, consumer.pool);
	check_eq(b.m.grant.mode, SHARE_RDONLY);
	check_eq(b.m.grant.flags, WIRE_GRANT_SEGMENT);
	check_eq(b.fds.n, 1);
	check_eq(fcntl(b.fds.fds[0], F_GETFL) & O_ACCMODE, O_RDONLY);
	m = segment_request(consumer.id, segment);
	raw_ask(&b, &m, WIRE_GRANT);
	check_eq(b.m.grant.segment, segment);
	check_eq(b.fds.n, 0);
	m = segment_request(consumer.id, segment + 1);
	raw_ask_error(&b, &m, SHARE_ENOENT);
	m = segment_request(producer.id, segment);
	raw_ask_error(&b, &m, SHARE_ESTALE);
}

static struct wire_message retain_request(uint64_t from, uint64_t buffer, uint64_t size)
{
	struct wire_message m = {.type = WIRE_CHANNEL_RETAIN};

	m.channel_retain.member = consumer.id;
	m.channel_retain.producer = from;
	m.channel_retain.buffer = buffer;
	m.channel_retain.size = size;
	return m;
}

Test(channel_broker, what_is_in_flight_can_be_retained_and_nothing_else)
{
	uint64_t sent, kept;
	struct wire_message m;

	join_both();
	sent = put_one(3, 1);
	kept = raw_alloc(&a, raw_pool(&a, "default"), 4096);
	m = retain_request(producer.id, kept, 1);
	raw_ask_error(&b, &m, SHARE_ENOENT);
	m = retain_request(producer.id + 1, sent, 1);
	raw_ask_error(&b, &m, SHARE_ENOENT);
	m = retain_request(producer.id, sent, 1 << 20);
	raw_ask_error(&b, &m, SHARE_EINVAL);
	m = retain_request(producer.id, sent, 100);
	raw_ask(&b, &m, WIRE_GRANT);
	check_eq(b.m.grant.buffer, sent);
	check_eq(b.m.grant.size, 100);
	check_eq(b.m.grant.mode, SHARE_RDONLY);
	settle(witness, s.leases == 3);
	party_acknowledge(&consumer, &producer, 3, 1, 0, 0);
	raw_ask_error(&b, &m, SHARE_ENOENT);
}

/* ------------------------------------------------------------------------------------------- */
/* Going: what a producer leaves in flight                                                      */

Test(channel_broker, what_a_producer_had_in_flight_stays_until_its_consumers_have_had_it)
{
	struct listing l;
	uint64_t gone;

	join_both();
	party_sync(&consumer, &l);
	party_admit(&producer, &consumer);
	put_one(0, 1);
	put_one(1, 1);
	raw_alloc(&a, raw_pool(&a, "default"), 4096); /* not in flight */
	party_acknowledge(&consumer, &producer, 1, 1, 0, 0);
	gone = producer.id;
	party_forget(&producer);
	goodbye(&a);
	settle(witness, s.clients == 2 && s.leases == 0 && s.buffers == 1);
	party_sync(&consumer, &l);
	check_eq(l.n, 1);
	check_eq(l.members[0].state, WIRE_MEMBER_CLOSED);
	party_drained(&consumer, gone);
	settle(witness, s.buffers == 0);
	raw_open(&a, "a");
}

Test(channel_broker, a_close_is_answered_once_all_in_flight_is_known)
{
	struct wire_message release = {.type = WIRE_RELEASE};
	struct listing l;
	uint64_t gone;

	join_both();
	party_admit(&producer, &consumer);
	release.release.buffer = put_one(127, 9);
	release.release.count = 1;
	gone = producer.id;
	party_close(&producer);
	raw_ask(&a, &release, WIRE_DONE);
	settle(witness, s.leases == 0 && s.buffers == 1);
	/* admitted, and never told before: it gets the ring now */
	party_sync(&consumer, &l);
	check_eq(l.n, 1);
	check_eq(l.members[0].flags, WIRE_MEMBER_NEW);
	check_eq(b.fds.n, 3);
	party_drained(&consumer, gone);
	settle(witness, s.buffers == 0);
}

Test(channel_broker, nobody_that_was_not_admitted_is_waited_for)
{
	join_both();
	put_one(0, 1);
	party_forget(&producer);
	goodbye(&a);
	settle(witness, s.leases == 0 && s.buffers == 0);
	raw_open(&a, "a");
}

Test(channel_broker, an_acknowledgement_of_another_version_is_none)
{
	join_both();
	party_admit(&producer, &consumer);
	put_one(0, 2);
	party_acknowledge(&consumer, &producer, 0, 1, 0, 0);
	party_forget(&producer);
	goodbye(&a);
	settle(witness, s.leases == 0 && s.buffers == 1);
	party_close(&consumer);
	settle(witness, s.buffers == 0);
	raw_open(&a, "a");
}

/* Of a segment that stays, so that the next user of the memory gets the same. */
static void keep_segment(struct raw *keeper)
{
	raw_open(keeper, "keeper");
	raw_alloc(keeper, raw_pool(keeper, "default"), (1 << 20) - 8192);
}

static void producer_goes(void)
{
	party_forget(&producer);
	goodbye(&a);
	settle(witness, s.leases == 1); /* the keeper's */
	raw_open(&a, "a");
}

/* The message is acknowledged, and its producer goes. */
static void acknowledge_and_go(uint32_t slot, uint64_t value)
{
	party_admit(&producer, &consumer);
	put_one(0, 1);
	party_acknowledge(&consumer, &producer, 0, 1, slot, value);
	producer_goes();
}

Test(channel_broker, the_fence_of_an_acknowledgement_is_waited_for)
{
	struct raw keeper;

	keep_segment(&keeper);
	join_both();
	put_one(1, 1);
	party_acknowledge(&consumer, &producer, 1, 1, 5, 6);
	acknowledge_and_go(5, 7);
	settle(witness, s.buffers == 3);
	timeline_signal(b.page, 5, 6);
	settle(witness, s.buffers == 2);
	timeline_signal(b.page, 5, 7);
	settle(witness, s.buffers == 1);
	goodbye(&keeper);
}

Test(channel_broker, a_consumer_that_has_closed_is_asked_too_while_its_work_runs)
{
	struct raw keeper;
	uint32_t slot;
	uint64_t id;

	keep_segment(&keeper);
	join_both();
	party_admit(&producer, &consumer);
	put_one(0, 1);
	party_acknowledge(&consumer, &producer, 0, 1, 5, 7);
	id = consumer.id;
	slot = consumer.slot;
	party_close(&consumer);
	/* another one in its place changes nothing */
	party_join(&consumer, &b, "c", SHARE_CONSUMER);
	check_eq(consumer.slot, slot);
	check(consumer.id != id);
	producer_goes();
	settle(witness, s.buffers == 2);
	timeline_signal(b.page, 5, 7);
	settle(witness, s.buffers == 1);
	goodbye(&keeper);
}

/* It may have been given the same again, by the same ticket and version. */
Test(channel_broker, what_was_rejected_is_kept_until_it_is_acknowledged)
{
	struct party gone;
	struct raw keeper;

	keep_segment(&keeper);
	join_both();
	gone = producer;
	acknowledge_and_go(CHANNEL_ACK_REJECTED | 1, 0);
	settle(witness, s.buffers == 2);
	party_acknowledge(&consumer, &gone, 0, 1, 0, 0);
	settle(witness, s.buffers == 1);
	goodbye(&keeper);
}

Test(channel_broker, what_was_rejected_is_kept_as_long_as_its_consumer_is_there)
{
	struct raw keeper;

	keep_segment(&keeper);
	join_both();
	acknowledge_and_go(CHANNEL_ACK_REJECTED | 1, 0);
	settle(witness, s.buffers == 2);
	party_close(&consumer);
	settle(witness, s.buffers == 1);
	goodbye(&keeper);
}

Test(channel_broker, fences_that_no_stream_has_are_none)
{
	static const uint64_t wild[][2] = {
	    {256, 1},
	    {0x3fffffff, 1},
	    {5, 0},
	    {5, UINT64_C(1) << 40},
	    {5, TIMELINE_POISON},
	    {5, UINT64_MAX},
	    {CHANNEL_ACK_RETAINED, 3},
	};
	struct raw keeper;

	keep_segment(&keeper);
	for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		party_join(&producer, &a, "c", SHARE_PRODUCER);
		party_join(&consumer, &b, "c", SHARE_CONSUMER);
		acknowledge_and_go((uint32_t)wild[i][0], wild[i][1]);
		settle(witness, s.buffers == 1);
		goodbye(&a);
		raw_open(&a, "a");
		party_close(&consumer);
	}
	goodbye(&keeper);
}
