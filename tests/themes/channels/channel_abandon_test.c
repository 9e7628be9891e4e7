/* SPDX-License-Identifier: MIT */

/*
 * A producer leaves to the broker what a consumer has that it waits for no more. Both sides are
 * written by hand: the requests, and what the broker looks at in the pages.
 */

#include <string.h>

#include <share/admin.h>

#include "tests/harness/fixture.h"
#include "tests/support/raw_channel.h"

static share_client *witness;
static struct raw a, b;
static struct party producer, consumer;

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

TestSuite(channel_abandon, .init = start, .fini = stop, .timeout = 60);

static uint64_t put_one(uint32_t ticket, uint32_t version)
{
	uint64_t buffer = raw_alloc(&a, raw_pool(&a, "default"), 4096);

	party_put(&producer, ticket, buffer, version);
	return buffer;
}

static struct wire_message abandon_request(uint64_t member, uint64_t whom, const void *tickets,
					   size_t size)
{
	struct wire_message m = {.type = WIRE_CHANNEL_ABANDON};

	m.channel_abandon.member = member;
	m.channel_abandon.consumer = whom;
	m.channel_abandon.tickets = (struct wire_bytes){tickets, (uint32_t)size};
	return m;
}

/* Tickets 0 to 7, by bit. */
static void abandon(unsigned char tickets)
{
	struct wire_message m = abandon_request(producer.id, consumer.id, &tickets, 1);

	raw_ask(&a, &m, WIRE_DONE);
}

/* The ticket is free again, and the producer has nothing to do with the buffer any more. */
static void retire(uint32_t ticket, uint64_t buffer)
{
	struct wire_message m = {.type = WIRE_RELEASE};

	party_put(&producer, ticket, 0, 1);
	m.release.buffer = buffer;
	m.release.count = 1;
	raw_ask(&a, &m, WIRE_DONE);
}

static void leave_behind(void)
{
	struct channel_admission *admission =
	    channel_admission_at(producer.page, &producer.shape, consumer.slot);

	atomic_store(&admission->left_behind, consumer.id);
}

static int64_t left_behind(void)
{
	json_t *rows = report(witness, "status");
	int64_t n = number_of(json_array_get(rows, 0), "left_behind");

	json_decref(rows);
	return n;
}

static const char line[] = "'b') is left behind in channel 'c': it kept a producer waiting";

static int64_t kept_buffers(void)
{
	json_t *rows = report(witness, "channels");
	const json_t *row = row_named(rows, "channel", "c");
	int64_t n = row ? number_of(row, "kept_buffers") : -1;

	json_decref(rows);
	return n;
}

/* ------------------------------------------------------------------------------------------- */

Test(channel_abandon, what_it_has_is_not_used_again_until_it_closes)
{
	uint64_t held[2] = {put_one(0, 1), put_one(1, 1)}, other = put_one(2, 1);

	abandon(3);
	check_eq(kept_buffers(), 2);
	retire(0, held[0]);
	retire(1, held[1]);
	retire(2, other);
	settle(witness, s.leases == 0 && s.buffers == 2);
	/* the tickets go on as if nothing had been */
	other = put_one(0, 2);
	retire(0, other);
	settle(witness, s.leases == 0 && s.buffers == 2);
	party_close(&consumer);
	settle(witness, s.buffers == 0);
	check_eq(kept_buffers(), 0);
}

Test(channel_abandon, what_it_has_acknowledged_since_is_back_when_it_says_so)
{
	uint64_t held[2] = {put_one(0, 1), put_one(1, 1)};

	abandon(3);
	retire(0, held[0]);
	retire(1, held[1]);
	party_acknowledge(&consumer, &producer, 1, 1, 0, 0);
	party_drained(&consumer, producer.id);
	settle(witness, s.buffers == 0);
}

Test(channel_abandon, that_one_was_left_behind_is_logged_and_counted_once)
{
	put_one(0, 1);
	abandon(0);
	check_eq(left_behind(), 0); /* it was not, and now it is too late */
	party_close(&consumer);
	party_join(&consumer, &b, "c", SHARE_CONSUMER);
	party_admit(&producer, &consumer);
	leave_behind();
	check_eq(left_behind(), 0);
	abandon(1);
	check_eq(left_behind(), 1);
	abandon(1);
	party_close(&consumer);
	check_eq(left_behind(), 1);
	check(broker_said(line) == 1);
}

static int count_told(const char *json, void *data)
{
	*(int *)data += strstr(json, "\"left-behind\"") && strstr(json, "\"label\":\"b\"");
	return 0;
}

static int count_stalls(const char *json, void *data)
{
	*(int *)data += strstr(json, "\"stall\"") && strstr(json, "\"label\":\"a\"");
	return 0;
}

Test(channel_abandon, or_when_the_consumer_goes)
{
	share_monitor_options all = SHARE_MONITOR_OPTIONS_INIT;
	int told = 0;

	check_ok(share_monitor(witness, &all, 0, count_told, &told));
	leave_behind();
	party_close(&consumer);
	check_ok(share_monitor(witness, &all, 0, count_told, &told));
	check_eq(told, 1);
	check_eq(left_behind(), 1);
	check(broker_said(line) == 1);
}

Test(channel_abandon, or_the_producer)
{
	leave_behind();
	party_close(&producer);
	check_eq(left_behind(), 1);
	party_close(&consumer);
	check_eq(left_behind(), 1);
	check(broker_said(line) == 1);
}

/* At once, so that no second passes in between. */
static void say_stalled(const struct party *p, unsigned times)
{
	struct wire_message m = {.type = WIRE_CHANNEL_STALLED,
				 .channel_stalled = {.member = p->id}};

	for (unsigned i = 0; i < times; i++)
		check_eq(raw_send(p->r, &m), 0);
	raw_ask(p->r, &(struct wire_message){.type = WIRE_PING}, WIRE_DONE);
}

static int64_t stalls(void)
{
	json_t *rows = report(witness, "status");
	int64_t n = number_of(json_array_get(rows, 0), "stalls");

	json_decref(rows);
	return n;
}

/* Whatever it says: more would be more than the time that has passed. */
Test(channel_abandon, a_producer_waits_for_a_second_before_that_is_counted_again)
{
	share_monitor_options all = SHARE_MONITOR_OPTIONS_INIT;
	int told = 0;

	check_ok(share_monitor(witness, &all, 0, count_stalls, &told));
	say_stalled(&consumer, 1); /* which waits for nothing */
	check_eq(stalls(), 0);
	say_stalled(&producer, 2);
	check_eq(stalls(), 1);
	check_eq(broker_said("'a') has waited for more than a second for room in channel 'c'"), 1);
	check_ok(share_monitor(witness, &all, 0, count_stalls, &told));
	check_eq(told, 1);
}

Test(channel_abandon, only_the_first_time_counts)
{
	uint64_t held = put_one(0, 1), later;

	abandon(1);
	later = put_one(1, 1);
	abandon(3);
	check_eq(kept_buffers(), 1);
	retire(1, later);
	settle(witness, s.buffers == 1 && s.leases == 1);
	retire(0, held);
	settle(witness, s.buffers == 1 && s.leases == 0);
	party_close(&consumer);
	abandon(3);
	settle(witness, s.buffers == 0);
}

Test(channel_abandon, what_it_had_acknowledged_stays_until_its_streams_have_got_there)
{
	uint64_t held[2] = {put_one(0, 1), put_one(1, 1)};

	party_acknowledge(&consumer, &producer, 0, 1, 5, 7);
	party_acknowledge(&consumer, &producer, 1, 1, 0, 0);
	abandon(3);
	check_eq(kept_buffers(), 1);
	retire(0, held[0]);
	retire(1, held[1]);
	settle(witness, s.buffers == 1);
	timeline_signal(b.page, 5, 7);
	settle(witness, s.buffers == 0);
}

Test(channel_abandon, one_that_has_closed_the_channel_may_have_work_running)
{
	uint64_t held, gone = consumer.id;
	struct wire_message m;

	held = put_one(0, 1);
	party_acknowledge(&consumer, &producer, 0, 1, 5, 7);
	party_close(&consumer);
	m = abandon_request(producer.id, gone, "\1", 1);
	raw_ask(&a, &m, WIRE_DONE);
	retire(0, held);
	check_eq(kept_buffers(), 1);
	timeline_signal(b.page, 5, 7);
	settle(witness, s.buffers == 0);
}

Test(channel_abandon, the_producers_end_changes_nothing)
{
	struct listing l;
	uint64_t gone = producer.id, held = put_one(0, 1);

	abandon(1);
	retire(0, held);
	put_one(1, 1); /* it was never sent this */
	party_forget(&producer);
	goodbye(&a);
	settle(witness, s.clients == 2 && s.leases == 0 && s.buffers == 1);
	check_eq(kept_buffers(), 1);
	party_sync(&consumer, &l);
	check_eq(l.n, 1);
	check_eq(l.members[0].member, gone);
	check_eq(l.members[0].state, WIRE_MEMBER_CLOSED);
	fd_list_close(&b.fds);
	party_drained(&consumer, gone);
	settle(witness, s.buffers == 0);
	party_sync(&consumer, &l);
	check_eq(l.n, 0);
	raw_open(&a, "a");
}

Test(channel_abandon, what_it_has_can_be_retained_still)
{
	struct wire_message m = {.type = WIRE_CHANNEL_RETAIN};
	uint64_t held = put_one(0, 1);

	abandon(1);
	retire(0, held);
	m.channel_retain.member = consumer.id;
	m.channel_retain.producer = producer.id;
	m.channel_retain.buffer = held;
	m.channel_retain.size = 4096;
	raw_ask(&b, &m, WIRE_GRANT);
	check_eq(b.m.grant.buffer, held);
	party_close(&consumer);
	settle(witness, s.buffers == 1 && s.leases == 1);
}

/* ------------------------------------------------------------------------------------------- */
/* Death                                                                                       */

static void takes_part(struct child *self, void *data)
{
	struct wire_message segment = {.type = WIRE_CHANNEL_SEGMENT};
	struct party p;
	struct raw r;

	(void)data;
	raw_open(&r, "consumer");
	party_join(&p, &r, "c", SHARE_CONSUMER);
	child_exchange(self, "there", &p.id, sizeof(p.id), &segment.channel_segment.segment, 8);
	segment.channel_segment.member = p.id;
	raw_ask(&r, &segment, WIRE_GRANT);
	raw_hang_up(&r);
	child_point(self, "hung up");
}

static void dies_after(bool producer_first)
{
	struct child *child = child_start(takes_part, NULL);
	uint64_t id, segment, held[2];
	struct wire_message m;
	struct listing l;

	child_wait_with(child, "there", &id, sizeof(id));
	party_sync(&producer, &l);
	fd_list_close(&a.fds);
	for (uint32_t i = 0; i < l.n; i++)
		atomic_store(
		    &channel_admission_at(producer.page, &producer.shape, l.members[i].slot)
			 ->consumer,
		    l.members[i].member);
	held[0] = put_one(0, 1);
	held[1] = put_one(1, 1);
	segment = a.m.grant.segment;
	child_go_with(child, &segment, sizeof(segment));
	child_wait(child, "hung up");
	m = abandon_request(producer.id, id, "\3", 1);
	raw_ask(&a, &m, WIRE_DONE);
	retire(0, held[0]);
	retire(1, held[1]);
	settle(witness, s.leases == 0 && s.buffers == 2);
	if (producer_first) {
		party_forget(&producer);
		goodbye(&a);
		raw_open(&a, "a");
	}
	check_eq(kept_buffers(), 2);
	child_kill(child);
	settle(witness, s.buffers == 0);
}

/* Producers wait no more for who hangs up, and whether it did keep them waiting is known by then.
 */
static void dies_and_is_told(bool slow)
{
	struct child *child = child_start(takes_part, NULL);
	struct channel_admission *admission = NULL;
	uint64_t id, segment;
	struct listing l;

	child_wait_with(child, "there", &id, sizeof(id));
	party_sync(&producer, &l);
	fd_list_close(&a.fds);
	for (uint32_t i = 0; i < l.n; i++)
		if (l.members[i].member == id)
			admission =
			    channel_admission_at(producer.page, &producer.shape, l.members[i].slot);
	check(admission);
	atomic_store(&admission->consumer, id);
	put_one(0, 1);
	segment = a.m.grant.segment;
	if (slow)
		atomic_store(&admission->left_behind, id);
	child_go_with(child, &segment, sizeof(segment));
	child_wait(child, "hung up");
	settle(witness, s.quarantined == 1);
	atomic_store(&admission->left_behind, id);
	child_kill(child);
	settle(witness, s.quarantined == 0);
	check_eq(left_behind(), slow);
}

Test(channel_abandon, one_that_hung_up_is_logged_as_slow_only_if_it_was_left_behind_before)
{
	dies_and_is_told(false);
	dies_and_is_told(true);
}

Test(channel_abandon, one_that_hung_up_has_it_until_it_is_dead)
{
	dies_after(false);
}

Test(channel_abandon, one_that_hung_up_has_it_when_its_producer_is_gone_too)
{
	dies_after(true);
}

/* ------------------------------------------------------------------------------------------- */
/* Nonsense                                                                                    */

Test(channel_abandon, what_is_not_ones_own_is_refused_and_who_is_not_there_has_nothing)
{
	unsigned char all[CHANNEL_IN_FLIGHT_MAX / 8];
	struct wire_message m;
	struct party stranger;

	memset(all, 0xff, sizeof(all));
	put_one(0, 1);
	m = abandon_request(consumer.id, producer.id, all, sizeof(all));
	raw_ask_error(&b, &m, SHARE_EINVAL);
	raw_ask_error(&a, &m, SHARE_ESTALE);
	m = abandon_request(0, consumer.id, all, sizeof(all));
	raw_ask_error(&a, &m, SHARE_ESTALE);
	party_join(&stranger, &b, "another", SHARE_CONSUMER);
	for (int i = 0; i < 4; i++) {
		const uint64_t whom = i == 0   ? 0
				      : i == 1 ? UINT64_MAX
				      : i == 2 ? producer.id
					       : stranger.id;

		m = abandon_request(producer.id, whom, all, sizeof(all));
		raw_ask(&a, &m, WIRE_DONE);
		check_eq(kept_buffers(), 0);
	}
	party_close(&stranger);
	/* neither tickets that are not in use, nor those beyond, nor buffers of others */
	party_put(&producer, 1, UINT64_MAX, 1);
	party_put(&producer, 2, raw_alloc(&b, raw_pool(&b, "default"), 4096), 1);
	m = abandon_request(producer.id, consumer.id, all, sizeof(all));
	raw_ask(&a, &m, WIRE_DONE);
	check_eq(kept_buffers(), 1);
}

Test(channel_abandon, without_tickets_it_is_only_not_waited_for)
{
	struct wire_message m = abandon_request(producer.id, consumer.id, NULL, 0);

	put_one(0, 1);
	raw_ask(&a, &m, WIRE_DONE);
	party_forget(&producer);
	goodbye(&a);
	settle(witness, s.buffers == 0);
	raw_open(&a, "a");
}

/* ------------------------------------------------------------------------------------------- */

/* Its process is seen to be dead before the broker knows. */
Test(channel_abandon, who_says_that_it_is_done_before_the_producer_has_gone_owes_nothing_either)
{
	uint32_t row = 1;
	struct listing l;

	abandon(0);
	party_drained(&consumer, producer.id);
	party_sync(&consumer, &l);
	party_close(&producer);
	for (int i = 0; i < 20 && row != 0; i++) { /* turns of the broker's loop */
		party_join(&producer, &a, "c", SHARE_PRODUCER);
		party_sync(&consumer, &l);
		row = listed(&l, &producer)->row;
		party_drained(&consumer, producer.id);
		party_close(&producer);
	}
	check_eq(row, 0);
}

/* ------------------------------------------------------------------------------------------- */
/* Who pays                                                                                    */

#define ALICE 4711

/* What she says to have sent, the consumer has never had. */
static void alice_says_that_it_has_everything(struct child *self, void *data)
{
	uint64_t buffers[4];

	(void)data;
	child_become(ALICE, 0);
	raw_open(&a, "alice");
	party_join(&producer, &a, "c", SHARE_PRODUCER);
	party_admit(&producer, &consumer);
	for (uint32_t i = 0; i < 4; i++)
		buffers[i] = put_one(i, 1);
	abandon(0xf);
	for (uint32_t i = 0; i < 4; i++)
		retire(i, buffers[i]);
	child_point(self, "done");
}

Test(channel_abandon, nobody_pays_for_what_he_never_had)
{
	struct child *alice;
	int64_t before;

	skip_unless_root();
	before = used_by(witness, 0, "bytes");
	alice = child_start(alice_says_that_it_has_everything, NULL);
	child_wait(alice, "done");
	check_eq(kept_buffers(), 4);
	check_eq(used_by(witness, 0, "bytes"), before);
	child_kill(alice);
	party_close(&consumer);
}

static void alice_consumes(struct child *self, void *data)
{
	struct party c;

	(void)data;
	child_become(ALICE, 0);
	raw_open(&b, "alice");
	party_join(&c, &b, "c", SHARE_CONSUMER);
	child_point_with(self, "there", &c, sizeof(c));
}

/* That she has received it is what her user pays for. */
static void alice_has_it_too(uint64_t *buffer)
{
	struct child *alice = child_start(alice_consumes, NULL);
	struct party hers;
	unsigned char first = 1;
	struct wire_message m;

	child_wait_with(alice, "there", &hers, sizeof(hers));
	party_admit(&producer, &hers);
	*buffer = put_one(0, 1);
	m = abandon_request(producer.id, hers.id, &first, 1);
	raw_ask(&a, &m, WIRE_DONE);
	abandon(1);
	child_kill(alice);
}

/* She has received a message of several buffers, and says so. */
static void alice_has_one_of_several(struct child *self, void *data)
{
	struct channel_ledger *ledger;
	struct party c;

	(void)data;
	child_become(ALICE, 0);
	raw_open(&b, "alice");
	party_join(&c, &b, "c", SHARE_CONSUMER);
	ledger = c.page;
	atomic_store(&ledger->received, 1);
	atomic_store(&ledger->further, 2);
	child_point_with(self, "there", &c, sizeof(c));
}

Test(channel_abandon, who_has_a_message_pays_for_all_of_its_buffers)
{
	struct child *alice;
	struct party hers;
	unsigned char four = 0xf;
	struct wire_message m;
	uint64_t buffers[4];
	int64_t before, hers_before;

	skip_unless_root();
	alice = child_start(alice_has_one_of_several, NULL);
	child_wait_with(alice, "there", &hers, sizeof(hers));
	party_admit(&producer, &hers);
	before = used_by(witness, 0, "bytes");
	hers_before = used_by(witness, ALICE, "bytes");
	for (uint32_t i = 0; i < 4; i++)
		buffers[i] = put_one(i, 1);
	m = abandon_request(producer.id, hers.id, &four, 1);
	raw_ask(&a, &m, WIRE_DONE);
	for (uint32_t i = 0; i < 4; i++)
		retire(i, buffers[i]);
	settle(witness, s.buffers == 4);
	/* that she has the fourth one is what its producer says */
	check_eq(used_by(witness, ALICE, "bytes") - hers_before, 3 * 4096);
	check_eq(used_by(witness, 0, "bytes") - before, 4096);
	child_kill(alice);
	settle(witness, s.buffers == 0);
}

/* Accounts of users who are not there any more are forgotten when others come. */
Test(channel_abandon, what_one_has_had_is_paid_by_who_still_has_it)
{
	uint64_t buffer;
	struct raw c;

	skip_unless_root();
	alice_has_it_too(&buffer);
	settle(witness, s.clients == 3);
	for (int i = 0; used_by(witness, ALICE, "clients") >= 0 && i < 100; i++) {
		raw_open(&c, "comes and goes");
		goodbye(&c);
	}
	retire(0, buffer);
	settle(witness, s.buffers == 1);
	check(used_by(witness, 0, "bytes") > 0);
	party_close(&consumer);
	settle(witness, s.buffers == 0);
}
