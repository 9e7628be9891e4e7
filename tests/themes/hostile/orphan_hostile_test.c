/* SPDX-License-Identifier: MIT */

/*
 * Messages of a queue whose producer is gone, where the producer has left nonsense, or a consumer
 * asks for what is not its own, or without end. Nobody else may notice, what makes sense is there,
 * and nothing is left in the end.
 */

#include <string.h>

#include <share/admin.h>

#include "tests/harness/fixture.h"
#include "tests/support/raw_channel.h"

static share_client *witness;
static struct raw r, other; /* who makes the producers, and the consumers */

static void start(void)
{
	fixture_start_with(
	    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"64MiB\","
	    "  \"segment_size\": \"1MiB\", \"release_threshold\": 0}],"
	    " \"limits\": {\"channels\": 200}}");
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
		goodbye(&r);
		goodbye(&other);
		settle(witness, s.clients == 1 && s.buffers == 0 && s.leases == 0);
	}
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(orphan_hostile, .init = start, .fini = stop, .timeout = 120);

static void join_queue(struct party *p, struct raw *c, uint32_t role)
{
	struct wire_message open = party_request("q", role);

	open.channel_open.mode = CHANNEL_QUEUE;
	open.channel_open.depth = 4;
	open.channel_open.in_flight = 16;
	party_open(p, c, &open);
	party_ready(p);
}

static uint64_t new_buffer(void)
{
	return raw_alloc(&r, raw_pool(&r, "default"), 4096);
}

static int64_t channel_number(const char *key)
{
	json_t *rows = report(witness, "channels");
	const json_t *row = row_named(rows, "channel", "q");
	int64_t n = row ? number_of(row, key) : -1;

	json_decref(rows);
	return n;
}

static size_t members(void)
{
	json_t *rows = report(witness, "channels");
	size_t n = json_array_size(json_object_get(row_named(rows, "channel", "q"), "members"));

	json_decref(rows);
	return n;
}

/* All that waits, acknowledged; as bits by ticket. */
static uint32_t fetch_all(struct party *c, const struct party *p)
{
	struct listing l;
	uint32_t tickets = 0;

	while (party_fetch(c, &l)) {
		check_eq(l.said.producer, p->id);
		check(l.said.ticket < c->shape.in_flight);
		check(!(tickets & 1u << l.said.ticket));
		tickets |= 1u << l.said.ticket;
		check(l.said.deliveries >= 1 && l.said.deliveries <= c->shape.deliveries);
		for (uint32_t i = 0; i < l.n; i++)
			if (l.members[i].member == p->id) {
				struct party at = {.id = p->id, .row = l.members[i].row};

				party_acknowledge(c, &at, l.said.ticket, l.said.version, 0, 0);
			}
	}
	return tickets;
}

/* Nothing of it is in the way of who comes then. */
static void end_of(struct party *c, uint64_t producer)
{
	party_drained(c, producer);
	until(channel_number("owned") == 0);
	party_close(c);
}

/* ------------------------------------------------------------------------------------------- */
/* What producers leave                                                                        */

Test(orphan_hostile, copies_that_make_no_sense_are_none_or_wait_and_all_others_are_there)
{
	struct party p, gone, c;
	uint64_t id;

	join_queue(&p, &r, SHARE_PRODUCER);
	join_queue(&gone, &other, SHARE_CONSUMER);
	party_admit(&p, &gone);
	id = p.id;
	/* sound: in no lane, twice */
	party_put_copy(&p, 0, new_buffer(), 1, 0, CHANNEL_COPY_WAITS);
	party_put_copy(&p, 1, CHANNEL_NO_BUFFER, 7, 0, CHANNEL_COPY_WAITS);
	/* of another version; not in use; finished; never written */
	party_put_copy(&p, 2, new_buffer(), 5, 0, CHANNEL_COPY_WAITS);
	party_put(&p, 2, 1, 6);
	party_put_copy(&p, 3, 0, 1, 0, CHANNEL_COPY_WAITS);
	party_put_copy(&p, 4, new_buffer(), 1, 0, CHANNEL_COPY_FINISHED);
	/* a buffer that is none, and one of somebody else */
	party_put_copy(&p, 5, UINT64_MAX - 1, 1, 0, CHANNEL_COPY_WAITS);
	party_put_copy(&p, 6, raw_alloc(&other, raw_pool(&other, "default"), 4096), 1, 0,
		       CHANNEL_COPY_WAITS);
	/* in lanes that there are not, or of nobody; far beyond its end */
	party_put_copy(&p, 7, new_buffer(), 1, UINT16_MAX, 3);
	party_put_copy(&p, 8, new_buffer(), 1, p.shape.consumers - 1, 3);
	party_put_copy(&p, 9, new_buffer(), 1, 0, CHANNEL_COPY_FINISHED - 1);
	/* delivered never, and more often than ever; a fence that is none */
	party_put_copy(&p, 10, new_buffer(), 1, 0, CHANNEL_COPY_WAITS);
	channel_copy_at(p.page, &p.shape, 10)->size_deliveries = 0;
	party_put_copy(&p, 11, new_buffer(), 1, 0, CHANNEL_COPY_WAITS);
	channel_copy_at(p.page, &p.shape, 11)->size_deliveries = UINT64_MAX;
	party_put_copy(&p, 12, new_buffer(), 1, 0, CHANNEL_COPY_WAITS);
	channel_copy_at(p.page, &p.shape, 12)->timeline = UINT16_MAX;
	channel_copy_at(p.page, &p.shape, 12)->value = UINT64_MAX;
	/* the same buffer twice */
	party_put_copy(&p, 13, channel_copy_at(p.page, &p.shape, 0)->buffer, 1, 0,
		       CHANNEL_COPY_WAITS);
	party_close(&p);
	party_close(&gone);
	until(channel_number("waiting") == 9 && channel_number("owned") == 0);
	join_queue(&c, &other, SHARE_CONSUMER);
	p.id = id;
	check_eq(fetch_all(&c, &p), 1u << 0 | 1u << 1 | 1u << 7 | 1u << 8 | 1u << 9 | 1u << 10 |
					1u << 11 | 1u << 12 | 1u << 13);
	end_of(&c, id);
}

Test(orphan_hostile, a_ring_full_of_anything_harms_nobody)
{
	struct party p, c;
	uint64_t id;

	for (uint32_t byte = 0; byte < 256; byte += 51) {
		join_queue(&p, &r, SHARE_PRODUCER);
		join_queue(&c, &other, SHARE_CONSUMER);
		memset(p.page, (int)byte, channel_ring_size(&p.shape, p.layout));
		for (uint32_t i = 0; i < p.shape.in_flight; i++)
			party_put(&p, i, i % 2 ? new_buffer() : UINT64_MAX, byte * 0x01010101u);
		id = p.id;
		party_close(&p);
		p.id = id;
		fetch_all(&c, &p);
		end_of(&c, id);
	}
}

/* Who had the slot before has its messages in mind, and not those of who has it now. */
Test(orphan_hostile, who_has_a_slot_owns_nothing_of_who_had_it_before)
{
	struct party p, first, second;
	struct listing l;

	join_queue(&p, &r, SHARE_PRODUCER);
	join_queue(&first, &other, SHARE_CONSUMER);
	party_put_copy(&p, 0, new_buffer(), 1, first.slot, 1);
	party_close(&first);
	join_queue(&second, &other, SHARE_CONSUMER);
	check_eq(second.slot, first.slot);
	party_admit(&p, &second);
	atomic_store(&channel_admission_at(p.page, &p.shape, second.slot)->start, 1);
	party_close(&p);
	check(party_fetch(&second, &l));
	check_eq(l.said.deliveries, 2); /* it may have been received */
	party_close(&second);
	until(channel_number("waiting") == 1);
	check_ok(share_end_channel(witness, "q"));
}

/* ------------------------------------------------------------------------------------------- */
/* Who fetches                                                                                 */

static void leave(uint32_t n, uint64_t *id)
{
	struct party p;

	join_queue(&p, &r, SHARE_PRODUCER);
	for (uint32_t i = 0; i < n; i++)
		party_put_copy(&p, i, new_buffer(), 1, 0, CHANNEL_COPY_WAITS);
	*id = p.id;
	party_close(&p);
}

Test(orphan_hostile, who_does_not_say_what_it_had_is_told_the_same_again)
{
	struct party c;
	struct listing l;
	uint64_t id;

	leave(8, &id);
	join_queue(&c, &other, SHARE_CONSUMER);
	check(party_fetch(&c, &l));
	check_eq(l.said.ticket, 0);
	for (int i = 0; i < 5000; i++) {
		c.had = i % 3 == 0 ? 0 : i % 3 == 1 ? UINT32_MAX : 7;
		check(party_fetch(&c, &l));
		check_eq(l.said.ticket, 0);
	}
	check_eq(channel_number("owned"), 1);
	check_eq(channel_number("waiting"), 7);
	/* all of them, however many it has */
	c.had = 1;
	for (uint32_t i = 1; i < 8; i++) {
		check(party_fetch(&c, &l));
		check_eq(l.said.ticket, i);
	}
	for (int i = 0; i < 5000; i++)
		check(!party_fetch(&c, &l));
	check_ok(share_ping(witness));
	party_close(&c);
	until(channel_number("waiting") == 8);
	check_ok(share_end_channel(witness, "q"));
}

Test(orphan_hostile, who_is_no_consumer_gets_nothing)
{
	struct wire_message m = {.type = WIRE_CHANNEL_SYNC};
	struct party p, c;
	struct listing l;
	uint64_t id;

	leave(2, &id);
	join_queue(&p, &r, SHARE_PRODUCER);
	check(!party_fetch(&p, &l));
	check_eq(l.said.waiting, 0);
	m.channel_sync.flags = WIRE_CHANNEL_SYNC_FETCH;
	for (uint64_t who = 0; who < 6; who++) {
		if (who == p.id)
			continue;
		m.channel_sync.member = who;
		raw_ask_error(&r, &m, SHARE_ESTALE);
		raw_ask_error(&other, &m, SHARE_ESTALE);
	}
	check_eq(channel_number("waiting"), 2);
	party_close(&p);
	/* and not before it is ready, nor in another channel */
	m = party_request("q", SHARE_CONSUMER);
	m.channel_open.mode = CHANNEL_QUEUE;
	m.channel_open.depth = 4;
	m.channel_open.in_flight = 16;
	party_open(&c, &other, &m);
	m = (struct wire_message){.type = WIRE_CHANNEL_SYNC};
	m.channel_sync.member = c.id;
	m.channel_sync.flags = WIRE_CHANNEL_SYNC_FETCH;
	raw_ask_error(&other, &m, SHARE_EINVAL);
	party_close(&c);
	m = party_request("another", SHARE_CONSUMER);
	m.channel_open.mode = CHANNEL_QUEUE;
	party_open(&c, &other, &m);
	party_ready(&c);
	check(!party_fetch(&c, &l));
	party_close(&c);
	check_eq(channel_number("waiting"), 2);
	check_ok(share_end_channel(witness, "q"));
}

Test(orphan_hostile, a_ledger_full_of_ones_ends_what_its_owner_has_and_no_more)
{
	struct party bad, good, p = {.id = 0};
	struct listing l;

	leave(4, &p.id);
	join_queue(&bad, &other, SHARE_CONSUMER);
	check(party_fetch(&bad, &l));
	memset(bad.page, 0xff, channel_ledger_size(&bad.shape));
	check(party_fetch(&bad, &l));
	memset(bad.page, 0xff, channel_ledger_size(&bad.shape));
	party_close(&bad);
	until(channel_number("owned") == 0 && channel_number("waiting") == 4);
	join_queue(&good, &other, SHARE_CONSUMER);
	check_eq(fetch_all(&good, &p), 0xf);
	end_of(&good, p.id);
}

/* Of what others have it can acknowledge nothing. */
Test(orphan_hostile, acknowledging_all_tickets_ends_only_ones_own)
{
	struct party bad, good, p = {.id = 0};
	struct listing l;

	leave(4, &p.id);
	join_queue(&bad, &other, SHARE_CONSUMER);
	join_queue(&good, &other, SHARE_CONSUMER);
	check(party_fetch(&good, &l));
	check_eq(l.said.ticket, 0);
	check(party_fetch(&bad, &l));
	p.row = l.members[0].row;
	for (uint32_t i = 0; i < 4; i++)
		party_acknowledge(&bad, &p, i, 1, 0, 0);
	until(channel_number("owned") == 1);
	check_eq(channel_number("waiting"), 2);
	party_close(&bad);
	party_close(&good);
	until(channel_number("waiting") == 3);
	check_ok(share_end_channel(witness, "q"));
}

/* What a consumer that is gone acknowledged is remembered of its own messages only. */
Test(orphan_hostile, who_leaves_acknowledges_nothing_of_others)
{
	struct party p, bad, good;
	struct listing l;

	join_queue(&p, &r, SHARE_PRODUCER);
	join_queue(&bad, &other, SHARE_CONSUMER);
	join_queue(&good, &other, SHARE_CONSUMER);
	party_admit(&p, &bad);
	party_admit(&p, &good);
	party_put_copy(&p, 0, new_buffer(), 1, bad.slot, 1);
	party_put_copy(&p, 1, new_buffer(), 1, good.slot, 1);
	party_put_copy(&p, 2, new_buffer(), 1, 0, CHANNEL_COPY_WAITS);
	for (uint32_t i = 0; i < p.shape.in_flight; i++)
		party_acknowledge(&bad, &p, i, 1, 0, 0);
	party_close(&bad);
	until(members() == 2); /* and its row has gone */
	party_close(&p);
	until(channel_number("owned") == 1);
	check_eq(channel_number("waiting"), 1);
	check(party_fetch(&good, &l));
	check_eq(l.said.ticket, 2);
	check(!party_fetch(&good, &l));
	party_close(&good);
	until(channel_number("waiting") == 2);
	check_ok(share_end_channel(witness, "q"));
}

/* Its row has gone when its producer does, which has not looked. */
Test(orphan_hostile, what_who_is_gone_has_given_back_is_not_acknowledged)
{
	struct party p, gone, c;
	struct listing l;

	join_queue(&p, &r, SHARE_PRODUCER);
	join_queue(&gone, &other, SHARE_CONSUMER);
	party_admit(&p, &gone);
	party_put_copy(&p, 0, new_buffer(), 1, gone.slot, 1);
	party_acknowledge(&gone, &p, 0, 1, CHANNEL_ACK_REJECTED | 1, 0);
	party_close(&gone);
	until(members() == 1);
	party_close(&p);
	until(channel_number("waiting") == 1);
	join_queue(&c, &other, SHARE_CONSUMER);
	check(party_fetch(&c, &l));
	check_eq(l.said.ticket, 0);
	check_eq(l.said.deliveries, 2);
	party_close(&c);
	until(channel_number("waiting") == 1);
	check_ok(share_end_channel(witness, "q"));
}

/* What consumers have takes no place of what waits, which nobody could use: the 65th producer's is
 * there. When all comes back, only what is too many goes. */
Test(orphan_hostile, who_leaves_some_while_consumers_have_those_of_64_others_loses_none)
{
	struct party c;
	struct listing l;
	uint64_t id;

	for (int i = 0; i < 64; i++)
		leave(1, &id);
	join_queue(&c, &other, SHARE_CONSUMER);
	for (int i = 0; i < 64; i++)
		check(party_fetch(&c, &l));
	/* for which this one has no row, and gets nothing more */
	leave(1, &id);
	check_ok(share_ping(witness));
	check_eq(channel_number("owned"), 64);
	check_eq(channel_number("waiting"), 1);
	check_eq(channel_number("lost"), 0);
	party_close(&c);
	until(channel_number("lost") == 1);
	check_eq(channel_number("waiting"), 64);
	/* the oldest one of who has most, and not the last one */
	join_queue(&c, &other, SHARE_CONSUMER);
	for (int i = 0; i < 64; i++)
		check(party_fetch(&c, &l));
	check_eq(l.said.producer, id);
	party_close(&c);
	until(channel_number("waiting") == 64);
	check_ok(share_end_channel(witness, "q"));
}
