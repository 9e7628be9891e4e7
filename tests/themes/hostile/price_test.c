/* SPDX-License-Identifier: MIT */

/*
 * The price list is what things really take: of each kind many are made, and what users are charged
 * for them is compared with what the broker's memory and its journal have grown by.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/admin.h>
#include <share/channel.h>
#include <share/event.h>

#include "broker/accounts/price.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/kinds.h"
#include "tests/support/raw_channel.h"
#include "tests/support/spending.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define MANY 20000

static share_client *client;
static share_pool *pool;
static struct raw raw;

static void start(void)
{
	if (SANITIZED)
		criterion_skip_test("a sanitizer's memory is not the broker's");
	kinds_start_on(
	    "",
	    "{\"create_pools\": [\"*\"], \"limits\": {\"watches\": 100000, \"waits\": 100000,"
	    " \"events\": 10000, \"unsent\": \"1GiB\", \"pools\": 10000, \"channels\": 10000, "
	    "\"connections\": 10000},"
	    " \"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"1GiB\","
	    " \"segment_size\": \"256MiB\", \"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]}]}");
	client = connect_as("measures");
	pool = open_pool(client);
}

TestSuite(price, .init = start, .fini = fixture_stop, .timeout = 300);

static struct spending now(void)
{
	return spending_now(client);
}

/* @other: bytes that each takes elsewhere. @most: tenths of what is allocated. */
static void compare_at_most(const struct spending *before, int64_t n, int64_t other, int64_t most,
			    const char *what)
{
	struct spending spent = spending_since(before, client);
	int64_t allocated = spent.allocated + n * other, charged = spent.charged;

	fprintf(stderr, "%s: %ld bytes are allocated for each, and %ld charged\n", what,
		(long)(allocated / n), (long)(charged / n));
	if (getenv("PRICE_SHOW"))
		return;
	check(charged >= allocated * 9 / 10 && charged <= allocated * most / 10);
}

static void compare(const struct spending *before, int64_t n, int64_t other, const char *what)
{
	compare_at_most(before, n, other, 11, what);
}

static share_buffer *buffers[MANY];

static void allocate_all(void)
{
	for (int i = 0; i < MANY; i++)
		check_ok(share_alloc(pool, 512, NULL, &buffers[i]));
}

static void release_all(void)
{
	for (int i = 0; i < MANY; i++)
		check_ok(share_release(buffers[i], NULL));
	share_pool_close(pool);
	share_disconnect(client);
}

Test(price, of_buffers_names_and_leases)
{
	struct spending before = now();
	share_client *other = connect_as("other");
	share_buffer **seen = calloc(MANY, sizeof(share_buffer *));
	char name[64];

	before = now();
	allocate_all();
	compare(&before, MANY, 0, "a buffer with its lease");
	before = now();
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "name %d", i);
		check_ok(share_publish(buffers[i], name, NULL));
	}
	compare(&before, MANY, 0, "a short name");
	before = now();
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "name %d", i);
		check_ok(share_lookup(other, name, SHARE_RDONLY, 0, NULL, &seen[i]));
	}
	compare(&before, MANY, 0, "a lease");
	for (int i = 0; i < MANY; i++)
		check_ok(share_release(seen[i], NULL));
	free(seen);
	share_disconnect(other);
	release_all();
}

Test(price, of_long_names)
{
	struct spending before;
	char name[256];

	allocate_all();
	before = now();
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%0200d", i);
		check_ok(share_publish(buffers[i], name, NULL));
	}
	compare(&before, MANY, 0, "a long name");
	release_all();
}

Test(price, of_tokens)
{
	struct spending before;
	share_token token;

	allocate_all();
	before = now();
	for (int i = 0; i < MANY; i++)
		check_ok(share_export(buffers[i], NULL, &token));
	compare(&before, MANY, 0, "a token");
	release_all();
}

static void set_metadata(size_t size)
{
	char *text = malloc(size + 32);

	snprintf(text, size + 32, "{\"a\": \"%0*d\"}", (int)size - 9, 0);
	for (int i = 0; i < MANY; i++)
		check_ok(share_metadata_set(buffers[i], text));
	free(text);
}

Test(price, of_little_metadata)
{
	struct spending before;

	allocate_all();
	before = now();
	set_metadata(40);
	compare(&before, MANY, 0, "metadata of 40 bytes");
	release_all();
}

Test(price, of_much_metadata)
{
	struct spending before;

	allocate_all();
	before = now();
	set_metadata(1000);
	compare(&before, MANY, 0, "metadata of 1000 bytes");
	release_all();
}

static void hear(const share_name_event *event, void *data)
{
	(void)event, (void)data;
}

Test(price, of_as_much_metadata_as_there_may_be)
{
	enum { SIZES = 3, N = 300 };
	static const size_t sizes[SIZES] = {10000, 30000, 60000};
	static share_buffer *described[SIZES * N];
	struct spending before;
	char *text = calloc(1, 65536);

	for (int i = 0; i < SIZES; i++) {
		for (int n = 0; n < N; n++)
			described[i * N + n] = allocate(pool, 512, NULL);
		snprintf(text, 65536, "{\"a\": \"%0*d\"}", (int)sizes[i], 0);
		before = now();
		for (int n = 0; n < N; n++)
			check_ok(share_metadata_set(described[i * N + n], text));
		compare(&before, N, 0, "much metadata");
	}
	free(text);
	for (int i = 0; i < SIZES * N; i++)
		check_ok(share_release(described[i], NULL));
	share_pool_close(pool);
	share_disconnect(client);
}

Test(price, of_watches)
{
	static share_watch *watches[MANY];
	struct spending before = now();
	char name[64];

	for (int i = 0; i < MANY / 4; i++) {
		snprintf(name, sizeof(name), "what is watched/%d/", i);
		check_ok(share_watch_names(client, name, hear, NULL, &watches[i]));
	}
	compare(&before, MANY / 4, 0, "a watch");
	for (int i = 0; i < MANY / 4; i++)
		share_unwatch(watches[i]);
	share_pool_close(pool);
	share_disconnect(client);
}

Test(price, of_waits)
{
	struct wire_message m = {.type = WIRE_LOOKUP};
	struct spending before;
	char name[128];

	raw_open(&raw, "waits");
	before = now();
	for (int i = 0; i < MANY / 4; i++) {
		snprintf(name, sizeof(name), "what is waited for/%d", i);
		m.serial = ++raw.serial;
		m.lookup.name = raw_text(name);
		m.lookup.mode = SHARE_RDONLY;
		m.lookup.timeout = i % 2 ? 100000000 : -1;
		while (raw_send(&raw, &m) < 0)
			check_ok(share_ping(client));
	}
	until(used_of(client, "waits") == MANY / 4);
	compare(&before, MANY / 4, 0, "a wait");
	raw_close(&raw);
	share_pool_close(pool);
	share_disconnect(client);
}

/* Until the broker reads no more of them, as it waits for its answers to be read. */
static void ask_without_reading(struct raw *r, struct wire_message *m)
{
	int64_t before = used_of(client, "unsent");

	while (used_of(client, "unsent") == before) {
		m->serial = ++r->serial;
		if (raw_send(r, m) < 0)
			check_ok(share_ping(client));
	}
}

/* It reads them after all. */
static void read_all(struct raw *r, uint32_t n)
{
	while (n-- > 0)
		check(raw_receive(r, HARNESS_LIMIT_MS) == RAW_MESSAGE);
	raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

/* Who does not read is answered what it has waited for. */
Test(price, of_short_answers_that_wait)
{
	enum { N = 5, EACH = 2000 };
	static struct raw all[N];
	struct wire_message lookup = {.type = WIRE_LOOKUP}, ping = {.type = WIRE_PING};
	share_buffer *b = allocate(pool, 1, NULL);
	struct spending before;
	uint32_t first[N];

	for (int i = 0; i < N; i++) {
		raw_open(&all[i], "reads nothing");
		first[i] = all[i].serial;
	}
	before = now();
	lookup.lookup.name = raw_text("late");
	lookup.lookup.mode = SHARE_RDONLY;
	lookup.lookup.timeout = -1;
	for (int i = 0; i < N; i++) {
		for (int n = 0; n < EACH; n++) {
			lookup.serial = ++all[i].serial;
			while (raw_send(&all[i], &lookup) < 0)
				check_ok(share_ping(client));
		}
		until(used_of(client, "waits") == (i + 1) * EACH);
		ask_without_reading(&all[i], &ping);
	}
	check_ok(share_publish(b, "late", NULL));
	until(used_of(client, "waits") == 0);
	compare(&before, N * EACH, 0, "a short answer that waits");
	for (int i = 0; i < N; i++)
		read_all(&all[i], all[i].serial - first[i]);
	check_ok(share_release(b, NULL));
	share_pool_close(pool);
	share_disconnect(client);
}

Test(price, of_long_answers_that_wait)
{
	enum { N = 40, SIZE = 60000 };
	static struct raw all[N];
	struct wire_message lookup = {.type = WIRE_LOOKUP}, get = {.type = WIRE_METADATA_GET};
	share_buffer *b = allocate(pool, 1, NULL);
	char *text = calloc(1, SIZE);
	struct spending before;
	uint32_t first[N];
	int64_t had;

	memset(text, ' ', SIZE - 1);
	text[0] = '{';
	text[SIZE - 2] = '}';
	check_ok(share_metadata_set(b, text));
	check_ok(share_publish(b, "target", NULL));
	lookup.lookup.name = raw_text("target");
	lookup.lookup.mode = SHARE_RDONLY;
	for (int i = 0; i < N; i++) {
		raw_open(&all[i], "reads nothing");
		raw_ask(&all[i], &lookup, WIRE_GRANT);
		first[i] = all[i].serial;
	}
	get.metadata_get.buffer = all[0].m.grant.buffer;
	before = now();
	had = used_of(client, "unsent");
	for (int i = 0; i < N; i++)
		ask_without_reading(&all[i], &get);
	compare(&before, (used_of(client, "unsent") - had) / SIZE, 0, "a long answer that waits");
	for (int i = 0; i < N; i++)
		read_all(&all[i], all[i].serial - first[i]);
	free(text);
	check_ok(share_release(b, NULL));
	share_pool_close(pool);
	share_disconnect(client);
}

/* An event with the lease of who has made it, and then that of another process. */
Test(price, of_interprocess_events)
{
	enum { N = 4000 };
	static share_event *events[N], *again[N];
	share_event_options options = SHARE_EVENT_OPTIONS_INIT;
	share_client *other = connect_as("other");
	struct spending before;
	char name[64];
	int r;

	r = share_event_create(client, NULL, &events[0]);
	if (r == SHARE_ENODEV || r == SHARE_ENOTSUP)
		criterion_skip_test("there are no events here");
	check_ok(r);
	share_event_release(events[0]);
	check_ok(share_ping(client));
	fixture_uses_devices();
	before = now();
	for (int i = 0; i < N; i++) {
		options.name = name;
		snprintf(name, sizeof(name), "event %d", i);
		check_ok(share_event_create(client, &options, &events[i]));
	}
	compare(&before, N, 0, "an event with its lease");
	before = now();
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "event %d", i);
		check_ok(share_event_open(other, name, &again[i]));
	}
	compare(&before, N, 0, "another lease of an event");
	for (int i = 0; i < N; i++) {
		share_event_release(again[i]);
		share_event_release(events[i]);
	}
	share_disconnect(other);
	share_pool_close(pool);
	share_disconnect(client);
}

/* One of two handles of each buffer is released, and its lease stays. */
Test(price, of_fences)
{
	static share_buffer *again[MANY];
	share_host_stream *stream;
	struct gate *gate = gate_new();
	struct spending before;

	check_ok(share_host_stream_create(client, &stream));
	gate_hold(gate, stream);
	allocate_all();
	for (int i = 0; i < MANY; i++) {
		check_ok(share_publish(buffers[i], "again", NULL));
		check_ok(share_lookup(client, "again", SHARE_RDONLY, 0, NULL, &again[i]));
		check_ok(share_unpublish(client, "again"));
	}
	before = now();
	for (int i = 0; i < MANY; i++)
		check_ok(share_release(again[i], stream));
	until(used_of(client, "fences") == MANY);
	compare(&before, MANY, 0, "a fence");
	gate_open(gate);
	share_host_stream_destroy(stream);
	gate_free(gate);
	release_all();
}

Test(price, of_connections)
{
	enum { N = 300 };
	static share_client *all[N];
	struct spending before = now();

	for (int i = 0; i < N; i++)
		all[i] = connect_as("one of many");
	compare(&before, N, 4096, "a connection");
	for (int i = 0; i < N; i++)
		share_disconnect(all[i]);
	share_pool_close(pool);
	share_disconnect(client);
}

Test(price, of_pools_and_segments)
{
	enum { N = 1000, SEGMENTS = 4000 };
	static share_pool *all[N];
	static share_buffer *in[SEGMENTS];
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	struct spending before = now();
	char name[64];

	options.kind = "host";
	options.limit = 1 << 30;
	options.segment_size = 65536;
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "pool %d", i);
		check_ok(share_pool_create(client, name, &options, &all[i]));
	}
	compare(&before, N, 0, "a pool that is open");
	before = now();
	for (int i = 0; i < SEGMENTS; i++)
		check_ok(share_alloc(all[0], 65536, NULL, &in[i]));
	compare(&before, SEGMENTS, 0, "a segment with a buffer");
	for (int i = 0; i < SEGMENTS; i++)
		check_ok(share_release(in[i], NULL));
	for (int i = 0; i < N; i++)
		share_pool_close(all[i]);
	share_pool_close(pool);
	share_disconnect(client);
}

Test(price, of_memberships)
{
	enum { N = 500 };
	static share_channel *all[N];
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	struct spending before = now();
	char name[64];

	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "channel %d", i);
		check_ok(share_channel_open(client, name, i % 2 ? SHARE_CONSUMER : SHARE_PRODUCER,
					    &options, &all[i]));
	}
	/* half of them producers, of a broadcast with the default of messages in flight */
	compare(&before, N, 128 * PRICE_INHERITED / 2, "a membership, with what is kept for it");
	for (int i = 0; i < N; i++)
		share_channel_close(all[i]);
	share_pool_close(pool);
	share_disconnect(client);
}

Test(price, of_open_pools)
{
	enum { N = 4000 };
	static share_pool *all[N], *again[N];
	static share_buffer *first[N], *used[N];
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *other = connect_as("other");
	struct spending before;
	char name[64];

	options.kind = "host";
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "pool %d", i);
		check_ok(share_pool_create(client, name, &options, &all[i]));
		check_ok(share_alloc(all[i], 512, NULL, &first[i]));
	}
	before = now();
	options.flags = SHARE_POOL_OPEN_OR_CREATE;
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "pool %d", i);
		check_ok(share_pool_create(other, name, &options, &again[i]));
		check_ok(share_alloc(again[i], 512, NULL, &used[i]));
	}
	compare(&before, N, 0, "an open pool with a buffer and its lease");
	for (int i = 0; i < N; i++) {
		check_ok(share_release(used[i], NULL));
		check_ok(share_release(first[i], NULL));
		share_pool_close(again[i]);
		share_pool_close(all[i]);
	}
	share_disconnect(other);
	share_pool_close(pool);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* What is left of messages                                                                    */

static struct party producer, consumers[4];

static void goodbye(int n_consumers)
{
	for (int i = 0; i < n_consumers; i++)
		party_forget(&consumers[i]);
	raw_ask(&raw, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&raw);
	share_pool_close(pool);
	share_disconnect(client);
}

static void join_several(struct party *p, const char *name, uint32_t role, uint32_t mode,
			 uint32_t of_each)
{
	struct wire_message open = party_request(name, role);

	open.channel_open.mode = mode;
	open.channel_open.buffers = of_each;
	open.channel_open.depth = CHANNEL_DEPTH_MAX;
	open.channel_open.in_flight = CHANNEL_IN_FLIGHT_MAX;
	open.channel_open.producers = CHANNEL_MEMBERS_MAX;
	party_open(p, &raw, &open);
	party_ready(p);
}

static void join_as(struct party *p, const char *name, uint32_t role, uint32_t mode)
{
	join_several(p, name, role, mode, 1);
}

Test(price, of_claims)
{
	enum { PRODUCERS = 64, CONSUMERS = 64 };
	static struct party all[PRODUCERS + CONSUMERS];
	struct spending before;
	char name[16];

	raw_open(&raw, "claims");
	for (int channel = 0; channel < 2; channel++) {
		snprintf(name, sizeof(name), "channel %d", channel);
		for (int i = 0; i < PRODUCERS; i++)
			join_as(&all[i], name, SHARE_PRODUCER, CHANNEL_BROADCAST);
		before = now();
		for (int i = 0; i < CONSUMERS; i++)
			join_as(&all[PRODUCERS + i], name, SHARE_CONSUMER, CHANNEL_BROADCAST);
		for (int i = 0; i < PRODUCERS + CONSUMERS; i++)
			party_forget(&all[i]);
	}
	compare(&before, PRODUCERS * CONSUMERS, 0, "a claim, with a 64th of a membership");
	goodbye(0);
}

static void put_all(void)
{
	uint64_t in = raw_pool(&raw, "default");

	for (uint32_t i = 0; i < CHANNEL_IN_FLIGHT_MAX; i++)
		party_put(&producer, i, raw_alloc(&raw, in, 512), 1);
}

static void measure_entries(int n, const char *what)
{
	struct spending before;

	raw_open(&raw, "entries");
	join_as(&producer, "entries", SHARE_PRODUCER, CHANNEL_BROADCAST);
	for (int i = 0; i < n; i++) {
		join_as(&consumers[i], "entries", SHARE_CONSUMER, CHANNEL_BROADCAST);
		party_admit(&producer, &consumers[i]);
	}
	put_all();
	before = now();
	party_close(&producer);
	/* what they have in common was paid for when the producer came */
	compare(&before, n * CHANNEL_IN_FLIGHT_MAX, -(int64_t)PRICE_INHERITED / n, what);
	goodbye(n);
}

Test(price, of_messages_that_one_consumer_has)
{
	measure_entries(1, "a message that one consumer has of who is gone");
}

Test(price, of_messages_that_four_consumers_have)
{
	measure_entries(4, "the same, of four consumers that have it");
}

/* What has grown between two states, in both ways of counting. */
static void add(struct spending *to, const struct spending *before, const struct spending *after)
{
	to->allocated -= after->allocated - before->allocated;
	to->charged -= after->charged - before->charged;
}

/* Its messages may be ended when nobody has them any more. */
static bool has_ended(const char *name)
{
	json_t *rows;
	bool ended;

	share_end_channel(client, name);
	rows = report(client, "channels");
	ended = !row_named(rows, "channel", name);
	json_decref(rows);
	return ended;
}

/* Of so many buffers, from this ticket on; it waits. */
static void put_several(uint32_t first, uint32_t of_each)
{
	uint64_t in = raw_pool(&raw, "default");
	struct channel_further *f =
	    of_each > 1
		? (void *)channel_far_at(producer.page, &producer.shape, CHANNEL_WITH_COPIES, first)
		: NULL;

	for (uint32_t i = 1; i < of_each; i++) {
		uint64_t buffer = raw_alloc(&raw, in, 512);

		party_put_copy(&producer, first + i, buffer, 1, 0, CHANNEL_COPY_FINISHED);
		f[i - 1] = (struct channel_further){.ticket = CHANNEL_FURTHER(first + i, 1, 1),
						    .buffer = buffer};
	}
	party_put_copy(&producer, first, raw_alloc(&raw, in, 512), 1, 0, CHANNEL_COPY_WAITS);
	channel_copy_at(producer.page, &producer.shape, first)->timeline =
	    CHANNEL_TIMELINE(0, of_each - 1);
}

/* What is paid for them when the producer comes is compared with what is there when it is gone, and
 * a consumer has them. It is paid for each ticket, as if its buffer was a message by itself: that
 * is dearest, and who sends several at once says so only then. */
static void measure_orphans(uint32_t of_each, int64_t most, const char *what)
{
	struct spending at[5], total;
	struct listing l;

	raw_open(&raw, "orphans");
	join_several(&consumers[0], "orphans", SHARE_CONSUMER, CHANNEL_QUEUE, of_each);
	/* of what is not there at all, as it was never written, the broker would have to ask the
	 * kernel with each look at each message */
	memset(consumers[0].page, 0, channel_ledger_size(&consumers[0].shape));
	at[0] = now();
	join_several(&producer, "orphans", SHARE_PRODUCER, CHANNEL_QUEUE, of_each);
	at[1] = now();
	for (uint32_t i = 0; i < CHANNEL_IN_FLIGHT_MAX; i += of_each)
		put_several(i, of_each);
	at[2] = now();
	party_close(&producer);
	at[3] = now();
	for (uint32_t i = 0; i < CHANNEL_IN_FLIGHT_MAX; i += of_each)
		check(party_fetch(&consumers[0], &l));
	total = at[4] = now();
	add(&total, &at[0], &at[1]);
	add(&total, &at[2], &at[4]);
	fprintf(stderr, "of these %ld bytes while it waits\n",
		(long)(at[3].allocated - at[2].allocated) / CHANNEL_IN_FLIGHT_MAX);
	compare_at_most(&total, CHANNEL_IN_FLIGHT_MAX, 0, most, what);
	party_close(&consumers[0]);
	until(has_ended("orphans"));
	goodbye(0);
}

Test(price, of_messages_whose_producer_is_gone)
{
	measure_orphans(1, 11, "a message that a consumer has fetched");
}

Test(price, of_messages_of_several_buffers_whose_producer_is_gone)
{
	measure_orphans(4, 14, "a buffer of a message of four that a consumer has fetched");
}
