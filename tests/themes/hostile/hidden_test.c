/* SPDX-License-Identifier: MIT */

/*
 * What is not for a user is as if it were not there: the same answers, byte for byte, to whatever
 * asks for it by a name or by a number. Two tables, of messages with names, which are asked while
 * nothing is called so and again when it is there and hidden, and of messages with numbers, which
 * are asked with a hidden one and with one that never was. No message may be in neither. Root only,
 * who can be anybody.
 */

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/support/raw_channel.h"

#define BOB 4712

#define POOL(name, who)                                 \
	"{\"name\": \"" name                            \
	"\", \"kind\": \"host\", \"limit\": \"8MiB\", " \
	"\"segment_size\": \"1MiB\", \"access\": [{\"user\": " who ", \"mode\": \"rw\"}]}"
#define CONFIG(hidden)                                                                  \
	"{\"limits\": {\"descriptors\": 100}, \"names\": {\"films/\": {\"use\": [0]}, " \
	"\"seen/\": {}}, \"pools\": [" POOL("default", "\"*\"") ", " POOL("hidden", hidden) "]}"

static void start(void)
{
	fixture_start_with(CONFIG("0"));
}

TestSuite(hidden, .init = start, .fini = fixture_stop, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */
/* By name                                                                                     */

#define TEXT(s)                  \
	{                        \
		s, sizeof(s) - 1 \
	}
#define ASK(NAME, ...)                            \
	{                                         \
		.type = WIRE_##NAME, .__VA_ARGS__ \
	}

/* "made", "films/pool": pools; "left", "films/left": of buffers; "ch", "films/ch": channels. */
static const struct wire_message by_name[] = {
    ASK(POOL_OPEN, pool_open = {.name = TEXT("made")}),
    ASK(POOL_OPEN, pool_open = {.name = TEXT("films/pool")}),
    ASK(POOL_CREATE, pool_create = {.name = TEXT("made")}),
    ASK(POOL_CREATE, pool_create = {.name = TEXT("made"), .flags = SHARE_POOL_OPEN_OR_CREATE}),
    ASK(POOL_CREATE, pool_create = {.name = TEXT("made"), .kind = TEXT("nonsense")}),
    ASK(POOL_CREATE, pool_create = {.name = TEXT("films/pool")}),
    ASK(POOL_DESTROY, pool_destroy = {.name = TEXT("made")}),
    ASK(POOL_DESTROY, pool_destroy = {.name = TEXT("films/pool")}),
    ASK(PUBLISH, publish = {.name = TEXT("films/left"), .size = 1}),
    ASK(PUBLISH, publish = {.name = TEXT("left"), .size = 1, .expected = 1}),
    ASK(UNPUBLISH, unpublish = {.name = TEXT("left")}),
    ASK(UNPUBLISH, unpublish = {.name = TEXT("films/left")}),
    ASK(LOOKUP, lookup = {.name = TEXT("left"), .mode = SHARE_RDONLY}),
    ASK(LOOKUP, lookup = {.name = TEXT("left"), .mode = SHARE_RDWR}),
    ASK(LOOKUP, lookup = {.name = TEXT("films/left"), .mode = SHARE_RDONLY}),
    ASK(LOOKUP, lookup = {.name = TEXT("left"), .mode = SHARE_RDONLY, .timeout = 1}),
    ASK(LOOKUP, lookup = {.name = TEXT("films/left"), .mode = SHARE_RDONLY, .timeout = 1}),
    ASK(CHANNEL_OPEN, channel_open = {.name = TEXT("ch"),
				      .role = SHARE_CONSUMER,
				      .flags = SHARE_CHANNEL_EXISTING}),
    ASK(CHANNEL_OPEN, channel_open = {.name = TEXT("films/ch"),
				      .role = SHARE_CONSUMER,
				      .flags = SHARE_CHANNEL_EXISTING}),
    ASK(CHANNEL_OPEN, channel_open = {.name = TEXT("films/ch"), .role = SHARE_PRODUCER}),
    ASK(CHANNEL_OPEN,
	channel_open = {.name = TEXT("ch"), .role = SHARE_PRODUCER, .pool = TEXT("made")}),
    ASK(CHANNEL_OPEN, channel_open = {.name = TEXT("ch"), .role = SHARE_PRODUCER, .depth = 3}),
    ASK(QUERY, query = {.what = TEXT("pools")}),
    ASK(QUERY, query = {.what = TEXT("segments")}),
    ASK(QUERY, query = {.what = TEXT("clients")}),
    ASK(QUERY, query = {.what = TEXT("buffers")}),
    ASK(QUERY, query = {.what = TEXT("names")}),
    ASK(QUERY, query = {.what = TEXT("names"), .prefix = TEXT("films/")}),
    ASK(QUERY, query = {.what = TEXT("names"), .cursor = TEXT("a")}),
    ASK(QUERY, query = {.what = TEXT("channels")}),
    ASK(QUERY, query = {.what = TEXT("users")}),
    ASK(QUERY, query = {.what = TEXT("tokens")}),
    ASK(MONITOR, monitor = {.timeout = 0}),
    ASK(MONITOR, monitor = {.pool = TEXT("hidden")}),
    ASK(MONITOR, monitor = {.prefix = TEXT("films/")}),
    ASK(MONITOR, monitor = {.timeout = 0}), /* of everything again, from here on */
};
#define N_BY_NAME (sizeof(by_name) / sizeof(by_name[0]))

/* What came back, but for the serial. */
struct answer {
	enum wire_type type;
	size_t size, n_fds;
	unsigned char rest[4096];
};

#define HEADER 8

/* Copies the rows of a report without the numbers of milliseconds, as time passes between two
 * questions. Returns how many bytes that makes. */
static size_t copy_without_times(unsigned char *to, struct wire_bytes rows)
{
	static const char time[] = "_ms\":";
	const char *p = rows.data, *end = p + rows.size;
	size_t n = 0;

	while (p < end) {
		to[n++] = (unsigned char)*p++;
		if (n < sizeof(time) - 1 ||
		    memcmp(to + n - (sizeof(time) - 1), time, sizeof(time) - 1))
			continue;
		while (p < end && strchr("0123456789", *p))
			p++;
	}
	return n;
}

static void ask(struct raw *r, const struct wire_message *question, struct answer *out)
{
	struct wire_message m = *question;

	m.serial = ++r->serial;
	check_eq(raw_send(r, &m), 0);
	check(raw_receive(r, HARNESS_LIMIT_MS) == RAW_MESSAGE);
	/* nor is it told of unasked, as it watches all names */
	check_eq(r->m.serial, m.serial);
	check(r->size <= sizeof(out->rest));
	memset(out, 0, sizeof(*out));
	out->type = r->m.type;
	out->size = r->size - HEADER;
	out->n_fds = r->fds.n;
	if (out->type == WIRE_REPORT)
		out->size = copy_without_times(out->rest, r->m.report.rows);
	else
		memcpy(out->rest, r->packet + HEADER, out->size);
}

static void expect_same(size_t row, const struct wire_message *m, const struct answer *absent,
			const struct answer *hidden)
{
	if (absent->type == hidden->type && absent->size == hidden->size &&
	    absent->n_fds == hidden->n_fds && !memcmp(absent->rest, hidden->rest, absent->size))
		return;
	check_failed(__FILE__, __LINE__, "row %zu: %s tells what is hidden: '%.*s', not '%.*s'",
		     row, wire_describe(m->type)->name, (int)hidden->size,
		     (const char *)hidden->rest, (int)absent->size, (const char *)absent->rest);
}

static void bob_asks_by_name(struct child *self, void *data)
{
	static struct answer absent[N_BY_NAME], hidden;
	static struct raw r;
	struct wire_message m = {.type = WIRE_WATCH};
	uint64_t buffer;

	(void)data;
	child_become(BOB, 0);
	raw_open(&r, "bob");
	buffer = raw_alloc(&r, raw_pool(&r, "default"), 512);
	raw_ask(&r, &m, WIRE_WATCHING);
	/* and asks what happens, from now on */
	raw_ask(&r, &(struct wire_message){.type = WIRE_MONITOR}, WIRE_REPORT);
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < N_BY_NAME; i++) {
			m = by_name[i];
			if (m.type == WIRE_PUBLISH)
				m.publish.buffer = buffer;
			ask(&r, &m, round ? &hidden : &absent[i]);
			if (m.type != WIRE_QUERY && m.type != WIRE_MONITOR)
				check_eq(r.m.type, WIRE_ERROR);
			if (round)
				expect_same(i, &m, &absent[i], &hidden);
		}
		if (round == 0)
			child_point(self, "nothing is there");
	}
	raw_close(&r);
}

/* Lives on after its connection: what it held comes back when it says so. */
static void leave(struct raw *r)
{
	raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

static void publish(struct raw *r, uint64_t buffer, struct wire_bytes name)
{
	struct wire_message m = {.type = WIRE_PUBLISH};

	m.publish.buffer = buffer;
	m.publish.name = name;
	m.publish.size = 512;
	raw_ask(r, &m, WIRE_PUBLISHED);
}

static void create(struct raw *r, struct wire_bytes name)
{
	struct wire_message m = {.type = WIRE_POOL_CREATE};

	m.pool_create.name = name;
	m.pool_create.kind = raw_text("host");
	m.pool_create.access = raw_text("[{\"user\": 4712, \"mode\": \"manage\"}]");
	/* "films/pool" is for him, but what is called so is not */
	if (name.size == 4)
		m.pool_create.access.size = 0;
	raw_ask(r, &m, WIRE_POOL);
}

static void join(struct party *p, struct raw *r, const char *name, const char *pool)
{
	struct wire_message m = party_request(name, SHARE_PRODUCER);

	m.channel_open.pool = raw_text(pool);
	party_open(p, r, &m);
	party_ready(p);
}

Test(hidden, what_is_not_for_a_user_answers_to_its_name_as_if_it_were_not_there)
{
	static struct raw r;
	struct party first, second;
	struct child *bob;
	uint64_t inside, beside;

	skip_unless_root();
	bob = child_start(bob_asks_by_name, NULL);
	child_wait(bob, "nothing is there");
	raw_open(&r, "root");
	create(&r, raw_text("made"));
	create(&r, raw_text("films/pool"));
	inside = raw_alloc(&r, raw_pool(&r, "hidden"), 512);
	beside = raw_alloc(&r, raw_pool(&r, "films/pool"), 512);
	publish(&r, inside, raw_text("left"));
	publish(&r, beside, raw_text("films/left"));
	publish(&r, beside, raw_text("right"));
	join(&first, &r, "ch", "hidden");
	join(&second, &r, "films/ch", "default");
	child_go(bob);
	child_finish(bob);
	party_close(&first);
	party_close(&second);
	leave(&r);
}

/* ------------------------------------------------------------------------------------------- */
/* By number                                                                                   */

/* What root has, and bob may not use. */
struct numbers {
	uint64_t buffer, pool, segment, page, member, client, token;
	unsigned char bytes[32]; /* of the token */
};

#define IS(field) offsetof(struct numbers, field)

/* Where the number goes in the message, which it is, and where a membership of his own goes. */
#define PUT(NAME, field, number, ...)                                                       \
	{                                                                                   \
		ASK(NAME, __VA_ARGS__), offsetof(struct wire_message, field), IS(number), 0 \
	}
#define PUT_IN(NAME, field, number, member)                                              \
	{                                                                                \
		{.type = WIRE_##NAME}, offsetof(struct wire_message, field), IS(number), \
		    offsetof(struct wire_message, member)                                \
	}

static const struct {
	struct wire_message m;
	size_t field, number, member;
} by_number[] = {
    PUT(POOL_CLOSE, pool_close.pool, pool, pool_close.pool = 0),
    PUT(ALLOC, alloc.pool, pool, alloc = {.size = 512}),
    PUT(ADOPT, adopt.pool, pool, adopt = {.size = 512}),
    PUT(POOL_SEGMENTS, pool_segments.pool, pool, pool_segments = {.mode = SHARE_RDONLY}),
    PUT(RELEASE, release.buffer, buffer, release = {.count = 1}),
    PUT(PUBLISH, publish.buffer, buffer, publish = {.name = TEXT("x"), .size = 1}),
    PUT(EXPORT, export.buffer, buffer, export = {.mode = SHARE_RDONLY, .size = 1}),
    PUT(METADATA_SET, metadata_set.buffer, buffer, metadata_set = {.json = TEXT("{}")}),
    PUT(METADATA_GET, metadata_get.buffer, buffer, metadata_get.buffer = 0),
    PUT(RECIPE_GET, recipe_get.buffer, buffer, recipe_get.buffer = 0),
    PUT(RECLAIM, reclaim.buffer, buffer, reclaim.buffer = 0),
    PUT(TIMELINE, timeline.page, page, timeline.page = 0),
    PUT(DROP, drop.id, client, drop = {.what = WIRE_DROP_CLIENT}),
    PUT(DROP, drop.id, token, drop = {.what = WIRE_DROP_TOKEN}),
    PUT(CHANNEL_READY, channel_ready.member, member, channel_ready.member = 0),
    PUT(CHANNEL_SYNC, channel_sync.member, member, channel_sync.member = 0),
    PUT(CHANNEL_CLOSE, channel_close.member, member, channel_close.member = 0),
    PUT(CHANNEL_ABANDON, channel_abandon.member, member, channel_abandon.member = 0),
    PUT_IN(CHANNEL_SEGMENT, channel_segment.segment, segment, channel_segment.member),
    PUT_IN(CHANNEL_RETAIN, channel_retain.buffer, buffer, channel_retain.member),
    PUT_IN(CHANNEL_METADATA, channel_metadata.buffer, buffer, channel_metadata.member),
    PUT_IN(CHANNEL_ABANDON, channel_abandon.consumer, member, channel_abandon.member),
    PUT(IMPORT, import.token, bytes, import.token.size = 0),
    PUT(REVOKE, revoke.token, bytes, revoke.token.size = 0),
};
#define N_BY_NUMBER (sizeof(by_number) / sizeof(by_number[0]))

/* The number is what was asked for: it is no answer. */
static void blank(struct answer *a, const char *text)
{
	char *at = memmem(a->rest, a->size, text, strlen(text));

	if (at)
		memset(at, '#', strlen(text));
}

static void ask_about(struct raw *r, size_t row, const struct numbers *n, uint64_t member,
		      struct answer *out)
{
	struct wire_message m = by_number[row].m;
	char *field = (char *)&m + by_number[row].field, text[32];
	uint64_t number;

	if (by_number[row].number == IS(bytes)) {
		memcpy(field, &(struct wire_bytes){n->bytes, sizeof(n->bytes)},
		       sizeof(struct wire_bytes));
		ask(r, &m, out);
		return;
	}
	memcpy(&number, (const char *)n + by_number[row].number, sizeof(number));
	memcpy(field, &number, sizeof(number));
	if (by_number[row].member)
		memcpy((char *)&m + by_number[row].member, &member, sizeof(member));
	ask(r, &m, out);
	snprintf(text, sizeof(text), " %llu", (unsigned long long)number);
	blank(out, text);
	snprintf(text, sizeof(text), "%llx", (unsigned long long)number);
	if (strlen(text) > 4)
		blank(out, text);
}

/* The next of each that there could be, of as many digits and never given to anybody. */
static void look_beside(struct numbers *n)
{
	n->buffer += 4;
	n->pool += 4;
	n->segment += 4;
	n->page += 4;
	n->member += 4;
	n->client += 4;
	n->token += 4;
	n->bytes[31] ^= 1;
}

static void bob_asks_by_number(struct child *self, void *data)
{
	static struct answer absent, hidden;
	static struct raw r;
	struct numbers there, nowhere;
	struct party p;

	(void)data;
	child_become(BOB, 0);
	raw_open(&r, "bob");
	party_join(&p, &r, "bobs", SHARE_PRODUCER);
	child_exchange(self, "here", NULL, 0, &there, sizeof(there));
	nowhere = there;
	look_beside(&nowhere);
	for (size_t i = 0; i < N_BY_NUMBER; i++) {
		ask_about(&r, i, &nowhere, p.id, &absent);
		ask_about(&r, i, &there, p.id, &hidden);
		expect_same(i, &by_number[i].m, &absent, &hidden);
	}
	party_close(&p);
	raw_close(&r);
}

static uint64_t first(share_client *c, const char *what, const char *key)
{
	json_t *rows = report(c, what);
	const json_t *value = json_object_get(json_array_get(rows, 0), key);
	uint64_t id = json_is_string(value) ? strtoull(json_string_value(value), NULL, 16)
					    : (uint64_t)json_integer_value(value);

	json_decref(rows);
	return id;
}

Test(hidden, what_is_not_for_a_user_answers_to_its_number_as_if_it_never_was)
{
	static struct raw r;
	struct wire_message export = {.type = WIRE_EXPORT};
	struct numbers n = {0};
	share_client *client;
	struct child *bob;
	struct party p;

	skip_unless_root();
	raw_open(&r, "root");
	n.page = r.page_id;
	n.pool = raw_pool(&r, "hidden");
	n.buffer = raw_alloc(&r, n.pool, 512);
	n.segment = r.m.grant.segment;
	export.export.buffer = n.buffer;
	export.export.mode = SHARE_RDONLY;
	export.export.size = 512;
	raw_ask(&r, &export, WIRE_TOKEN);
	check_eq(r.m.token.token.size, sizeof(n.bytes));
	memcpy(n.bytes, r.m.token.token.data, sizeof(n.bytes));
	join(&p, &r, "ch", "hidden");
	n.member = p.id;
	client = connect_as("another");
	n.client = first(client, "clients", "client");
	n.token = first(client, "tokens", "token");
	check(n.client != 0 && n.token != 0);
	bob = child_start(bob_asks_by_number, NULL);
	child_wait(bob, "here");
	child_go_with(bob, &n, sizeof(n));
	child_finish(bob);
	share_disconnect(client);
	party_close(&p);
	leave(&r);
}

/* ------------------------------------------------------------------------------------------- */

/* What names nothing of others': what is the connection's own, or its user's. */
static const enum wire_type own[] = {
    WIRE_HELLO,
    WIRE_READY,
    WIRE_PING,
    WIRE_BYE,
    WIRE_CANCEL,
    WIRE_WATCH,
    WIRE_UNWATCH,
    WIRE_TRIMMED,
    WIRE_EVENT_CREATE,
    WIRE_EVENT_OPEN,
    WIRE_EVENT_RELEASE,
    WIRE_RELOAD,
    WIRE_UPGRADE,
    WIRE_CHANNEL_DRAINED,
    WIRE_CHANNEL_STALLED,
    WIRE_SEGMENT_RETIRED, /* is the end of who says it of another's, whether
       there or not */
};

static bool is_in_a_table(enum wire_type type)
{
	for (size_t i = 0; i < N_BY_NAME; i++)
		if (by_name[i].type == type)
			return true;
	for (size_t i = 0; i < N_BY_NUMBER; i++)
		if (by_number[i].m.type == type)
			return true;
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (own[i] == type)
			return true;
	return false;
}

Test(hidden, no_message_is_forgotten_here)
{
	for (unsigned type = 1; type < WIRE_TYPE_COUNT; type++) {
		const struct wire_description *d = wire_describe(type);

		if (d && d->direction == WIRE_TO_BROKER && !is_in_a_table((enum wire_type)type))
			check_failed(__FILE__, __LINE__, "%s is in no table", d->name);
	}
}

/* ------------------------------------------------------------------------------------------- */

static void bob_waits(struct child *self, void *data)
{
	static struct raw r;
	struct wire_message m = {.type = WIRE_LOOKUP}, ping = {.type = WIRE_PING};

	(void)data;
	child_become(BOB, 0);
	raw_open(&r, "bob");
	m.serial = ++r.serial;
	m.lookup.name = raw_text("left");
	m.lookup.mode = SHARE_RDONLY;
	m.lookup.timeout = -1;
	check_eq(raw_send(&r, &m), 0);
	child_point(self, "waits for what is not there");
	child_point(self, "waits for what is hidden");
	/* as if it were still to come: this is answered first */
	ping.serial = ++r.serial;
	check_eq(raw_send(&r, &ping), 0);
	check(raw_receive(&r, HARNESS_LIMIT_MS) == RAW_MESSAGE);
	check_eq(r.m.type, WIRE_DONE);
	child_point(self, "has waited");
	check(raw_receive(&r, HARNESS_LIMIT_MS) == RAW_MESSAGE);
	check_eq(r.m.type, WIRE_GRANT);
	check_eq(r.m.serial, m.serial);
	raw_close(&r);
}

Test(hidden, who_waits_for_a_name_finds_it_once_it_is_for_him)
{
	static struct raw r;
	struct child *bob;

	skip_unless_root();
	bob = child_start(bob_waits, NULL);
	child_wait(bob, "waits for what is not there");
	raw_open(&r, "root");
	publish(&r, raw_alloc(&r, raw_pool(&r, "hidden"), 512), raw_text("left"));
	child_go(bob);
	child_wait(bob, "waits for what is hidden");
	child_go(bob);
	child_wait(bob, "has waited");
	broker_write_config(CONFIG("4712"));
	kill(broker_pid(), SIGHUP);
	child_go(bob);
	child_finish(bob);
	leave(&r);
}

/* Woken for what is not for him, he waits as before. */
static void bob_waits_in_vain(struct child *self, void *data)
{
	static struct raw r;
	struct wire_message m = {.type = WIRE_LOOKUP}, ping = {.type = WIRE_PING},
			    cancel = {.type = WIRE_CANCEL};
	uint32_t first;

	(void)data;
	child_become(BOB, 0);
	raw_open(&r, "bob");
	m.lookup.name = raw_text("left");
	m.lookup.mode = SHARE_RDONLY;
	m.lookup.timeout = -1;
	m.serial = first = ++r.serial;
	check_eq(raw_send(&r, &m), 0);
	raw_ask(&r, &ping, WIRE_DONE);
	m.lookup.timeout = 200;
	m.serial = ++r.serial;
	check_eq(raw_send(&r, &m), 0);
	child_point(self, "waits");
	/* his second ends by its time limit, which his first does not have; and it can be canceled
	 */
	check(raw_receive(&r, HARNESS_LIMIT_MS) == RAW_MESSAGE);
	check_eq(r.m.type, WIRE_ERROR);
	check_eq(r.m.serial, m.serial);
	check_eq(r.m.error.error, SHARE_ETIMEDOUT);
	cancel.cancel.lookup = first;
	check_eq(raw_send(&r, &cancel), 0);
	check(raw_receive(&r, HARNESS_LIMIT_MS) == RAW_MESSAGE);
	check_eq(r.m.type, WIRE_ERROR);
	check_eq(r.m.serial, first);
	check_eq(r.m.error.error, SHARE_ECANCELED);
	raw_close(&r);
}

Test(hidden, who_waits_for_a_name_that_others_find_waits_on)
{
	static struct raw r;
	struct child *bob;

	skip_unless_root();
	raw_open(&r, "root");
	bob = child_start(bob_waits_in_vain, NULL);
	child_wait(bob, "waits");
	publish(&r, raw_alloc(&r, raw_pool(&r, "hidden"), 512), raw_text("left"));
	publish(&r, raw_alloc(&r, raw_pool(&r, "hidden"), 512), raw_text("left"));
	child_go(bob);
	child_finish(bob);
	leave(&r);
}

/* ------------------------------------------------------------------------------------------- */

#define MANY 10000 /* more than are looked at for one page of a report, and more than for two */

static void bob_lists_names(struct child *self, void *data)
{
	static struct raw r;
	struct wire_message m = {.type = WIRE_QUERY};
	char cursor[512] = "";
	int names = 0, pages = 0;

	(void)self, (void)data;
	child_become(BOB, 0);
	raw_open(&r, "bob");
	m.query.what = raw_text("names");
	do {
		m.query.cursor = raw_text(cursor);
		raw_ask(&r, &m, WIRE_REPORT);
		check(!memmem(r.packet, r.size, "secret", 6));
		names += memmem(r.packet, r.size, "\"name\":\"seen/", 13) != NULL;
		check(r.m.report.cursor.size < sizeof(cursor));
		memcpy(cursor, r.m.report.cursor.data, r.m.report.cursor.size);
		cursor[r.m.report.cursor.size] = '\0';
		check(++pages < 100);
	} while (cursor[0]);
	check(names >= 1);
	raw_close(&r);
}

/* Where the next page begins was told by the last name looked at, whoever's that was. */
Test(hidden, a_long_report_does_not_tell_hidden_names_by_where_its_pages_end)
{
	static struct raw r;
	uint64_t inside;
	char name[32];

	skip_unless_root();
	raw_open(&r, "root");
	inside = raw_alloc(&r, raw_pool(&r, "hidden"), 512);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "secret/%05d", i);
		publish(&r, inside, raw_text(name));
	}
	publish(&r, raw_alloc(&r, raw_pool(&r, "default"), 512), raw_text("seen/a"));
	publish(&r, raw_alloc(&r, raw_pool(&r, "default"), 512), raw_text("zzz"));
	child_finish(child_start(bob_lists_names, NULL));
	leave(&r);
}

/* ------------------------------------------------------------------------------------------- */

#define REACHED 5

/* Whether bob is reported as parked once he says that a stream of his waits for that. */
static bool is_parked(struct raw *r, uint64_t page, uint64_t value)
{
	struct wire_message m = {.type = WIRE_QUERY};

	atomic_store(&r->page->slots[0].parked_until, value);
	atomic_store(&r->page->slots[0].parked_for, WIRE_TIMELINE(page, 1));
	m.query.what = raw_text("clients");
	raw_ask(r, &m, WIRE_REPORT);
	check(memmem(r->packet, r->size, "\"parked\":", 9) != NULL);
	return memmem(r->packet, r->size, "\"parked\":1", 10) != NULL;
}

static void bob_says_that_he_waits(struct child *self, void *data)
{
	static struct raw r;
	uint64_t page;

	(void)data;
	child_become(BOB, 0);
	raw_open(&r, "bob");
	child_exchange(self, "here", NULL, 0, &page, sizeof(page));
	check(!is_parked(&r, page, REACHED));
	check(!is_parked(&r, page, REACHED + 1));
	raw_pool(&r, "default");
	check(!is_parked(&r, page, REACHED));
	check(is_parked(&r, page, REACHED + 1));
	raw_close(&r);
}

/* Else he could ask the broker for any value of anybody's. */
Test(hidden, how_far_a_timeline_is_that_a_user_may_not_have_is_not_told_by_waiting_for_it)
{
	static struct raw r;
	struct child *bob;

	skip_unless_root();
	raw_open(&r, "root");
	raw_pool(&r, "default");
	timeline_signal(r.page, 1, REACHED);
	bob = child_start(bob_says_that_he_waits, NULL);
	child_wait(bob, "here");
	child_go_with(bob, &r.page_id, sizeof(r.page_id));
	child_finish(bob);
	leave(&r);
}
