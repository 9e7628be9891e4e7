/* SPDX-License-Identifier: MIT */

/*
 * Messages of several buffers in a queue whose producer is gone, where it has left nonsense behind
 * the first buffer, or a consumer says something of some of them alone. What makes no sense is no
 * message, all others are there, and nothing is left in the end.
 */

#include <share/admin.h>

#include "tests/harness/fixture.h"
#include "tests/support/raw_channel.h"

static share_client *witness;
static struct raw r, other; /* who makes the producers, and the consumers */

static void start(void)
{
	fixture_start_with(
	    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"64MiB\","
	    "  \"segment_size\": \"1MiB\", \"release_threshold\": 0}]}");
	witness = connect_as("witness");
	raw_open(&r, "producers");
	raw_open(&other, "consumers");
}

static void goodbye(struct raw *c)
{
	raw_ask(c, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(c);
}

static void stop(void)
{
	if (!check_has_failed()) {
		goodbye(&other);
		settle(witness, s.clients == 1 && s.buffers == 0 && s.leases == 0);
	}
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(orphan_several, .init = start, .fini = stop, .timeout = 120);

#define MOST 4

static void join_queue_of(struct party *p, struct raw *c, uint32_t role, uint32_t in_flight,
			  uint32_t deliveries)
{
	struct wire_message open = party_request("q", role);

	open.channel_open.mode = CHANNEL_QUEUE;
	open.channel_open.depth = 16;
	open.channel_open.in_flight = in_flight;
	open.channel_open.deliveries = deliveries;
	open.channel_open.buffers = MOST;
	party_open(p, c, &open);
	party_ready(p);
}

static void join_queue(struct party *p, struct raw *c, uint32_t role)
{
	join_queue_of(p, c, role, 64, 0);
}

static uint64_t new_buffer(struct raw *of)
{
	return raw_alloc(of, raw_pool(of, "default"), 4096);
}

static struct channel_further *further_of(struct party *p, uint32_t ticket)
{
	return (void *)channel_far_at(p->page, &p->shape, p->layout, ticket);
}

/* A message of @n buffers, by tickets from this one on, all of version 7: the first one's is the
 * last. That ticket. */
static uint32_t put_several(struct party *p, uint32_t from, uint32_t n)
{
	uint32_t first = from + n - 1;
	uint64_t id;

	for (uint32_t i = 0; i + 1 < n; i++) {
		id = new_buffer(p->r);
		party_put_copy(p, from + i, id, 7, 0, CHANNEL_COPY_FINISHED);
		further_of(p, first)[i] = (struct channel_further){
		    .ticket = CHANNEL_FURTHER(from + i, 7, 7), .buffer = id};
	}
	party_put_copy(p, first, new_buffer(p->r), 7, 0, CHANNEL_COPY_WAITS);
	channel_copy_at(p->page, &p->shape, first)->timeline = CHANNEL_TIMELINE(0, n - 1);
	return first;
}

static int64_t channel_number(const char *key)
{
	json_t *rows = report(witness, "channels");
	const json_t *row = row_named(rows, "channel", "q");
	int64_t n = row ? number_of(row, key) : -1;

	json_decref(rows);
	return n;
}

/* Fetched; where the consumer acknowledges it: as @at. */
static uint32_t fetch(struct party *c, uint64_t producer, struct party *at, uint32_t *version)
{
	struct listing l;

	check(party_fetch(c, &l));
	check_eq(l.said.producer, producer);
	*at = (struct party){.id = producer};
	for (uint32_t i = 0; i < l.n; i++)
		if (l.members[i].member == producer)
			at->row = l.members[i].row;
	*version = l.said.version;
	return l.said.ticket;
}

Test(orphan_several, those_that_make_no_sense_are_none_and_all_others_are_there)
{
	struct party p, c, at;
	uint32_t ticket, version, seen = 0;
	uint64_t id;

	join_queue(&p, &r, SHARE_PRODUCER);
	id = p.id;
	/* sound: of all that there may be, and of one */
	check_eq(put_several(&p, 0, MOST), 3);
	check_eq(put_several(&p, 4, 1), 4);
	/* a ticket that there is not; its own; one twice; another message's */
	further_of(&p, put_several(&p, 8, 3))[1].ticket = CHANNEL_FURTHER(64, 7, 7);
	further_of(&p, put_several(&p, 12, 3))[1].ticket = CHANNEL_FURTHER(14, 7, 7);
	further_of(&p, put_several(&p, 16, 3))[1].ticket = CHANNEL_FURTHER(16, 7, 7);
	further_of(&p, put_several(&p, 20, 3))[1].ticket = CHANNEL_FURTHER(1, 7, 7);
	/* of another version of the message; of none; no buffer; somebody else's; one that is none
	 */
	further_of(&p, put_several(&p, 24, 3))[0].ticket = CHANNEL_FURTHER(24, 8, 7);
	further_of(&p, put_several(&p, 28, 3))[0].ticket = CHANNEL_FURTHER(28, 7, 0);
	further_of(&p, put_several(&p, 32, 3))[1].buffer = 0;
	further_of(&p, put_several(&p, 36, 3))[1].buffer = new_buffer(&other);
	further_of(&p, put_several(&p, 40, 3))[1].buffer = UINT64_MAX;
	/* more than there may be; of a message without a buffer */
	channel_copy_at(p.page, &p.shape, put_several(&p, 44, MOST))->timeline =
	    CHANNEL_TIMELINE(0, MOST);
	atomic_store(&channel_ticket_at(p.page, &p.shape, put_several(&p, 48, 2))->buffer,
		     CHANNEL_NO_BUFFER);
	party_close(&p);
	until(channel_number("waiting") == 2 && channel_number("owned") == 0);
	goodbye(&r);
	/* with the one of the consumers' */
	settle(witness, s.buffers == MOST + 1 + 1);
	join_queue(&c, &other, SHARE_CONSUMER);
	for (int i = 0; i < 2; i++) {
		ticket = fetch(&c, id, &at, &version);
		check_eq(version, 7);
		seen |= 1u << ticket;
		for (uint32_t k = 0; ticket == 3 && k < 3; k++)
			party_acknowledge(&c, &at, k, 7, 0, 0);
		party_acknowledge(&c, &at, ticket, 7, 0, 0);
	}
	check_eq(seen, 1u << 3 | 1u << 4);
	party_drained(&c, id);
	until(channel_number("owned") == 0);
	party_close(&c);
}

/* That it says nothing of the others keeps them for it, and for nobody else. */
Test(orphan_several, who_acknowledges_the_first_alone_keeps_the_others_until_it_goes)
{
	struct party p, c, at;
	uint32_t version;
	uint64_t id;

	join_queue(&p, &r, SHARE_PRODUCER);
	id = p.id;
	put_several(&p, 0, 3);
	party_close(&p);
	goodbye(&r);
	join_queue(&c, &other, SHARE_CONSUMER);
	check_eq(fetch(&c, id, &at, &version), 2);
	party_acknowledge(&c, &at, 2, version, 0, 0);
	until(channel_number("owned") == 0);
	party_drained(&c, id);
	party_close(&c);
}

static int64_t messages_lost(void)
{
	json_t *rows = report(witness, "status");
	int64_t n = number_of(json_array_get(rows, 0), "messages_lost");

	json_decref(rows);
	return n;
}

/* More than the broker looks at in one turn, which ends in the middle of some: what they cost is no
 * part of a turn. */
Test(orphan_several, those_that_were_delivered_too_often_are_lost_once)
{
	enum { IN_FLIGHT = 6000 };
	struct party p;
	uint64_t id;

	join_queue_of(&p, &r, SHARE_PRODUCER, IN_FLIGHT, 1);
	id = new_buffer(&r);
	/* in the lane of who is gone, and has left no row: nobody knows what it had */
	for (uint32_t i = 0; i < IN_FLIGHT; i++) {
		party_put_copy(&p, i, id, 7, 0, i + 1);
		channel_copy_at(p.page, &p.shape, i)->timeline = CHANNEL_TIMELINE(0, i % MOST);
	}
	party_close(&p);
	check_eq(messages_lost(), IN_FLIGHT);
	goodbye(&r);
}
