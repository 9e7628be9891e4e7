/* SPDX-License-Identifier: MIT */

/*
 * Consumers of a channel get the segments of its pool before they need them: those that are there
 * when they come, and each that is added; however many, whether or not they read what they are
 * sent.
 */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"
#include "tests/support/raw_channel.h"

#define SEGMENT   65536
#define MANY      300
#define AT_A_TIME 128 /* that nobody has read */
#define HELD      64  /* descriptors of what is not mapped yet */

static share_client *client;
static share_pool *pool;
static share_buffer *buffers[MANY];

static void start(void)
{
	fixture_start_with(
	    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": "
	    "\"64MiB\", \"segment_size\": \"64KiB\", \"release_threshold\": 0, "
	    "\"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]}]}");
	client = connect_as("test");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_supply, .init = start, .fini = stop, .timeout = 60);

/* Each in a segment of its own. */
static void allocate_up_to(int from, int to)
{
	for (int i = from; i < to; i++) {
		buffers[i] = allocate(pool, SEGMENT, NULL);
		memset(share_ptr(buffers[i]), i, SEGMENT);
	}
}

static void release_all(int n)
{
	for (int i = 0; i < n; i++)
		check_ok(share_release(buffers[i], NULL));
}

static void goodbye(struct raw *r)
{
	raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

/* How many segments have come, without asking for any. */
static int count_sent(struct raw *r)
{
	int n = 0;

	while (raw_receive(r, 0) == RAW_MESSAGE)
		if (r->m.type == WIRE_GRANT && r->m.serial == 0)
			n += (int)r->fds.n;
	return n;
}

/* The same until the answer to a CHANNEL_SYNC. */
static int count_with_sync(struct party *p, bool *more)
{
	struct wire_message m = {.type = WIRE_CHANNEL_SYNC, .serial = ++p->r->serial};
	int n = 0;

	m.channel_sync.member = p->id;
	check_eq(raw_send(p->r, &m), 0);
	for (;;) {
		check_eq(raw_receive(p->r, HARNESS_LIMIT_MS), RAW_MESSAGE);
		if (p->r->m.type == WIRE_CHANNEL_MEMBERS)
			break;
		check_eq(p->r->m.type, WIRE_GRANT);
		n += (int)p->r->fds.n;
	}
	*more = p->r->m.channel_members.more;
	return n;
}

Test(channel_supply, all_there_is_comes_with_the_first_sync_and_each_that_is_added_at_once)
{
	struct party p;
	struct raw r;
	uint32_t epoch;
	bool more;

	raw_open(&r, "consumer");
	allocate_up_to(0, 5);
	party_join(&p, &r, "channel", SHARE_CONSUMER);
	check_eq(count_with_sync(&p, &more), 5);
	check(!more);
	check_eq(count_with_sync(&p, &more), 0);
	epoch = party_epoch(&p);
	party_was_rung(&p);
	allocate_up_to(5, 7);
	check_eq(count_sent(&r), 2);
	/* so that it comes to read that, if it sleeps */
	check(party_epoch(&p) != epoch);
	check(party_was_rung(&p));
	party_close(&p);
	/* not of any channel of this client's */
	allocate_up_to(7, 8);
	check_eq(count_sent(&r), 0);
	release_all(8);
	goodbye(&r);
}

Test(channel_supply, who_reads_nothing_gets_no_more_than_so_much_and_the_rest_when_it_asks)
{
	struct party p;
	struct raw r;
	int n, rounds = 0;
	bool more;

	raw_open(&r, "consumer");
	party_join(&p, &r, "channel", SHARE_CONSUMER);
	allocate_up_to(0, MANY);
	n = count_sent(&r);
	check(n > AT_A_TIME / 2 && n <= AT_A_TIME);
	do {
		n += count_with_sync(&p, &more);
		rounds++;
	} while (more);
	check_eq(n, MANY);
	check(rounds <= 4);
	party_close(&p);
	release_all(MANY);
	goodbye(&r);
}

/* Those of a consumer that is never anywhere but in share_recv(). */
Test(channel_supply, a_consumer_of_many_segments_has_few_descriptors)
{
	share_client *c = connect_as("consumer");
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL), *ch;
	int before;

	/* the first wait in the broker takes a descriptor to be woken by, which later ones have */
	allocate_up_to(0, 1);
	before = descriptors_count(0);
	allocate_up_to(1, MANY / 2);
	check_eq(descriptors_count(0), before);
	ch = open_channel(c, SHARE_CONSUMER, NULL);
	check(descriptors_count(0) < before + HELD + 20);
	before = descriptors_count(0);
	for (int i = MANY / 2; i < MANY; i++) {
		allocate_up_to(i, i + 1);
		expect_nothing(ch);
	}
	check(descriptors_count(0) < before + HELD);
	for (int i = 0; i < MANY; i += 7) {
		share_message m = SHARE_MESSAGE_INIT;

		check_ok(share_send(p, buffers[i], NULL, 0, NULL));
		check_ok(share_recv(ch, HARNESS_LIMIT_MS, NULL, &m));
		expect_filled(share_ptr(m.buffer), i & 0xff, SEGMENT);
		check_ok(share_ack(&m, NULL));
	}
	share_channel_close(ch);
	share_channel_close(p);
	release_all(MANY);
	share_disconnect(c);
}
