/* SPDX-License-Identifier: MIT */

/*
 * A consumer tells the broker what it has acknowledged to a producer that is gone, as its ledger
 * does not (CHANNEL_SETTLE). Both sides are written by hand.
 */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/support/raw_channel.h"

static share_client *witness;
static struct raw a, b;
static struct party producer, consumer;
static uint64_t gone;

static void goodbye(struct raw *r)
{
	raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

static void start(void)
{
	fixture_start();
	witness = connect_as("witness");
	raw_open(&a, "a");
	raw_open(&b, "b");
	party_join(&producer, &a, "c", SHARE_PRODUCER);
	party_join(&consumer, &b, "c", SHARE_CONSUMER);
	party_admit(&producer, &consumer);
	gone = producer.id;
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

TestSuite(channel_settle, .init = start, .fini = stop, .timeout = 60);

static void put(uint32_t ticket)
{
	party_put(&producer, ticket, raw_alloc(&a, raw_pool(&a, "default"), 4096), 1);
}

/* The producer closes the channel and gives up what it holds of these: they are in its estate. */
static void end_producer(void)
{
	party_close(&producer);
	goodbye(&a);
	raw_open(&a, "a");
}

static void tell(uint64_t whom, const struct wire_settled *acks, uint32_t n, uint32_t flags)
{
	struct wire_message m = {.type = WIRE_CHANNEL_SETTLE};

	m.channel_settle.member = consumer.id;
	m.channel_settle.producer = whom;
	m.channel_settle.flags = flags;
	m.channel_settle.acks = (struct wire_bytes){acks, n * (uint32_t)sizeof(*acks)};
	raw_send(&b, &m);
	raw_ask(&b, &(struct wire_message){.type = WIRE_PING}, WIRE_DONE);
}

static void expect_buffers(int64_t n)
{
	settle(witness, s.buffers == n);
}

Test(channel_settle, what_it_names_is_free_and_nothing_else)
{
	const struct wire_settled two = {.ticket = 2, .version = 1};

	for (uint32_t i = 0; i < 4; i++)
		put(i);
	end_producer();
	expect_buffers(4);
	tell(gone, &two, 1, 0);
	expect_buffers(3);
	tell(gone, &two, 1, 0);
	tell(gone, (const struct wire_settled[]){{.version = 1}, {.ticket = 3, .version = 1}}, 2,
	     0);
	expect_buffers(1);
	tell(gone, NULL, 0, WIRE_CHANNEL_SETTLE_ALL);
	expect_buffers(0);
}

Test(channel_settle, nothing_comes_of_what_is_not_so)
{
	const struct wire_settled nonsense[] = {
	    {.ticket = 0, .version = 2},
	    {.ticket = 1, .version = 1},
	    {.ticket = UINT32_MAX, .version = 1, .slot = UINT32_MAX, .value = UINT64_MAX},
	};

	put(0);
	tell(gone, nonsense, 3, WIRE_CHANNEL_SETTLE_ALL); /* it is alive */
	end_producer();
	tell(gone, nonsense, 3, 0);
	tell(gone + 1000, nonsense, 3, WIRE_CHANNEL_SETTLE_ALL);
	tell(consumer.id, nonsense, 3, WIRE_CHANNEL_SETTLE_ALL);
	expect_buffers(1);
	tell(gone, nonsense, 3, WIRE_CHANNEL_SETTLE_ALL);
	expect_buffers(0);
	tell(gone, nonsense, 3, WIRE_CHANNEL_SETTLE_ALL); /* it is no more */
}

Test(channel_settle, its_work_gates_the_memory)
{
	const struct wire_settled behind = {.version = 1, .slot = 5, .value = 7};
	struct wire_message m = {.type = WIRE_ALLOC};
	struct wire_fence fence;
	struct raw keeper;

	/* of a segment that stays, so that the next user of the memory gets the same */
	raw_open(&keeper, "keeper");
	raw_alloc(&keeper, raw_pool(&keeper, "default"), (1 << 20) - 4096);
	put(0);
	end_producer();
	tell(gone, &behind, 1, WIRE_CHANNEL_SETTLE_ALL);
	expect_buffers(1); /* the keeper's */
	m.alloc.pool = raw_pool(&a, "default");
	m.alloc.size = 4096;
	raw_ask(&a, &m, WIRE_GRANT);
	check_eq(a.m.grant.fences.size, sizeof(fence));
	memcpy(&fence, a.m.grant.fences.data, sizeof(fence));
	check_eq(fence.timeline, WIRE_TIMELINE(b.page_id, 5));
	check_eq(fence.value, 7);
	timeline_signal(b.page, 5, 7);
	goodbye(&keeper);
}

Test(channel_settle, others_have_what_they_have)
{
	const struct wire_settled zero = {.version = 1};
	struct party second;
	struct raw r;

	raw_open(&r, "another");
	party_join(&second, &r, "c", SHARE_CONSUMER);
	party_admit(&producer, &second);
	put(0);
	put(1);
	end_producer();
	tell(gone, &zero, 1, WIRE_CHANNEL_SETTLE_ALL);
	expect_buffers(2);
	party_acknowledge(&second, &(struct party){.id = gone, .slot = 0}, 1, 1, 0, 0);
	party_drained(&second, gone);
	expect_buffers(0);
	party_forget(&second);
	goodbye(&r);
}

Test(channel_settle, who_has_lost_what_it_was_told_is_told_again)
{
	struct wire_message afresh = {.type = WIRE_CHANNEL_AFRESH};
	struct listing l;

	party_sync(&consumer, &l);
	check_eq(l.members[0].flags & WIRE_MEMBER_NEW, WIRE_MEMBER_NEW);
	fd_list_close(&b.fds);
	party_sync(&consumer, &l);
	check_eq(l.members[0].flags & WIRE_MEMBER_NEW, 0);
	check_eq(b.fds.n, 0);
	afresh.channel_afresh.member = consumer.id;
	raw_send(&b, &afresh);
	party_sync(&consumer, &l);
	check_eq(l.members[0].flags & WIRE_MEMBER_NEW, WIRE_MEMBER_NEW);
	check_eq(b.fds.n, 3);
	fd_list_close(&b.fds);
	afresh.channel_afresh.member = 1000000; /* nobody's */
	raw_send(&b, &afresh);
	party_sync(&consumer, &l);
	check_eq(b.fds.n, 0);
}
