/* SPDX-License-Identifier: MIT */

/*
 * Members of channels that die at every point, write nonsense into their pages, and ask for what
 * makes no sense. Nobody else may notice, and nothing may be left.
 */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/support/raw_channel.h"

static share_client *witness;

static void start(void)
{
	fixture_start_with(
	    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"64MiB\","
	    "  \"segment_size\": \"1MiB\", \"release_threshold\": 0}],"
	    " \"limits\": {\"channels\": 100}}");
	witness = connect_as("witness");
}

static void stop(void)
{
	if (!check_has_failed())
		settle(witness, s.clients == 1 && s.buffers == 0 && s.leases == 0);
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(channel_hostile, .init = start, .fini = stop, .timeout = 120);

static void goodbye(struct raw *r)
{
	raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

static int64_t channels(void)
{
	json_t *rows = report(witness, "channels");
	int64_t n = (int64_t)json_array_size(rows);

	json_decref(rows);
	return n;
}

static int64_t channel_number(const char *name, const char *key)
{
	json_t *rows = report(witness, "channels");
	const json_t *row = row_named(rows, "channel", name);
	int64_t n = row ? number_of(row, key) : -1;

	json_decref(rows);
	return n;
}

/* ------------------------------------------------------------------------------------------- */
/* Death                                                                                       */

enum until { OPENED, READY, SYNCED, IN_FLIGHT };

struct plan {
	uint32_t role;
	enum until until;
};

/* A buffer behind every token, for all who are there. */
static void send_all(struct party *p, const struct listing *l)
{
	uint64_t pool = raw_pool(p->r, "default");

	for (uint32_t i = 0; i < p->shape.in_flight; i++)
		party_put(p, i, raw_alloc(p->r, pool, 4096), 1);
	for (uint32_t i = 0; i < l->n; i++)
		atomic_store(
		    &channel_admission_at(p->page, &p->shape, l->members[i].slot)->consumer,
		    l->members[i].member);
}

/* A member up to some point, where it waits for its end. */
static void take_part(struct child *self, void *data)
{
	const struct plan *plan = data;
	struct wire_message open = party_request("c", plan->role);
	struct listing l;
	struct party p;
	struct raw r;

	raw_open(&r, "member");
	open.channel_open.in_flight = 16;
	party_open(&p, &r, &open);
	if (plan->until >= READY)
		party_ready(&p);
	if (plan->until >= SYNCED)
		party_sync(&p, &l);
	if (plan->until >= IN_FLIGHT)
		send_all(&p, &l);
	child_point_with(self, "there", &p.id, sizeof(p.id));
}

static struct child *member_start(uint32_t role, enum until until, uint64_t *id)
{
	struct plan plan = {role, until};
	struct child *child = child_start(take_part, &plan);

	child_wait_with(child, "there", id, sizeof(*id));
	return child;
}

Test(channel_hostile, one_that_dies_on_the_way_in_or_at_rest_leaves_nothing)
{
	struct child *child;
	uint64_t id;

	for (uint32_t role = SHARE_PRODUCER; role <= SHARE_CONSUMER; role++)
		for (enum until point = OPENED; point <= SYNCED; point++) {
			child = member_start(role, point, &id);
			check_eq(channels(), 1);
			child_kill(child);
			until(channels() == 0);
		}
	child_kill(member_start(SHARE_PRODUCER, IN_FLIGHT, &id));
	until(channels() == 0);
}

Test(channel_hostile, a_dead_consumer_is_told_of_at_once)
{
	struct listing l;
	struct child *child;
	struct party p;
	struct raw r;
	uint64_t id;

	raw_open(&r, "producer");
	child = member_start(SHARE_CONSUMER, READY, &id);
	party_join(&p, &r, "c", SHARE_PRODUCER);
	party_sync(&p, &l);
	check_eq(l.n, 1);
	check_eq(l.members[0].member, id);
	party_was_rung(&p);
	child_kill(child);
	party_wait_for_ring(&p);
	party_sync(&p, &l);
	check_eq(l.n, 0);
	party_close(&p);
	goodbye(&r);
}

Test(channel_hostile, what_a_dead_producer_had_in_flight_waits_for_the_living_only)
{
	struct child *child, *producer;
	struct listing l;
	struct party p;
	struct raw r;
	uint64_t id, dead;

	/* two consumers, one of which dies with everything in its hands */
	child = member_start(SHARE_CONSUMER, READY, &id);
	raw_open(&r, "consumer");
	party_join(&p, &r, "c", SHARE_CONSUMER);
	producer = member_start(SHARE_PRODUCER, IN_FLIGHT, &dead);
	party_was_rung(&p);
	child_kill(producer);
	settle(witness, s.leases == 0 && s.buffers == 16);
	party_wait_for_ring(&p);
	party_sync(&p, &l);
	check_eq(l.n, 1);
	check_eq(l.members[0].member, dead);
	check_eq(l.members[0].state, WIRE_MEMBER_DEAD);
	check_eq(channel_number("c", "kept_buffers"), 16);
	check_eq(channel_number("c", "kept_bytes"), 16 * 4096);

	party_drained(&p, dead);
	party_drained(&p, dead);
	party_sync(&p, &l);
	check_eq(l.n, 0);
	check_eq(channel_number("c", "kept_buffers"), 16);
	child_kill(child);
	settle(witness, s.buffers == 0);
	check_eq(channel_number("c", "kept_buffers"), 0);
	party_close(&p);
	goodbye(&r);
}

/* A consumer whose connection ends, and that lives: it has the memory still. */
static void hangs_up(struct child *self, void *data)
{
	struct wire_message segment = {.type = WIRE_CHANNEL_SEGMENT};
	struct party p;
	struct raw r;

	(void)data;
	raw_open(&r, "consumer");
	party_join(&p, &r, "c", SHARE_CONSUMER);
	child_point_with(self, "there", &p.id, sizeof(p.id));
	child_exchange(self, "waits", NULL, 0, &segment.channel_segment.segment, 8);
	segment.channel_segment.member = p.id;
	raw_ask(&r, &segment, WIRE_GRANT);
	raw_hang_up(&r);
	child_point(self, "hung up");
}

Test(channel_hostile, who_hung_up_and_lives_holds_what_it_was_sent_until_it_is_dead)
{
	struct child *consumer = child_start(hangs_up, NULL);
	uint64_t id, buffer, segment;
	struct listing l;
	struct party p;
	struct raw r;

	child_wait_with(consumer, "there", &id, sizeof(id));
	raw_open(&r, "producer");
	party_join(&p, &r, "c", SHARE_PRODUCER);
	party_sync(&p, &l);
	check_eq(l.n, 1);
	buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	segment = r.m.grant.segment;
	party_put(&p, 0, buffer, 1);
	atomic_store(&channel_admission_at(p.page, &p.shape, l.members[0].slot)->consumer, id);
	child_go(consumer);
	child_wait(consumer, "waits");
	child_go_with(consumer, &segment, sizeof(segment));
	child_wait(consumer, "hung up");
	settle(witness, s.quarantined == 1);
	party_sync(&p, &l);
	check_eq(l.n, 1);
	check_eq(l.members[0].state, WIRE_MEMBER_LEFT);
	party_forget(&p);
	goodbye(&r);
	settle(witness, s.clients == 2 && s.leases == 0 && s.buffers == 1);
	child_kill(consumer);
	settle(witness, s.clients == 1 && s.buffers == 0);
}

/* ------------------------------------------------------------------------------------------- */
/* Nonsense in pages                                                                           */

Test(channel_hostile, a_ring_that_names_what_is_not_its_producers_gets_nothing)
{
	struct wire_message release = {.type = WIRE_RELEASE};
	uint64_t own, foreign, stale;
	struct raw r, other;
	struct party p, c;

	raw_open(&r, "producer");
	raw_open(&other, "other");
	own = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	foreign = raw_alloc(&other, raw_pool(&other, "default"), 4096);
	stale = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	release.release.buffer = stale;
	release.release.count = 1;
	raw_ask(&r, &release, WIRE_DONE);
	party_join(&p, &r, "c", SHARE_PRODUCER);
	party_join(&c, &other, "c", SHARE_CONSUMER);
	party_admit(&p, &c);
	for (uint32_t i = 0; i < p.shape.in_flight; i++)
		party_put(&p, i, i % 4 == 0 ? foreign : i % 4 == 1 ? stale : UINT64_MAX - i, i);
	party_put(&p, 7, own, 7);
	party_put(&p, 8, own, 8);
	party_forget(&p);
	goodbye(&r);
	settle(witness, s.buffers == 2 && s.leases == 1);
	check_eq(channel_number("c", "kept_buffers"), 2); /* references, both on its own */
	party_close(&c);
	settle(witness, s.buffers == 1);
	goodbye(&other);
}

Test(channel_hostile, a_ledger_full_of_ones_frees_what_its_owner_holds_and_no_more)
{
	struct party p, bad, good;
	struct raw r, other;

	raw_open(&r, "producer");
	raw_open(&other, "consumers");
	party_join(&p, &r, "c", SHARE_PRODUCER);
	party_join(&bad, &other, "c", SHARE_CONSUMER);
	party_join(&good, &other, "c", SHARE_CONSUMER);
	party_admit(&p, &bad);
	party_admit(&p, &good);
	party_put(&p, 0, raw_alloc(&r, raw_pool(&r, "default"), 4096), UINT32_MAX);
	memset(bad.page, 0xff, channel_ledger_size(&bad.shape));
	party_acknowledge(&bad, &p, 0, UINT32_MAX, UINT32_MAX, UINT64_MAX);
	party_forget(&p);
	goodbye(&r);
	settle(witness, s.buffers == 1 && s.leases == 0);
	memset(bad.page, 0xff, channel_ledger_size(&bad.shape));
	party_close(&bad);
	check_eq(channel_number("c", "kept_buffers"), 1);
	party_close(&good);
	settle(witness, s.buffers == 0);
	goodbye(&other);
}

/* ------------------------------------------------------------------------------------------- */
/* Nonsense in requests                                                                        */

Test(channel_hostile, requests_about_what_is_not_theirs_are_answered_and_drained_is_ignored)
{
	struct wire_message m;
	struct raw r, other;
	struct party p, c;

	raw_open(&r, "one");
	raw_open(&other, "other");
	party_join(&p, &r, "c", SHARE_PRODUCER);
	party_join(&c, &other, "c", SHARE_CONSUMER);
	for (int i = 0; i < 3; i++) {
		const uint64_t id = i == 0 ? p.id : i == 1 ? 0 : UINT64_MAX;

		m = (struct wire_message){.type = WIRE_CHANNEL_READY};
		m.channel_ready.member = id;
		raw_ask_error(&other, &m, SHARE_ESTALE);
		m = (struct wire_message){.type = WIRE_CHANNEL_SYNC};
		m.channel_sync.member = id;
		raw_ask_error(&other, &m, SHARE_ESTALE);
		m = (struct wire_message){.type = WIRE_CHANNEL_CLOSE};
		m.channel_close.member = id;
		raw_ask_error(&other, &m, SHARE_ESTALE);
		m = (struct wire_message){.type = WIRE_CHANNEL_SEGMENT};
		m.channel_segment.member = id;
		raw_ask_error(&other, &m, SHARE_ESTALE);
		m = (struct wire_message){.type = WIRE_CHANNEL_RETAIN};
		m.channel_retain.member = id;
		raw_ask_error(&other, &m, SHARE_ESTALE);
		m = (struct wire_message){.type = WIRE_CHANNEL_METADATA};
		m.channel_metadata.member = id;
		raw_ask_error(&other, &m, SHARE_ESTALE);
	}
	m = (struct wire_message){.type = WIRE_CHANNEL_STALLED};
	m.channel_stalled.member = p.id; /* somebody else's */
	check_eq(raw_send(&other, &m), 0);
	party_drained(&c, p.id); /* it is alive */
	party_drained(&c, c.id);
	party_drained(&c, UINT64_MAX);
	party_drained(&p, c.id);
	m = (struct wire_message){.type = WIRE_PING};
	raw_ask(&r, &m, WIRE_DONE);
	raw_ask(&other, &m, WIRE_DONE);
	check_eq(channel_number("c", "producers"), 1);
	party_close(&p);
	party_close(&c);
	goodbye(&r);
	goodbye(&other);
}

Test(channel_hostile, memberships_are_limited_and_come_back)
{
	struct wire_message m;
	struct party p;
	struct raw r;
	char name[16];

	raw_open(&r, "greedy");
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 100; i++) {
			snprintf(name, sizeof(name), "c%d", i);
			m = party_request(name, SHARE_PRODUCER);
			raw_ask(&r, &m, WIRE_CHANNEL);
		}
		m = party_request("one more", SHARE_CONSUMER);
		raw_ask_error(&r, &m, SHARE_EQUOTA);
		check_eq(channels(), 100);
		goodbye(&r);
		until(channels() == 0);
		raw_open(&r, "greedy");
	}
	for (int i = 0; i < 10000; i++) {
		m = party_request("c", i % 2 ? SHARE_PRODUCER : SHARE_CONSUMER);
		party_open(&p, &r, &m);
		if (i % 3)
			party_ready(&p);
		party_close(&p);
	}
	goodbye(&r);
}

Test(channel_hostile, asking_who_is_there_without_end_keeps_nobody_out)
{
	struct wire_message sync = {.type = WIRE_CHANNEL_SYNC, .serial = 1000000};
	struct raw r, other;
	struct party p, c[20];

	raw_open(&r, "producer");
	raw_open(&other, "consumers");
	party_join(&p, &r, "c", SHARE_PRODUCER);
	for (int i = 0; i < 20; i++)
		party_join(&c[i], &other, "c", SHARE_CONSUMER);
	sync.channel_sync.member = p.id;
	for (int i = 0; i < 5000 && raw_send(&r, &sync) == 0; i++)
		;
	check_ok(share_ping(witness));
	for (int i = 0; i < 20; i++)
		party_close(&c[i]);
	party_forget(&p);
	raw_close(&r);
	goodbye(&other);
}

Test(channel_hostile, a_consumer_that_drains_nothing_does_not_keep_a_new_producer_out)
{
	struct wire_message open = party_request("c", SHARE_PRODUCER);
	struct raw r, other;
	struct party p, c;
	struct listing l;

	raw_open(&r, "producers");
	raw_open(&other, "consumer");
	open.channel_open.producers = 1;
	party_open(&p, &r, &open);
	party_ready(&p);
	party_join(&c, &other, "c", SHARE_CONSUMER);
	party_admit(&p, &c);
	party_close(&p);
	/* the one that is gone has its row, and this one another */
	party_join(&p, &r, "c", SHARE_PRODUCER);
	party_sync(&c, &l);
	check_eq(l.n, 2);
	check(l.members[0].row != l.members[1].row);
	party_close(&c);
	party_close(&p);
	goodbye(&r);
	goodbye(&other);
}
