/* SPDX-License-Identifier: MIT */

/*
 * The price list is what things really take: of each kind many are made, and what users are charged
 * for them is compared with what the broker's memory and its journal have grown by.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/channel.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/harness/raw.h"

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
	fixture_start_with(
	    "{\"create_pools\": [\"*\"], \"limits\": {\"watches\": 100000, \"waits\": 100000,"
	    " \"pools\": 10000, \"channels\": 10000, \"connections\": 10000},"
	    " \"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"1GiB\","
	    " \"segment_size\": \"256MiB\", \"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]}]}");
	client = connect_as("measures");
	pool = open_pool(client);
}

TestSuite(price, .init = start, .fini = fixture_stop, .timeout = 300);

/* Of the process that serves, without what it shares with others. */
static int64_t own_memory(void)
{
	char path[64], line[256];
	long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)broker_pid());
	f = fopen(path, "re");
	check(f != NULL);
	while (fgets(line, sizeof(line), f) && sscanf(line, "RssAnon: %ld", &kib) != 1)
		;
	fclose(f);
	return kib * 1024;
}

struct state {
	int64_t allocated, charged;
};

static struct state now(void)
{
	json_t *rows = report(client, "status");
	struct state s = {own_memory() + number_of(json_array_get(rows, 0), "journal_bytes"),
			  used_of(client, "broker_memory")};

	json_decref(rows);
	return s;
}

/* @other: bytes that each takes elsewhere. */
static void compare(const struct state *before, int64_t n, int64_t other, const char *what)
{
	struct state after = now();
	int64_t allocated = after.allocated - before->allocated + n * other;
	int64_t charged = after.charged - before->charged;

	fprintf(stderr, "%s: %ld bytes are allocated for each, and %ld charged\n", what,
		(long)(allocated / n), (long)(charged / n));
	if (getenv("PRICE_SHOW"))
		return;
	check(charged >= allocated * 9 / 10 && charged <= allocated * 11 / 10);
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
	struct state before = now();
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
	struct state before;
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
	struct state before;
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
	struct state before;

	allocate_all();
	before = now();
	set_metadata(40);
	compare(&before, MANY, 0, "metadata of 40 bytes");
	release_all();
}

Test(price, of_much_metadata)
{
	struct state before;

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

Test(price, of_watches)
{
	static share_watch *watches[MANY];
	struct state before = now();
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
	struct state before;
	char name[128];

	raw_open(&raw, "waits");
	before = now();
	for (int i = 0; i < MANY / 4; i++) {
		snprintf(name, sizeof(name), "what is waited for/%d", i / 1000);
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

/* One of two handles of each buffer is released, and its lease stays. */
Test(price, of_fences)
{
	static share_buffer *again[MANY];
	share_host_stream *stream;
	struct gate *gate = gate_new();
	struct state before;

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
	struct state before = now();

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
	struct state before = now();
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
	struct state before = now();
	char name[64];

	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "channel %d", i);
		check_ok(share_channel_open(client, name, i % 2 ? SHARE_CONSUMER : SHARE_PRODUCER,
					    &options, &all[i]));
	}
	compare(&before, N, 0, "a membership");
	for (int i = 0; i < N; i++)
		share_channel_close(all[i]);
	share_pool_close(pool);
	share_disconnect(client);
}
