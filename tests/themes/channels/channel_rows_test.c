/* SPDX-License-Identifier: MIT */

/*
 * The rows of a ledger: each is about one producer until its consumer owes that nothing any more,
 * and no other producer has it before. A consumer that has none left is expelled. Both sides are
 * written by hand, but for the last tests.
 */

#include <string.h>

#include "pages/page.h"
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

/* So many tickets that there are few rows. */
static struct wire_message request(uint32_t role)
{
	struct wire_message m = party_request("c", role);

	m.channel_open.producers = 1;
	m.channel_open.in_flight = CHANNEL_IN_FLIGHT_MAX;
	return m;
}

static void producer_comes(void)
{
	struct wire_message m = request(SHARE_PRODUCER);

	party_open(&producer, &a, &m);
	party_ready(&producer);
}

static void consumer_comes(void)
{
	struct wire_message m = request(SHARE_CONSUMER);

	party_open(&consumer, &b, &m);
	party_ready(&consumer);
}

static void start(void)
{
	fixture_start();
	witness = connect_as("witness");
	raw_open(&a, "a");
	raw_open(&b, "b");
	consumer_comes();
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

TestSuite(channel_rows, .init = start, .fini = stop, .timeout = 60);

static void release(uint64_t buffer)
{
	struct wire_message m = {.type = WIRE_RELEASE};

	m.release.buffer = buffer;
	m.release.count = 1;
	raw_ask(&a, &m, WIRE_DONE);
}

/* It sends one message, and is gone. */
static uint64_t send_and_go(uint32_t row)
{
	uint64_t id, buffer;

	producer_comes();
	producer.row = row;
	id = producer.id;
	party_admit(&producer, &consumer);
	buffer = raw_alloc(&a, raw_pool(&a, "default"), 4096);
	party_put(&producer, 0, buffer, 1);
	party_close(&producer);
	release(buffer);
	return id;
}

static uint32_t row_of(const struct listing *l, uint64_t id)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->members[i].member == id)
			return l->members[i].row;
	check(!"the consumer was told of the producer");
	return 0;
}

static void acknowledge(uint64_t id, uint32_t row, uint32_t slot, uint64_t value)
{
	party_acknowledge(&consumer, &(struct party){.id = id, .row = row}, 0, 1, slot, value);
}

Test(channel_rows, a_row_is_free_when_its_consumer_has_said_that_it_is_done)
{
	struct listing l;

	for (int i = 0; i < 100; i++) {
		uint64_t id = send_and_go(0);

		settle(witness, s.buffers == 1);
		party_sync(&consumer, &l);
		check_eq(l.n, 1);
		check_eq(row_of(&l, id), 0);
		acknowledge(id, 0, 0, 0);
		party_drained(&consumer, id);
		settle(witness, s.buffers == 0);
	}
}

Test(channel_rows, no_other_producer_has_the_row_while_one_is_owed_something)
{
	uint64_t first = send_and_go(0), second = send_and_go(1), third;
	struct listing l;

	settle(witness, s.buffers == 2);
	party_sync(&consumer, &l);
	check_eq(row_of(&l, first), 0);
	check_eq(row_of(&l, second), 1);
	/* the first row runs on behind a fence */
	acknowledge(first, 0, 5, 7);
	party_drained(&consumer, first);
	third = send_and_go(2);
	party_sync(&consumer, &l);
	check_eq(row_of(&l, third), 2);
	acknowledge(second, 1, 0, 0);
	settle(witness, s.buffers == 2); /* though nothing was said: it is looked at */
	timeline_signal(b.page, 5, 7);
	settle(witness, s.buffers == 1);
	acknowledge(third, 2, 0, 0);
	settle(witness, s.buffers == 0);
}

Test(channel_rows, who_owes_something_to_too_many_is_expelled_and_keeps_what_it_has)
{
	struct wire_message retain = {.type = WIRE_CHANNEL_RETAIN};
	uint32_t rows = consumer.shape.rows;
	uint64_t last = 0, buffer;
	struct listing l;

	check(rows >= 2 && rows < CHANNEL_MEMBERS_MAX);
	for (uint32_t i = 0; i < rows; i++)
		last = send_and_go(i);
	party_sync(&consumer, &l);
	check_eq(l.n, rows);
	party_was_rung(&consumer);
	producer_comes();
	party_wait_for_ring(&consumer);
	party_sync(&consumer, &l);
	check_eq(l.n, rows);
	check(l.expelled);
	check(broker_said("is left behind in channel 'c': it had yet to receive") == 1);
	/* its producers are not told of it */
	party_sync(&producer, &l);
	check_eq(l.n, 0);
	settle(witness, s.buffers == rows);

	buffer = atomic_load(&channel_ticket_at(producer.page, &producer.shape, 0)->buffer);
	check_eq(buffer, 0);
	acknowledge(last, rows - 1, 0, 0);
	settle(witness, s.buffers == rows - 1);
	retain.channel_retain.member = consumer.id;
	retain.channel_retain.producer = last;
	retain.channel_retain.buffer = 1;
	raw_ask_error(&b, &retain, SHARE_ENOENT);
	party_close(&consumer);
	settle(witness, s.buffers == 0);
	/* it may come again, and has all rows then */
	consumer_comes();
	party_sync(&producer, &l);
	check_eq(l.n, 1);
	party_sync(&consumer, &l);
	check_eq(row_of(&l, producer.id), 0);
}

Test(channel_rows, producers_are_told_that_one_is_expelled_that_they_have_let_in)
{
	struct wire_message m = party_request("d", SHARE_PRODUCER);
	struct party first, second;
	struct listing l;
	uint32_t rows;

	m.channel_open.producers = 2;
	m.channel_open.in_flight = CHANNEL_IN_FLIGHT_MAX;
	party_open(&first, &a, &m);
	party_ready(&first);
	party_close(&consumer);
	party_join(&consumer, &b, "d", SHARE_CONSUMER);
	party_sync(&first, &l);
	check_eq(l.members[0].state, WIRE_MEMBER_HERE);
	rows = first.shape.rows;
	for (uint32_t i = 1; i < rows; i++) {
		party_join(&second, &a, "d", SHARE_PRODUCER);
		party_admit(&second, &consumer);
		party_put(&second, 0, raw_alloc(&a, raw_pool(&a, "default"), 4096), 1);
		party_close(&second);
	}
	party_sync(&first, &l);
	check_eq(l.members[0].state, WIRE_MEMBER_HERE);
	party_was_rung(&first);
	party_join(&second, &a, "d", SHARE_PRODUCER);
	party_wait_for_ring(&first);
	party_sync(&first, &l);
	check_eq(l.n, 1);
	check_eq(l.members[0].state, WIRE_MEMBER_LEFT);
	party_close(&second);
	party_close(&first);
}

Test(channel_rows, who_owes_nothing_stays_however_many_have_gone)
{
	struct listing l;

	/* it has been told of each, and has looked at none */
	for (uint32_t i = 0; i < 3 * consumer.shape.rows; i++) {
		producer_comes();
		party_admit(&producer, &consumer);
		party_close(&producer);
	}
	producer_comes();
	party_sync(&consumer, &l);
	check(listed(&l, &producer));
	check(!l.expelled);
}

Test(channel_rows, who_has_lost_what_it_was_told_is_told_again)
{
	struct listing l;

	producer_comes(); /* which it is told of */
	party_sync(&consumer, &l);
	check_eq(l.members[0].flags & WIRE_MEMBER_NEW, 0);
	check_eq(b.fds.n, 0);
	consumer.sync_flags = WIRE_CHANNEL_SYNC_AFRESH;
	party_sync(&consumer, &l);
	check_eq(l.members[0].flags & WIRE_MEMBER_NEW, WIRE_MEMBER_NEW);
	check_eq(b.fds.n, 3);
	fd_list_close(&b.fds);
	consumer.sync_flags = 0;
	party_sync(&consumer, &l);
	check_eq(b.fds.n, 0);
}

/* ------------------------------------------------------------------------------------------- */

/* More than an answer has room for. */
#define MANY 22

static void alice_is_told_of_one_late(struct child *self, void *data)
{
	struct wire_message m = {.type = WIRE_TIMELINE};
	struct listing l;
	struct raw r;

	(void)data;
	child_become(4711, 0);
	raw_open(&r, "alice");
	party_join(&consumer, &r, "d", SHARE_CONSUMER);
	party_sync(&consumer, &l);
	check(l.more);
	fd_list_close(&r.fds);
	child_point_with(self, "there", &consumer, sizeof(consumer));
	party_sync(&consumer, &l);
	fd_list_close(&r.fds);
	for (uint32_t i = 0; i < l.n; i++)
		if (l.members[i].state == WIRE_MEMBER_CLOSED)
			m.timeline.page = l.members[i].page;
	check(m.timeline.page != 0);
	raw_ask(&r, &m, WIRE_TIMELINE_PAGE);
}

/* A producer of another user, whose process lives on after it has closed the channel. */
Test(channel_rows, who_is_told_of_one_that_has_closed_may_wait_for_its_fences)
{
	struct wire_message m = party_request("d", SHARE_PRODUCER);
	struct party first, others[MANY - 1], hers;
	struct child *alice;

	skip_unless_root();
	m.channel_open.producers = MANY;
	party_open(&first, &b, &m);
	party_ready(&first);
	for (int i = 0; i < MANY - 1; i++) {
		party_open(&others[i], &a, &m);
		party_ready(&others[i]);
	}
	alice = child_start(alice_is_told_of_one_late, NULL);
	child_wait_with(alice, "there", &hers, sizeof(hers));
	party_admit(&first, &hers);
	party_put(&first, 0, raw_alloc(&b, raw_pool(&b, "default"), 4096), 1);
	party_close(&first);
	child_go(alice);
	child_finish(alice);
	for (int i = 0; i < MANY - 1; i++)
		party_close(&others[i]);
}

/* ------------------------------------------------------------------------------------------- */
/* A consumer of the library                                                                   */

/* Looks who is there, as nothing comes. */
static bool look(share_channel *ch)
{
	share_message message = SHARE_MESSAGE_INIT;
	int r = share_recv(ch, 10, NULL, &message);

	check(r == SHARE_ETIMEDOUT || r == SHARE_EPIPE);
	return true;
}

/* The producer's first look at the consumer, whose ledger comes along. */
static void *ledger_of_only_consumer(struct party *p, struct party *as)
{
	struct listing l;
	void *ledger;

	party_sync(p, &l);
	check_eq(l.n, 1);
	check_eq(p->r->fds.n, 3);
	check(page_map(p->r->fds.fds[0], channel_ledger_size(&p->shape), false, &ledger) == 0);
	fd_list_close(&p->r->fds);
	*as = (struct party){.id = l.members[0].member, .slot = l.members[0].slot};
	p->row = l.members[0].row;
	return ledger;
}

/* Identifiers are given when a channel is opened, and rows when its ring is there. */
Test(channel_rows, a_row_may_go_to_a_producer_that_began_to_come_before_the_one_that_had_it)
{
	struct wire_message m = party_request("d", SHARE_PRODUCER);
	share_client *client = connect_as("consumer");
	struct party first, second, self;
	share_channel *ch;
	uint64_t buffer;
	void *ledger;

	check_ok(share_channel_open(client, "d", SHARE_CONSUMER, NULL, &ch));
	party_open(&first, &a, &m);
	party_open(&second, &a, &m);
	check(first.id < second.id);
	party_ready(&second);
	page_unmap(ledger_of_only_consumer(&second, &self), channel_ledger_size(&second.shape));
	check_eq(second.row, 0);
	party_admit(&second, &self);
	buffer = raw_alloc(&a, raw_pool(&a, "default"), 4096);
	party_put(&second, 0, buffer, 1);
	party_close(&second);
	release(buffer);
	settle(witness, s.leases == 0 && s.buffers == 1);
	settle(witness, look(ch) && s.buffers == 0);

	party_ready(&first);
	ledger = ledger_of_only_consumer(&first, &self);
	check_eq(first.row, 0);
	settle(witness,
	       look(ch) &&
		   atomic_load(&channel_row_at(ledger, &first.shape, 0)->producer) == first.id);
	page_unmap(ledger, channel_ledger_size(&first.shape));
	party_close(&first);
	share_channel_close(ch);
	share_disconnect(client);
}

static void send_number(struct party *p, const struct wire_member *to, uint32_t number)
{
	struct channel_entry *e = channel_entry_at(p->page, &p->shape, 0, 0);

	memcpy(e->data, &number, sizeof(number));
	e->offset_data_size = CHANNEL_PACK(0, sizeof(number));
	e->size_deliveries = CHANNEL_PACK(0, 1);
	e->version = 1;
	atomic_store(&e->sequence, 1);
	atomic_store(&channel_lane_at(p->page, &p->shape, 0)->tail, 1);
	atomic_store(&channel_admission_at(p->page, &p->shape, to->slot)->consumer, to->member);
}

static void leave_behind(struct party *p, const struct wire_member *whom)
{
	struct channel_admission *admission = channel_admission_at(p->page, &p->shape, whom->slot);

	atomic_store(&admission->consumer, whom->member);
	atomic_store(&admission->left_behind, whom->member);
}

/* As one that was expelled is left behind by those that are there. */
Test(channel_rows, what_others_have_sent_comes_before_the_news_that_one_has_left_it_behind)
{
	share_client *client = connect_as("consumer");
	share_message message = SHARE_MESSAGE_INIT;
	struct party first, second;
	struct listing l;
	share_channel *ch;

	check_ok(share_channel_open(client, "d", SHARE_CONSUMER, NULL, &ch));
	party_join(&first, &a, "d", SHARE_PRODUCER);
	party_join(&second, &a, "d", SHARE_PRODUCER);
	party_sync(&first, &l);
	check_eq(l.n, 1);
	look(ch);
	send_number(&second, &l.members[0], 17);
	leave_behind(&first, &l.members[0]);
	check_ok(share_recv(ch, HARNESS_LIMIT_MS, NULL, &message));
	check_eq(message.data_size, sizeof(uint32_t));
	check_ok(share_ack(&message, NULL));
	check_error(share_recv(ch, HARNESS_LIMIT_MS, NULL, &message), SHARE_ESTALE);
	party_close(&first);
	party_close(&second);
	share_channel_close(ch);
	share_disconnect(client);
}

Test(channel_rows, however_much_others_send_it_learns_that_one_has_left_it_behind)
{
	share_client *client = connect_as("consumer"), *other = connect_as("producer");
	share_channel *ch, *producer_end;
	struct party first;
	share_message message = SHARE_MESSAGE_INIT;
	struct listing l;
	uint32_t n = 0;
	int r;

	check_ok(share_channel_open(client, "d", SHARE_CONSUMER, NULL, &ch));
	check_ok(share_channel_open(other, "d", SHARE_PRODUCER, NULL, &producer_end));
	party_join(&first, &a, "d", SHARE_PRODUCER);
	party_sync(&first, &l);
	check_eq(l.n, 1);
	look(ch);
	leave_behind(&first, &l.members[0]);
	do {
		check_ok(share_send(producer_end, NULL, &n, sizeof(n), NULL));
		r = share_recv(ch, HARNESS_LIMIT_MS, NULL, &message);
		if (r == 0)
			check_ok(share_ack(&message, NULL));
	} while (r == 0 && n++ <= first.shape.rows * first.shape.depth);
	check_error(r, SHARE_ESTALE);
	party_close(&first);
	share_channel_close(producer_end);
	share_channel_close(ch);
	share_disconnect(other);
	share_disconnect(client);
}

/* Nobody else would tell it that it has missed something. */
Test(channel_rows, who_was_left_behind_keeps_the_row_until_it_knows)
{
	struct wire_message m = party_request("d", SHARE_PRODUCER);
	share_client *client = connect_as("consumer");
	share_message message = SHARE_MESSAGE_INIT;
	struct party p;
	struct listing l;
	share_channel *ch;
	int r;

	m.channel_open.producers = 1;
	m.channel_open.in_flight = CHANNEL_IN_FLIGHT_MAX;
	party_open(&p, &a, &m);
	party_ready(&p);
	check_ok(share_channel_open(client, "d", SHARE_CONSUMER, NULL, &ch));
	look(ch);
	party_sync(&p, &l);
	send_number(&p, &l.members[0], 17);
	leave_behind(&p, &l.members[0]);
	party_close(&p);
	for (uint32_t i = 1; i < consumer.shape.rows + 1; i++) {
		party_open(&p, &a, &m);
		party_ready(&p);
		party_sync(&p, &l);
		if (l.n == 1)
			send_number(&p, &l.members[0], i);
		party_close(&p);
	}
	while ((r = share_recv(ch, HARNESS_LIMIT_MS, NULL, &message)) == 0)
		check_ok(share_ack(&message, NULL));
	check_error(r, SHARE_ESTALE);
	share_channel_close(ch);
	share_disconnect(client);
}
