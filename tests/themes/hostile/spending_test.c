/* SPDX-License-Identifier: MIT */

/*
 * Whatever a program does to have the broker spend memory, its user is charged for nine tenths of
 * it at least: by the broker that was asked for it, and by the one after that.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/admin.h>

#include "tests/harness/fixture.h"
#include "tests/support/raw_channel.h"
#include "tests/support/spending.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define N     20000
#define NOISE 65536 /* what a broker allocates more or less, whatever is done */
#define SMALL 512
#define OWN   (8 << 20) /* the program's */
#define WHOLE (UINT64_C(64) << 20)

static share_client *client;
static share_pool *pool;
static struct raw raw;
static struct spending before;

/* The broker is one that has begun with what there was, as it will be in the end. */
static void start(void)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	if (SANITIZED)
		criterion_skip_test("a sanitizer's memory is not the broker's");
	fixture_start_with("{\"create_pools\": [\"*\"], \"pools\": []}");
	client = connect_as("looks");
	options.kind = "host";
	options.limit = options.segment_size = WHOLE;
	check_ok(share_pool_create(client, "full", &options, &pool));
	raw_open(&raw, "spends");
	broker_kill_serving();
	check_ok(share_ping(client));
	before = spending_now(client);
}

static void stop(void)
{
	if (!check_has_failed() && !SANITIZED) {
		raw_close(&raw);
		share_pool_close(pool);
		share_disconnect(client);
	}
	fixture_stop();
}

TestSuite(spending, .init = start, .fini = stop, .timeout = 300);

static void expect_paid(const char *what)
{
	struct spending s = spending_since(&before, client);

	fprintf(stderr, "%s: %ld bytes are allocated, and %ld charged\n", what, (long)s.allocated,
		(long)s.charged);
	if (getenv("PRICE_SHOW"))
		return;
	check(s.charged + NOISE >= s.allocated * 9 / 10);
}

static void expect_paid_twice(const char *what)
{
	expect_paid(what);
	broker_kill_serving();
	check_ok(share_ping(client));
	expect_paid(what);
}

static uint64_t bytes_of(const char *what)
{
	json_t *rows = report(client, "pools");
	int64_t n = number_of(row_named(rows, "pool", "full"), what);

	json_decref(rows);
	return (uint64_t)n;
}

static void release_behind(uint64_t buffer, uint32_t count, unsigned slot, uint64_t value)
{
	struct wire_message m = {.type = WIRE_RELEASE};

	m.release.buffer = buffer;
	m.release.count = count;
	m.release.timeline = WIRE_TIMELINE(raw.page_id, slot);
	m.release.value = value;
	raw_ask(&raw, &m, WIRE_DONE);
}

static void spends_no_more(void)
{
	raw_ask(&raw, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
}

/* All of the pool is given back behind the work of so many streams. */
static uint64_t fill_with_work(unsigned streams)
{
	uint64_t in = raw_pool(&raw, "full"), whole = raw_alloc(&raw, in, WHOLE);

	for (unsigned slot = 1; slot <= streams; slot++)
		release_behind(whole, slot == streams, slot, 1);
	check_eq(bytes_of("gated"), WHOLE);
	return in;
}

/* How many it gets, which does not wait. */
static int allocate_behind_work(uint64_t in, uint64_t *out)
{
	struct wire_message m = {.type = WIRE_ALLOC};
	int n = 0;

	m.alloc.pool = in;
	m.alloc.size = SMALL;
	m.alloc.patience = 1;
	for (int i = 0; i < N; i++) {
		raw_request(&raw, &m);
		if (raw.m.type == WIRE_GRANT)
			out[n++] = raw.m.grant.buffer;
		else
			check_eq(raw.m.error.error, SHARE_EAGAIN);
		fd_list_close(&raw.fds);
	}
	return n;
}

/* Memory in small pieces, behind all the work that the whole of it was behind. */
static void cut_in_pieces(unsigned streams, int expected)
{
	static uint64_t pieces[N];
	uint64_t in = fill_with_work(streams);
	int n;

	before = spending_now(client);
	n = allocate_behind_work(in, pieces);
	check_eq(n, expected);
	expect_paid_twice("pieces of memory behind work");
	for (int i = 0; i < n; i++)
		release_behind(pieces[i], 1, 1, 2);
	expect_paid_twice("the same, given back behind more work");
	for (unsigned slot = 1; slot <= streams; slot++)
		timeline_signal(raw.page, slot, 2);
	until(bytes_of("gated") == 0);
	check_eq(used_of(client, "fences"), 0);
	spends_no_more();
}

Test(spending, of_memory_behind_one_stream)
{
	cut_in_pieces(1, N);
}

Test(spending, of_memory_behind_a_few_streams)
{
	cut_in_pieces(8, N);
}

Test(spending, of_memory_behind_many_streams)
{
	cut_in_pieces(240, 0);
}

/* The broker looks now and then. */
static int64_t counted_now(void)
{
	json_t *rows;
	int64_t n;

	for (int i = 0; i < 64; i++)
		check_ok(share_ping(client));
	rows = report(client, "status");
	n = number_of(json_array_get(rows, 0), "broker_memory");
	json_decref(rows);
	return n;
}

/* What nobody has any more and cannot be given back is no user's, but all there is is counted. */
static void expect_counted(const char *what)
{
	struct spending s;
	int64_t counted;

	/* The first report takes memory itself, which the broker sees only when it looks again. */
	json_decref(report(client, "status"));
	counted = counted_now();
	s = spending_now(client);
	fprintf(stderr, "%s: %ld bytes are allocated, %ld are users', and %ld are counted\n", what,
		(long)s.allocated, (long)s.charged, (long)counted);
	if (getenv("PRICE_SHOW"))
		return;
	check(counted + OWN + NOISE >= s.allocated);
}

Test(spending, of_one_buffer_left_in_each_chunk)
{
	enum { MOST = 100000, LEFT = 800 };
	static uint64_t buffers[MOST];
	struct wire_message m = {.type = WIRE_RELEASE};
	uint64_t in = raw_pool(&raw, "full");

	before = spending_now(client);
	for (int i = 0; i < MOST; i++)
		buffers[i] = raw_alloc(&raw, in, SMALL);
	expect_paid("many buffers");
	m.release.count = 1;
	for (int i = 0; i < MOST; i++) {
		m.release.buffer = buffers[i];
		if (i % LEFT > 0)
			raw_ask(&raw, &m, WIRE_DONE);
	}
	expect_counted("one of them left in each chunk");
	broker_kill_serving();
	check_ok(share_ping(client));
	expect_counted("one of them left in each chunk");
	spends_no_more();
}

/* Each has a timer. */
Test(spending, of_tokens_that_end_by_themselves)
{
	struct wire_message m = {.type = WIRE_EXPORT}, revoke = {.type = WIRE_REVOKE};
	static unsigned char tokens[N][32];

	m.export.buffer = raw_alloc(&raw, raw_pool(&raw, "full"), SMALL);
	m.export.mode = SHARE_RDONLY;
	m.export.timeout = INT32_MAX;
	before = spending_now(client);
	for (int i = 0; i < N; i++) {
		raw_ask(&raw, &m, WIRE_TOKEN);
		memcpy(tokens[i], raw.m.token.token.data, sizeof(tokens[i]));
	}
	expect_paid_twice("tokens that end by themselves");
	/* they would outlive the connection */
	for (int i = 0; i < N; i++) {
		revoke.revoke.token = (struct wire_bytes){tokens[i], sizeof(tokens[i])};
		raw_ask(&raw, &revoke, WIRE_DONE);
	}
	spends_no_more();
}

/* Each piece would wait for all of it, so there are none as long as it runs. */
Test(spending, who_wants_a_piece_of_memory_behind_many_streams_waits_for_them)
{
	enum { STREAMS = 240 };
	struct wire_message m = {.type = WIRE_ALLOC, .serial = 1000};
	struct wire_message ping = {.type = WIRE_PING, .serial = 1001};

	m.alloc.pool = fill_with_work(STREAMS);
	m.alloc.size = SMALL;
	m.alloc.patience = UINT32_MAX;
	check(raw_send(&raw, &m) == 0 && raw_send(&raw, &ping) == 0);
	check_eq(raw_receive(&raw, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(raw.m.serial, ping.serial);
	for (unsigned slot = 1; slot <= STREAMS; slot++)
		timeline_signal(raw.page, slot, 1);
	check_eq(raw_receive(&raw, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(raw.m.type, WIRE_GRANT);
	fd_list_close(&raw.fds);
	spends_no_more();
}

static void allocate_all(uint64_t *buffers, uint32_t n)
{
	uint64_t in = raw_pool(&raw, "full");

	for (uint32_t i = 0; i < n; i++)
		buffers[i] = raw_alloc(&raw, in, SMALL);
}

static void publish_all(const uint64_t *buffers, uint32_t n, uint32_t size_of_tensor)
{
	static const unsigned char tensor[WIRE_TENSOR_MAX];
	struct wire_message m = {.type = WIRE_PUBLISH};
	char name[16];

	m.publish.tensor = (struct wire_bytes){tensor, size_of_tensor};
	for (uint32_t i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%u", i);
		m.publish.buffer = buffers[i];
		m.publish.name = raw_text(name);
		raw_ask(&raw, &m, WIRE_PUBLISHED);
	}
}

/* The next broker knows how large it is before it makes it. */
Test(spending, of_tensors)
{
	static uint64_t buffers[N];

	allocate_all(buffers, N);
	before = spending_now(client);
	publish_all(buffers, N, WIRE_TENSOR_MAX);
	expect_paid_twice("names with tensors");
	spends_no_more();
}

/* For a name each. */
static void wait_for_names(int n, int length)
{
	struct wire_message m = {.type = WIRE_LOOKUP};
	char name[256];

	m.lookup.mode = SHARE_RDONLY;
	m.lookup.timeout = INT32_MAX;
	before = spending_now(client);
	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%0*d", length, i);
		m.serial = ++raw.serial;
		m.lookup.name = raw_text(name);
		while (raw_send(&raw, &m) < 0)
			check_ok(share_ping(client));
	}
	until(used_of(client, "waits") == n);
	expect_paid("look-ups that wait");
	broker_kill_serving();
	until(used_of(client, "waits") == n);
	expect_paid("look-ups that wait");
}

Test(spending, of_waits_for_long_names)
{
	wait_for_names(4000, 255);
}

Test(spending, of_waits_for_short_names)
{
	wait_for_names(4000, 8);
}

/* What lies between two of them is a free block beside each. */
Test(spending, of_every_other_buffer)
{
	enum { MOST = 120000 };
	static uint64_t buffers[MOST];
	struct wire_message m = {.type = WIRE_RELEASE};
	uint64_t in = raw_pool(&raw, "full");

	before = spending_now(client);
	for (int i = 0; i < MOST; i++)
		buffers[i] = raw_alloc(&raw, in, SMALL);
	m.release.count = 1;
	for (int i = 0; i < MOST; i += 2) {
		m.release.buffer = buffers[i];
		raw_ask(&raw, &m, WIRE_DONE);
	}
	expect_counted("every other buffer");
	broker_kill_serving();
	check_ok(share_ping(client));
	expect_counted("every other buffer");
	spends_no_more();
}

static void set_metadata(const uint64_t *buffers, uint32_t n, uint32_t size)
{
	struct wire_message m = {.type = WIRE_METADATA_SET};
	char *text = calloc(1, size + 32);

	snprintf(text, size + 32, "{\"a\": \"%0*d\"}", (int)size - 9, 0);
	m.metadata_set.json = raw_text(text);
	for (uint32_t i = 0; i < n; i++) {
		m.metadata_set.buffer = buffers[i];
		raw_ask(&raw, &m, WIRE_DONE);
	}
	free(text);
}

/* Behind each there is what it had before, which others may have. */
static void describe_less(uint32_t n, uint32_t size, uint32_t then)
{
	static uint64_t buffers[N];

	allocate_all(buffers, n);
	before = spending_now(client);
	set_metadata(buffers, n, size);
	expect_paid("metadata");
	set_metadata(buffers, n, then);
	expect_counted("metadata that is less now");
	broker_kill_serving();
	check_ok(share_ping(client));
	expect_counted("metadata that is less now");
	spends_no_more();
}

Test(spending, of_metadata_that_becomes_little)
{
	describe_less(N, 2000, 40);
}

Test(spending, of_much_metadata_that_becomes_less)
{
	describe_less(900, 60000, 4200);
}

/* One name is left in each page. */
Test(spending, of_what_lies_between_what_was_given_up)
{
	enum { LEFT = 8 };
	static uint64_t buffers[N];
	struct wire_message m = {.type = WIRE_METADATA_SET};

	allocate_all(buffers, N);
	before = spending_now(client);
	set_metadata(buffers, N, 1000);
	for (int i = 0; i < N; i++) {
		m.metadata_set.buffer = buffers[i];
		if (i % LEFT > 0)
			raw_ask(&raw, &m, WIRE_DONE);
	}
	expect_counted("metadata of one of eight buffers");
	spends_no_more();
}

/* Who writes after a hand-over has to come after the work that was not done then, as long as that
 * lasts. */
Test(spending, of_what_is_handed_over_behind_work)
{
	enum { BUFFERS = 500, STREAMS = 100 };
	static uint64_t buffers[BUFFERS];
	struct wire_message give = {.type = WIRE_PUBLISH}, take = {.type = WIRE_LOOKUP};

	allocate_all(buffers, BUFFERS);
	before = spending_now(client);
	give.publish.name = take.lookup.name = raw_text("handed over");
	give.publish.value = 1;
	take.lookup.mode = SHARE_RDWR;
	for (int i = 0; i < BUFFERS; i++)
		for (unsigned slot = 1; slot <= STREAMS; slot++) {
			give.publish.buffer = buffers[i];
			give.publish.timeline = WIRE_TIMELINE(raw.page_id, slot);
			raw_ask(&raw, &give, WIRE_PUBLISHED);
			raw_ask(&raw, &take, WIRE_GRANT);
			fd_list_close(&raw.fds);
		}
	check_eq(used_of(client, "fences"), BUFFERS * STREAMS);
	expect_paid_twice("what is handed over behind work");
	spends_no_more();
}

/* All of them hear of one name, and of no more until that is read. */
Test(spending, of_watches_whose_events_are_not_read)
{
	enum { WATCHES = 1000 };
	struct wire_message watch = {.type = WIRE_WATCH}, publish = {.type = WIRE_PUBLISH};
	uint64_t buffer = raw_alloc(&raw, raw_pool(&raw, "full"), SMALL);
	static struct raw others;
	char name[256];

	raw_open(&others, "is told");
	before = spending_now(client);
	for (int i = 0; i < WATCHES; i++)
		raw_ask(&others, &watch, WIRE_WATCHING);
	publish.publish.buffer = buffer;
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "%0255d", i);
		publish.publish.name = raw_text(name);
		raw_ask(&raw, &publish, WIRE_PUBLISHED);
	}
	expect_paid_twice("events that are not read");
	raw_hang_up(&others);
	spends_no_more();
}

/* They lie in its producer's ring, which that one's user pays for as for other memory. The broker
 * has nothing of them, whoever has them. */
static void expect_none_of_much(int64_t bytes_before, uint64_t much)
{
	check(spending_since(&before, client).allocated < 2 << 20);
	check(used_of(client, "bytes") - bytes_before > (int64_t)much);
}

Test(spending, of_messages_with_much_data)
{
	enum { MESSAGES = 1000 };
	const uint64_t much = MESSAGES * CHANNEL_DATA_MAX;
	struct wire_message open = party_request("much", SHARE_PRODUCER);
	struct party producer, consumer;
	uint64_t buffers[MESSAGES];
	struct listing l;
	int64_t bytes;

	allocate_all(buffers, MESSAGES);
	open.channel_open.pool = raw_text("full");
	open.channel_open.mode = CHANNEL_QUEUE;
	open.channel_open.in_flight = MESSAGES;
	open.channel_open.data_max = CHANNEL_DATA_MAX;
	before = spending_now(client);
	bytes = used_of(client, "bytes");
	party_open(&producer, &raw, &open);
	party_ready(&producer);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		memset(channel_far_at(producer.page, &producer.shape, producer.layout, i), 1,
		       CHANNEL_DATA_MAX);
		party_put_copy(&producer, i, buffers[i], 1, 0, CHANNEL_COPY_WAITS);
	}
	expect_none_of_much(bytes, much);
	party_close(&producer);
	expect_none_of_much(bytes, much);
	open.channel_open.role = SHARE_CONSUMER;
	party_open(&consumer, &raw, &open);
	party_ready(&consumer);
	for (int i = 0; i < MESSAGES; i++)
		check(party_fetch(&consumer, &l));
	expect_none_of_much(bytes, much);
	broker_kill_serving();
	check_ok(share_ping(client));
	expect_none_of_much(bytes, much);
	party_close(&consumer);
	until((share_end_channel(client, "much"), used_of(client, "channels") == 0));
	spends_no_more();
}
