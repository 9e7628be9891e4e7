/* SPDX-License-Identifier: MIT */

/*
 * A broker that has little memory for what users have it remember. However much one of them asks
 * for, of whatever is cheap, the others are served; it is told why it gets no more, and all of it
 * is there again when it has gone. The next broker counts what the one before has counted.
 */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/admin.h>
#include <share/service.h>

#include "base/system/process.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/raw_channel.h"

#define MIB    (INT64_C(1) << 20)
#define GREEDY 5001
#define USERS  8
#define LEAST  (16 * MIB / 64) /* that each has in any case */

#define CONFIG(memory)                                                                      \
	"{\"broker_memory\": \"" memory                                                     \
	"\", \"create_pools\": [\"*\"], \"limits\": "                                       \
	"{\"watches\": 1000000, \"names\": 1000000, \"tokens\": 1000000}, \"pools\": "      \
	"[{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"1GiB\", "                \
	"\"segment_size\": \"64MiB\", \"reuse\": \"gate\", \"access\": [{\"user\": \"*\", " \
	"\"mode\": \"rw\"}]}]}"

static share_client *client;

static void start(void)
{
	fixture_start_with(CONFIG("4MiB"));
	client = connect_as("operator");
}

static void stop(void)
{
	share_disconnect(client);
	fixture_stop();
}

TestSuite(broker_memory, .init = start, .fini = stop, .timeout = 120);

static int64_t said(const char *what)
{
	json_t *rows = report(client, "status");
	int64_t n = number_of(json_array_get(rows, 0), what);

	json_decref(rows);
	return n;
}

/* ------------------------------------------------------------------------------------------- */
/* What is cheap, as much of it as there is: each returns what it is told in the end            */

static int takes_leases(share_client *c, share_pool *pool)
{
	share_buffer *b;
	int r;

	(void)c;
	while ((r = share_alloc(pool, 1, NULL, &b)) == 0)
		;
	return r;
}

static int takes_names(share_client *c, share_pool *pool)
{
	share_buffer *b = allocate(pool, 1, NULL);
	char name[64];
	int r = 0;

	for (int i = 0; r == 0; i++) {
		snprintf(name, sizeof(name), "uid/%d/%d", GREEDY, i);
		r = share_publish(b, name, NULL);
	}
	(void)c;
	return r;
}

static int takes_tokens(share_client *c, share_pool *pool)
{
	share_buffer *b = allocate(pool, 1, NULL);
	share_token token;
	int r;

	(void)c;
	while ((r = share_export(b, NULL, &token)) == 0)
		;
	return r;
}

static void hear(const share_name_event *event, void *data)
{
	(void)event, (void)data;
}

static int takes_watches(share_client *c, share_pool *pool)
{
	share_watch *w;
	int r;

	(void)pool;
	while ((r = share_watch_names(c, "uid/", hear, NULL, &w)) == 0)
		;
	return r;
}

static int takes_metadata(share_client *c, share_pool *pool)
{
	char *json = malloc(32768);
	int r = 0;

	snprintf(json, 32768, "{\"a\": \"%030000d\"}", 0);
	while (r == 0)
		r = share_metadata_set(allocate(pool, 1, NULL), json);
	free(json);
	(void)c;
	return r;
}

static int takes_pools(share_client *c, share_pool *pool)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_buffer *b;
	int r;

	(void)pool;
	options.kind = "host";
	options.limit = MIB << 10;
	options.segment_size = 65536;
	check_ok(share_pool_create(c, "uid/5001/pool", &options, &pool));
	while ((r = share_alloc(pool, 65536, NULL, &b)) == 0)
		;
	return r;
}

#define CONNECTIONS 20

static share_client *connections[CONNECTIONS];

static void connect_all(void)
{
	for (int i = 0; i < CONNECTIONS; i++)
		connections[i] = child_connect("one of many");
}

static int take_pool(share_client *c, int i, share_pool **out)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	char name[64];

	options.kind = "host";
	options.limit = MIB << 10;
	options.segment_size = 65536;
	options.flags = SHARE_POOL_OPEN_OR_CREATE;
	snprintf(name, sizeof(name), "own/%d", i);
	return share_pool_create(c, name, &options, out);
}

/* Each connection opens them all, when there is no room left for anything. */
static int takes_opens(share_client *c, share_pool *pool)
{
	enum { POOLS = 40 };
	share_pool *own;
	int r = 0;

	connect_all();
	for (int i = 0; i < POOLS; i++)
		check_ok(take_pool(c, i, &own));
	check_eq(takes_leases(c, pool), SHARE_EQUOTA);
	for (int i = 0; i < CONNECTIONS * POOLS && r == 0; i++)
		r = take_pool(connections[i / POOLS], i % POOLS, &own);
	return r;
}

/* Each is sent all segments of the channel's pool when it asks who takes part, or none of those
 * that it has no room for. */
static int takes_possessions(share_client *c, share_pool *pool)
{
	enum { SEGMENTS = 256 };
	static struct party consumers[CONNECTIONS];
	static struct raw raws[CONNECTIONS];
	struct listing l;
	share_pool *own;
	share_buffer *b;

	check_ok(take_pool(c, 0, &own));
	for (int i = 0; i < SEGMENTS; i++)
		check_ok(share_alloc(own, 65536, NULL, &b));
	for (int i = 0; i < CONNECTIONS; i++) {
		struct wire_message open = party_request("own/channel", SHARE_CONSUMER);

		open.channel_open.pool = raw_text("own/0");
		raw_open(&raws[i], "one of many");
		party_open(&consumers[i], &raws[i], &open);
		party_ready(&consumers[i]);
	}
	check_eq(takes_leases(c, pool), SHARE_EQUOTA);
	for (int i = 0; i < CONNECTIONS; i++)
		party_sync(&consumers[i], &l);
	return share_alloc(pool, 1, NULL, &b);
}

static const struct greed {
	int (*takes)(share_client *c, share_pool *pool);
	const char *what;
} greeds[] = {
    {takes_leases, "leases"},     {takes_names, "names"},
    {takes_tokens, "tokens"},     {takes_watches, "watches"},
    {takes_metadata, "metadata"}, {takes_pools, "segments"},
    {takes_opens, "opens"},       {takes_possessions, "possessions"},
};

struct takes {
	const struct greed *greed;
	uid_t uid;
};

static void takes_all(struct child *self, void *data)
{
	const struct takes *t = data;
	share_client *c;

	child_become(t->uid, 0);
	c = child_connect(t->greed->what);
	check_eq(t->greed->takes(c, open_pool(c)), SHARE_EQUOTA);
	check_detail("may not have more than it leaves to others");
	check_detail("broker_memory");
	child_point(self, "has all");
}

static void is_served(struct child *self, void *data)
{
	share_buffer *b[20];
	share_pool *pool;
	share_client *c;

	(void)self;
	child_become(*(uid_t *)data, 0);
	c = child_connect("modest");
	pool = open_pool(c);
	for (int i = 0; i < 20; i++)
		b[i] = allocate(pool, 1, NULL);
	for (int i = 0; i < 20; i++)
		check_ok(share_release(b[i], NULL));
	share_pool_close(pool);
	share_disconnect(c);
}

Test(broker_memory, whatever_one_user_takes_all_of_others_are_served)
{
	int64_t before = said("broker_memory");

	skip_unless_root();
	for (size_t i = 0; i < sizeof(greeds) / sizeof(greeds[0]); i++) {
		struct takes takes = {&greeds[i], GREEDY};
		struct child *greedy = child_start(takes_all, &takes);

		child_wait(greedy, "has all");
		check(used_by(client, GREEDY, "broker_memory") > MIB);
		check(used_by(client, GREEDY, "broker_memory") <= 2 * MIB);
		child_finish(child_start(is_served, &(uid_t){5002}));
		child_kill(greedy);
		until(used_by(client, GREEDY, "broker_memory") <= 0);
		until(said("broker_memory") == before);
	}
}

static void takes_as_who_it_is(struct child *self, void *data)
{
	const struct greed *greed = data;
	share_client *c = child_connect(greed->what);

	check_eq(greed->takes(c, open_pool(c)), SHARE_EQUOTA);
	child_point(self, "has all");
}

/* What needs no lease, and comes to many connections at once. */
Test(broker_memory, what_is_open_or_mapped_is_refused_beyond_what_its_user_may_have)
{
	struct greed both[] = {{takes_opens, "opens"}, {takes_possessions, "possessions"}};

	for (int i = 0; i < 2; i++) {
		struct child *greedy = child_start(takes_as_who_it_is, &both[i]);

		child_wait(greedy, "has all");
		check(used_of(client, "broker_memory") <= 2 * MIB);
		child_kill(greedy);
		until(said("buffers") == 0);
	}
}

Test(broker_memory, of_eight_who_take_all_each_leaves_the_next_one_as_much)
{
	struct takes takes[USERS];
	struct child *all[USERS];
	int64_t left, most;

	skip_unless_root();
	broker_write_config(CONFIG("16MiB"));
	check_ok(share_reload(client, NULL, NULL));
	left = said("broker_memory_limit") - said("broker_memory");
	for (int i = 0; i < USERS; i++) {
		takes[i] = (struct takes){&greeds[0], (uid_t)(GREEDY + i)};
		all[i] = child_start(takes_all, &takes[i]);
		child_wait(all[i], "has all");
		most = left / 2 > LEAST ? left / 2 : LEAST;
		check(used_by(client, GREEDY + i, "broker_memory") <= most);
		left = said("broker_memory_limit") - said("broker_memory");
	}
	child_finish(child_start(is_served, &(uid_t){6000}));
	for (int i = 0; i < USERS; i++)
		child_kill(all[i]);
	until(said("buffers") == 0);
}

#define MODEST 6000
#define FEW    20

/* The name of its i-th buffer. */
static const char *few(int i)
{
	static char name[64];

	snprintf(name, sizeof(name), "uid/%d/%d", MODEST, i);
	return name;
}

static void open_channel(share_client *c, int role, share_channel **out)
{
	check_ok(share_channel_open(c, "uid/6000/channel", role, NULL, out));
}

/* All that it has before others come and go is there afterwards: buffers, names, a token, and
 * messages that it had sent. */
static void is_modest(struct child *self, void *data)
{
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *mine[FEW], *again;
	share_channel *in, *out;
	share_token token;
	share_pool *pool;
	share_client *c;

	(void)data;
	child_become(MODEST, 0);
	c = child_connect("modest");
	pool = open_pool(c);
	open_channel(c, SHARE_CONSUMER, &in);
	open_channel(c, SHARE_PRODUCER, &out);
	for (int i = 0; i < FEW; i++) {
		mine[i] = allocate(pool, 512, NULL);
		memset(share_ptr(mine[i]), i + 1, 512);
		check_ok(share_publish(mine[i], few(i), NULL));
		check_ok(share_send(out, mine[i], NULL, 0, NULL));
	}
	check_ok(share_export(mine[0], NULL, &token));
	child_point(self, "has little");
	for (int i = 0; i < FEW; i++) {
		check_ok(share_recv(in, -1, NULL, &m));
		expect_filled(share_ptr(m.buffer), i + 1, 512);
		check_ok(share_ack(&m, NULL));
		check_ok(share_lookup(c, few(i), SHARE_RDWR, 0, NULL, &again));
		expect_filled(share_ptr(again), i + 1, 512);
		check_ok(share_release(again, NULL));
	}
	check_ok(share_import(c, &token, SHARE_RDONLY, NULL, &again));
	check_ok(share_release(again, NULL));
	for (int i = 0; i < FEW; i++) {
		check_ok(share_unpublish(c, few(i)));
		check_ok(share_release(mine[i], NULL));
		mine[i] = allocate(pool, 512, NULL);
	}
	for (int i = 0; i < FEW; i++)
		check_ok(share_release(mine[i], NULL));
	share_channel_close(out);
	share_channel_close(in);
	share_pool_close(pool);
	share_disconnect(c);
}

/* Whoever stays within what everybody may have. */
Test(broker_memory, who_has_little_beside_eight_who_take_all_loses_nothing)
{
	static const size_t kinds[USERS] = {1, 0, 2, 4, 0, 2, 4, 0}; /* only the first has names */
	struct child *all[USERS], *modest;
	struct takes takes[USERS];
	int64_t died = said("brokers_died");

	skip_unless_root();
	broker_write_config(CONFIG("16MiB"));
	check_ok(share_reload(client, NULL, NULL));
	for (int i = 0; i < USERS; i++) {
		takes[i] = (struct takes){&greeds[kinds[i]], (uid_t)(GREEDY + i)};
		all[i] = child_start(takes_all, &takes[i]);
		child_wait(all[i], "has all");
	}
	modest = child_start(is_modest, NULL);
	child_wait(modest, "has little");
	check(used_by(client, MODEST, "broker_memory") <= LEAST);
	broker_kill_serving();
	until(said("brokers_died") == died + 1);
	check_ok(share_upgrade(client, NULL, NULL));
	for (int i = 0; i < USERS / 2; i++)
		child_kill(all[i]);
	child_go(modest);
	child_finish(modest);
	for (int i = USERS / 2; i < USERS; i++)
		child_kill(all[i]);
	until(said("buffers") == 0);
}

/* What it has stays, whatever the configuration says of it then, and it gets no more. */
Test(broker_memory, who_has_more_than_there_is_keeps_it)
{
	struct takes takes = {&greeds[0], GREEDY};
	struct child *greedy;
	int64_t has;

	skip_unless_root();
	greedy = child_start(takes_all, &takes);
	child_wait(greedy, "has all");
	has = used_by(client, GREEDY, "broker_memory");
	broker_write_config(CONFIG("1500KiB"));
	check_ok(share_reload(client, NULL, NULL));
	check_eq(said("broker_memory_limit"), 1500 << 10);
	child_finish(child_start(is_served, &(uid_t){5002}));
	check_eq(used_by(client, GREEDY, "broker_memory"), has);
	broker_write_config(CONFIG("8MiB"));
	check_ok(share_reload(client, NULL, NULL));
	child_kill(greedy);
	until(said("buffers") == 0);
}

Test(broker_memory, the_next_broker_counts_what_the_one_before_has_counted)
{
	int64_t before, n = said("brokers_died");

	skip_unless_root();
	for (size_t i = 0; i < sizeof(greeds) / sizeof(greeds[0]); i++) {
		struct takes takes = {&greeds[i], GREEDY};
		struct child *greedy = child_start(takes_all, &takes);

		child_wait(greedy, "has all");
		before = used_by(client, GREEDY, "broker_memory");
		broker_kill_serving();
		until(said("brokers_died") == ++n);
		check_eq(used_by(client, GREEDY, "broker_memory"), before);
		child_finish(child_start(is_served, &(uid_t){5002}));
		child_kill(greedy);
		until(used_by(client, GREEDY, "broker_memory") <= 0);
	}
}

#define MOST 200000
static share_buffer *buffers[MOST];

/* As many of this size as there is memory of the broker for; their number. */
static int fill(share_pool *p, uint64_t size)
{
	int n = 0, r = 0;

	while (n < MOST && (r = share_alloc(p, size, NULL, &buffers[n])) == 0)
		n++;
	check_eq(r, SHARE_EQUOTA);
	check(n > 100);
	return n;
}

static void release_all(int n)
{
	while (n > 0)
		check_ok(share_release(buffers[--n], NULL));
}

#define LONG 60000 /* bytes of an answer: one for each connection is too much together */

/* A buffer that has so much metadata, for others to ask for. */
static share_buffer *describe_at_length(share_pool *p, const char *name, size_t size)
{
	share_buffer *b = allocate(p, 1, NULL);
	char *json = malloc(size + 16);

	snprintf(json, size + 16, "{\"a\": \"%0*d\"}", (int)size, 0);
	check_ok(share_metadata_set(b, json));
	check_ok(share_publish(b, name, NULL));
	free(json);
	return b;
}

static void hold(struct raw *r, const char *name)
{
	struct wire_message m = {.type = WIRE_LOOKUP};

	m.lookup.name = raw_text(name);
	m.lookup.mode = SHARE_RDONLY;
	raw_ask(r, &m, WIRE_GRANT);
}

/* Asks until the broker reads no more of it, as its answers are not read, or has ended it. */
static void ask_on(struct raw *r, uint64_t buffer)
{
	struct wire_message m = {.type = WIRE_METADATA_GET, .metadata_get.buffer = buffer};

	do
		m.serial = ++r->serial;
	while (raw_send(r, &m) == 0);
}

static void reads_nothing(struct child *self, void *data)
{
	static struct raw all[CONNECTIONS];

	child_become(*(uid_t *)data, 0);
	describe_at_length(open_pool(child_connect("reads nothing")), "uid/5001/long", LONG);
	for (int i = 0; i < CONNECTIONS; i++) {
		raw_open(&all[i], "reads nothing");
		hold(&all[i], "uid/5001/long");
	}
	for (int i = 0; i < CONNECTIONS; i++)
		ask_on(&all[i], all[i].m.grant.buffer);
	child_point(self, "has asked");
}

/* What nobody holds is taken away: the answers, with the connection that does not read them. */
Test(broker_memory, answers_that_nobody_reads_are_no_more_than_their_user_may_have)
{
	struct child *greedy;

	skip_unless_root();
	greedy = child_start(reads_nothing, &(uid_t){GREEDY});
	child_wait(greedy, "has asked");
	until(said("dropped") > 0);
	check(used_by(client, GREEDY, "broker_memory") > MIB);
	check(used_by(client, GREEDY, "broker_memory") <= 2 * MIB);
	child_finish(child_start(is_served, &(uid_t){5002}));
	child_kill(greedy);
	until(used_by(client, GREEDY, "broker_memory") <= 0);
}

/* A few answers may wait in any case. */
Test(broker_memory, who_has_as_much_as_it_may_have_may_read_its_answers_late)
{
	share_client *c = connect_as("full");
	share_pool *p = open_pool(c);
	static struct raw late;
	share_buffer *some;
	uint32_t first;
	int n;

	broker_write_config(CONFIG("16MiB"));
	check_ok(share_reload(client, NULL, NULL));
	some = describe_at_length(p, "some", 2000);
	raw_open(&late, "reads late");
	hold(&late, "some");
	n = fill(p, 64);
	first = late.serial;
	ask_on(&late, late.m.grant.buffer);
	until(used_of(client, "unsent") > 0);
	for (uint32_t i = first + 1; i < late.serial; i++) { /* the last one was not sent */
		check(raw_receive(&late, HARNESS_LIMIT_MS) == RAW_MESSAGE);
		check_eq(late.m.type, WIRE_METADATA);
	}
	raw_ask(&late, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&late);
	check_ok(share_release(some, NULL));
	release_all(n);
	share_pool_close(p);
	share_disconnect(c);
}

/* What it gives back may be behind its work, as that costs no more; what it keeps is refused. */
Test(broker_memory, who_has_as_much_as_it_may_have_says_of_little_what_it_works_on)
{
	struct wire_message m = {.type = WIRE_RELEASE};
	share_client *c = connect_as("full");
	share_pool *p = open_pool(c);
	static struct raw r;
	int n, said = 0;

	raw_open(&r, "works");
	m.release.buffer = raw_alloc(&r, raw_pool(&r, "default"), 1);
	n = fill(p, 64);
	broker_write_config(CONFIG("1MiB"));
	check_ok(share_reload(client, NULL, NULL));
	m.release.value = 1;
	for (unsigned slot = 1; slot < TIMELINE_SLOTS - 1; slot++) {
		m.release.timeline = WIRE_TIMELINE(r.page_id, slot);
		raw_request(&r, &m);
		said += r.m.type == WIRE_DONE;
		if (r.m.type != WIRE_DONE)
			check_error(r.m.error.error, SHARE_EQUOTA);
	}
	check(said > 0 && said <= (int)(MIB / 64 / 130));
	m.release.count = 1;
	m.release.timeline = WIRE_TIMELINE(r.page_id, TIMELINE_SLOTS - 1);
	raw_ask(&r, &m, WIRE_DONE);
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
	release_all(n);
	share_pool_close(p);
	share_disconnect(c);
}

/* Its connection would end with a release that is refused. */
Test(broker_memory, who_has_as_much_as_it_may_have_gives_back_behind_its_work)
{
	struct gate *gate = gate_new();
	share_client *c = connect_as("full");
	share_pool *p = open_pool(c);
	share_host_stream *s;
	int n;

	check_ok(share_host_stream_create(c, &s));
	n = fill(p, 64);
	/* as if others had come */
	broker_write_config(CONFIG("1500KiB"));
	check_ok(share_reload(client, NULL, NULL));
	gate_hold(gate, s);
	for (int i = 0; i < n; i++)
		check_ok(share_release(buffers[i], s));
	check_ok(share_ping(c));
	gate_open(gate);
	check_ok(share_host_stream_synchronize(s));
	until(used_of(client, "bytes") == 0);
	share_host_stream_destroy(s);
	share_pool_close(p);
	share_disconnect(c);
	gate_free(gate);
}

/* To be written to by who looks it up, who must come after the work in this stream. */
static void hand_over(struct raw *r, uint64_t buffer, unsigned slot)
{
	struct wire_message m = {.type = WIRE_PUBLISH};

	m.publish.buffer = buffer;
	m.publish.name = raw_text("handed over");
	m.publish.timeline = WIRE_TIMELINE(r->page_id, slot);
	m.publish.value = 1;
	raw_ask(r, &m, WIRE_PUBLISHED);
}

/* What the broker remembers of the work its giver pays for; who cannot, is believed when it is
 * done. The next broker pays for all that there is, so nothing was for nothing. */
Test(broker_memory, of_work_that_is_handed_over_no_more_is_remembered_than_is_paid_for)
{
	enum { FENCES = 20, BUFFERS = 4 };
	struct wire_message take = {.type = WIRE_LOOKUP};
	uint64_t given[BUFFERS];
	struct raw r;
	int taken = 0;

	broker_write_config(
	    "{\"limits\": {\"fences\": 20}, \"pools\": [{\"name\": \"default\", "
	    "\"kind\": \"host\", \"access\": [{\"user\": \"*\", \"mode\": "
	    "\"rw\"}]}]}");
	check_ok(share_reload(client, NULL, NULL));
	raw_open(&r, "hands over");
	take.lookup.name = raw_text("handed over");
	take.lookup.mode = SHARE_RDWR;
	for (int i = 0; i < BUFFERS; i++) {
		given[i] = raw_alloc(&r, raw_pool(&r, "default"), 1);
		for (unsigned slot = 1; slot <= FENCES; slot++) {
			hand_over(&r, given[i], slot);
			raw_request(&r, &take);
			fd_list_close(&r.fds);
			taken += r.m.type == WIRE_GRANT;
			if (r.m.type != WIRE_GRANT)
				check_error(r.m.error.error, SHARE_EAGAIN);
		}
	}
	check_eq(taken, FENCES);
	broker_kill_serving();
	check_eq(used_of(client, "fences"), FENCES);
	for (unsigned slot = 1; slot <= FENCES; slot++)
		timeline_signal(r.page, slot, 1);
	raw_ask(&r, &take, WIRE_GRANT);
	fd_list_close(&r.fds);
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
}

/* Whoever has too much can ask for the one thing that helps, and has lost nothing by it. */
Test(broker_memory, an_operator_who_takes_all_may_have_the_configuration_read_again)
{
	share_pool *p = open_pool(client);
	int64_t before = said("broker_memory_limit");
	int n = fill(p, 64);

	broker_write_config(CONFIG("1500KiB"));
	check_ok(share_reload(client, NULL, NULL));
	check(said("broker_memory_limit") < before);
	broker_write_config(CONFIG("8MiB"));
	check_ok(share_reload(client, NULL, NULL));
	check(said("broker_memory_limit") > before);
	check_ok(share_alloc(p, 64, NULL, &buffers[n++]));
	release_all(n);
	share_pool_close(p);
}

/* Others may have the rest by then, or there is less for all. */
Test(broker_memory, what_a_process_has_already_is_not_refused)
{
	static const char as_long[] = "{\"a\": 123}", longer[] = "{\"a\": \"this is longer\"}";
	share_client *c = connect_as("has");
	share_pool *p = open_pool(c), *again;
	share_buffer *b = describe_at_length(p, "named", 3), *same, *once_more;
	struct gate *gate = gate_new();
	share_host_stream *s;
	int n;

	check_ok(share_host_stream_create(c, &s));
	gate_hold(gate, s);
	check_ok(share_lookup(c, "named", SHARE_RDWR, 0, NULL, &same));
	check_ok(share_lookup(c, "named", SHARE_RDWR, 0, NULL, &once_more));
	check_ok(share_release(same, s));
	until(used_of(client, "fences") == 1);
	n = fill(p, 64);
	broker_write_config(CONFIG("1MiB"));
	check_ok(share_reload(client, NULL, NULL));
	check_error(share_metadata_set(b, longer), SHARE_EQUOTA);
	check_ok(share_metadata_set(b, as_long));
	check_ok(share_publish(b, "named", NULL));
	check_ok(share_lookup(c, "named", SHARE_RDONLY, 0, NULL, &same));
	check_ok(share_release(same, NULL));
	check_ok(share_pool_open(c, "default", &again));
	share_pool_close(again);
	check_ok(share_release(once_more, s));
	check_error(share_alloc(p, 64, NULL, &same), SHARE_EQUOTA);
	check_ok(share_unpublish(c, "named"));
	gate_open(gate);
	share_host_stream_destroy(s);
	check_ok(share_release(b, NULL));
	release_all(n);
	share_pool_close(p);
	share_disconnect(c);
	gate_free(gate);
}

/* The last bytes as well, which are fewer than any other thing has. */
static void take_the_rest(share_buffer *b)
{
	char text[512];
	int r = 0;

	for (int n = 1; r == 0 && n < 400; n++) {
		snprintf(text, sizeof(text), "{\"a\": \"%0*d\"}", n, 0);
		r = share_metadata_set(b, text);
	}
	check_eq(r, SHARE_EQUOTA);
}

/* What comes back when the work is done would not be enough, and the limit of time is longer than
 * the test's. */
Test(broker_memory, nobody_waits_for_memory_of_the_broker_that_cannot_come)
{
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	struct gate *gate = gate_new();
	share_client *c = connect_as("waits");
	share_pool *p = open_pool(c);
	share_buffer *b, *worked_on = allocate(p, 4096, NULL);
	share_host_stream *s;
	int n;

	options.timeout_ms = 3600 * 1000;
	check_ok(share_host_stream_create(c, &s));
	gate_hold(gate, s);
	check_ok(share_release(worked_on, s));
	n = fill(p, 8192);
	take_the_rest(buffers[0]);
	check_eq(used_of(c, "fences"), 1);
	check_eq(share_alloc_with(p, 8192, &options, NULL, &b), SHARE_EQUOTA);
	check_detail("broker_memory");
	gate_open(gate);
	check_ok(share_host_stream_synchronize(s));
	release_all(n);
	share_host_stream_destroy(s);
	share_pool_close(p);
	share_disconnect(c);
	gate_free(gate);
}

/* Nothing can be given back while each part of it is used. It is counted as long as that is so, by
 * the next broker as well. */
Test(broker_memory, what_a_user_leaves_full_of_holes_counts_for_all)
{
	enum { LEFT = 200 };
	share_pool *p;
	int n;

	if (PROCESS_IS_INSTRUMENTED)
		criterion_skip_test("a sanitizer's memory is not the broker's");
	p = open_pool(client);
	broker_write_config(CONFIG("64MiB"));
	check_ok(share_reload(client, NULL, NULL));
	n = fill(p, 64);
	for (int i = 0; i < n; i++)
		if (i % LEFT != 0)
			check_ok(share_release(buffers[i], NULL));
	until(said("leases") == (n + LEFT - 1) / LEFT);
	check(said("broker_memory") - used_of(client, "broker_memory") > MIB);
	broker_kill_serving();
	until(said("brokers_died") == 1);
	check(said("broker_memory") - used_of(client, "broker_memory") > MIB);
	for (int i = 0; i < n; i += LEFT)
		check_ok(share_release(buffers[i], NULL));
	until(said("leases") == 0);
	until(said("broker_memory") == used_of(client, "broker_memory"));
	share_pool_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Messages that nobody acknowledges                                                            */

static struct raw raw;

static void join_broadcast(struct party *p, uint32_t role, uint32_t in_flight)
{
	struct wire_message open = party_request(in_flight > 64 ? "many" : "few", role);

	open.channel_open.mode = CHANNEL_BROADCAST;
	open.channel_open.in_flight = in_flight;
	party_open(p, &raw, &open);
	party_ready(p);
}

/* The producer's word for it, and no other's. */
static void fill_ring(struct party *p, const struct party *consumers, int n)
{
	uint64_t buffer = raw_alloc(&raw, raw_pool(&raw, "default"), 4096);

	for (int i = 0; i < n; i++)
		party_admit(p, &consumers[i]);
	for (uint32_t i = 0; i < p->shape.in_flight; i++)
		party_put(p, i, buffer, 1);
}

static void acknowledges_nothing(struct child *self, void *data)
{
	static struct party producer, consumers[CHANNEL_MEMBERS_MAX], one;
	struct wire_message m = {.type = WIRE_CHANNEL_CLOSE};

	(void)data;
	child_become(GREEDY, 0);
	raw_open(&raw, "acknowledges nothing");
	join_broadcast(&one, SHARE_CONSUMER, 16); /* of others' messages */
	join_broadcast(&producer, SHARE_PRODUCER, CHANNEL_IN_FLIGHT_MAX);
	for (int i = 0; i < CHANNEL_MEMBERS_MAX; i++)
		join_broadcast(&consumers[i], SHARE_CONSUMER, CHANNEL_IN_FLIGHT_MAX);
	fill_ring(&producer, consumers, CHANNEL_MEMBERS_MAX);
	m.channel_close.member = producer.id;
	m.serial = ++raw.serial;
	check_eq(raw_send(&raw, &m), 0);
	child_point_with(self, "closes", &one.slot, sizeof(one.slot));
}

static void sends_to_who_acknowledges_nothing(struct child *self, void *data)
{
	static struct party producer;
	struct party consumer = {.slot = *(uint32_t *)data};
	struct listing l;

	(void)self;
	child_become(5002, 0);
	raw_open(&raw, "sends");
	join_broadcast(&producer, SHARE_PRODUCER, 16);
	party_sync(&producer, &l);
	check_eq(l.n, 1);
	consumer.id = l.members[0].member;
	fill_ring(&producer, &consumer, 1);
	/* and pays for what the other one keeps, who has no room for it */
	party_close(&producer);
	raw_close(&raw);
}

Test(broker_memory, what_nobody_acknowledges_is_no_more_than_its_users_share)
{
	struct child *greedy;
	uint32_t slot;

	skip_unless_root();
	broker_write_config(CONFIG("16MiB"));
	check_ok(share_reload(client, NULL, NULL));
	greedy = child_start(acknowledges_nothing, NULL);
	child_wait_with(greedy, "closes", &slot, sizeof(slot));
	until(used_by(client, GREEDY, "broker_memory") > 7 * MIB);
	child_finish(child_start(sends_to_who_acknowledges_nothing, &slot));
	check(used_by(client, GREEDY, "broker_memory") <= 8 * MIB);
	child_finish(child_start(is_served, &(uid_t){5002}));
	child_kill(greedy);
	until(used_by(client, GREEDY, "broker_memory") <= 0);
	until(said("buffers") == 0);
}

/* ------------------------------------------------------------------------------------------- */
/* What others have sent, and there is no room for                                              */

/* In a segment that its receiver has no room for: whoever comes leaves less to all, so that what
 * was too little for one thing is too little for another. */
static share_buffer *allocate_beyond_room(share_pool *p, share_client **more)
{
	share_buffer *b;

	*more = connect_as("one more");
	b = allocate(p, 64, NULL);
	memset(share_ptr(b), 'x', 64);
	return b;
}

static void is_told_twice(share_channel *ch)
{
	share_message m = SHARE_MESSAGE_INIT;

	for (int i = 0; i < 2; i++) {
		check_eq(share_recv(ch, -1, NULL, &m), SHARE_EQUOTA);
		check_detail("broker_memory");
	}
}

/* An event loop is told now and then, and does nothing in between. */
static void is_told_now_and_then(share_channel *ch)
{
	struct pollfd p = {.fd = share_channel_get_fd(ch), .events = POLLIN};
	share_message m = SHARE_MESSAGE_INIT;
	int r = SHARE_EAGAIN;

	while (r == SHARE_EAGAIN) {
		check_eq(poll(&p, 1, -1), 1);
		r = share_recv(ch, 0, NULL, &m);
	}
	for (int i = 0; i < 2; i++) {
		check_eq(r, SHARE_EQUOTA);
		while (poll(&p, 1, 0) > 0)
			check_eq(share_recv(ch, 0, NULL, &m), SHARE_EQUOTA);
		check_eq(poll(&p, 1, -1), 1);
		r = share_recv(ch, 0, NULL, &m);
	}
}

static void receives_when_it_has_room(struct child *self, void *data)
{
	void (*is_told)(share_channel * ch) = *(void (**)(share_channel *))data;
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *ch;
	share_client *c;
	share_pool *own;
	int n;

	child_become(GREEDY, 0);
	c = child_connect("has no room");
	check_ok(share_channel_open(c, "jobs", SHARE_CONSUMER, NULL, &ch));
	check_ok(take_pool(c, 0, &own));
	n = fill(own, 64);
	take_the_rest(buffers[0]);
	child_point(self, "has all");
	is_told(ch);
	release_all(n);
	check_ok(share_recv(ch, -1, NULL, &m));
	check_eq(m.error, 0);
	check_eq(m.number, 0);
	check_eq(*(const char *)share_ptr(m.buffer), 'x');
	check_ok(share_ack(&m, NULL));
	share_channel_close(ch);
	share_pool_close(own);
	share_disconnect(c);
}

/* The message lies in a segment that its consumer has yet to get. */
static void is_received_later(void (*is_told)(share_channel *ch))
{
	share_pool *p = open_pool(client);
	struct child *consumer;
	share_client *more;
	share_channel *ch;
	share_buffer *b;

	check_ok(share_channel_open(client, "jobs", SHARE_PRODUCER, NULL, &ch));
	consumer = child_start(receives_when_it_has_room, &is_told);
	child_wait(consumer, "has all");
	b = allocate_beyond_room(p, &more);
	check_ok(share_send(ch, b, NULL, 0, NULL));
	check_ok(share_release(b, NULL));
	child_go(consumer);
	child_finish(consumer);
	share_channel_close(ch);
	share_pool_close(p);
	share_disconnect(more);
}

Test(broker_memory, a_message_that_there_is_no_room_to_reach_is_received_later)
{
	skip_unless_root();
	is_received_later(is_told_twice);
}

Test(broker_memory, an_event_loop_is_not_kept_busy_by_a_message_that_there_is_no_room_for)
{
	skip_unless_root();
	is_received_later(is_told_now_and_then);
}

static void calls_without_room(struct child *self, void *data)
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_message m = SHARE_MESSAGE_INIT;
	share_service *s;
	share_client *c;
	share_pool *own;
	int n;

	(void)data;
	child_become(GREEDY, 0);
	c = child_connect("calls without room");
	options.pool = "default";
	check_ok(share_service_open(c, "service", SHARE_CALLER, &options, &s));
	check_ok(take_pool(c, 0, &own));
	n = fill(own, 64);
	take_the_rest(buffers[0]);
	child_point(self, "has all");
	check_eq(share_call(s, NULL, NULL, 0, -1, NULL, &m), SHARE_EQUOTA);
	check_detail("broker_memory");
	release_all(n);
	check_ok(share_call(s, NULL, NULL, 0, -1, NULL, &m));
	check_eq(*(const char *)share_ptr(m.buffer), 'x');
	check_ok(share_ack(&m, NULL));
	share_service_close(s);
	share_pool_close(own);
	share_disconnect(c);
}

/* The call fails, whose answer is given back at once, and the next one has the memory. */
Test(broker_memory, a_call_whose_answer_there_is_no_room_to_reach_fails)
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_pool *p = open_pool(client);
	struct child *caller;
	share_client *more;
	share_service *s;
	share_buffer *b;

	skip_unless_root();
	options.pool = "default";
	check_ok(share_service_open(client, "service", SHARE_WORKER, &options, &s));
	caller = child_start(calls_without_room, NULL);
	child_wait(caller, "has all");
	b = allocate_beyond_room(p, &more);
	child_go(caller);
	for (int i = 0; i < 2; i++) {
		share_message m = SHARE_MESSAGE_INIT;

		check_ok(share_next_request(s, -1, NULL, &m));
		check_ok(share_reply(&m, b, NULL, 0, NULL));
	}
	child_finish(caller);
	check_ok(share_release(b, NULL));
	share_service_close(s);
	share_pool_close(p);
	share_disconnect(more);
	until(said("buffers") == 0);
}

TestSuite(memory_in_pieces, .init = fixture_start, .fini = fixture_stop, .timeout = 60);

/* Memory that is still worked on is given out in pieces; a buffer is paid for as one, however many
 * of these it was or becomes. */
Test(memory_in_pieces, of_what_was_one_buffer_cost_nothing_when_they_are_back)
{
	share_client *c = connect_as("cuts");
	struct gate *gate = gate_new();
	share_buffer *whole, *pieces[4];
	share_host_stream *s;
	share_pool *p = open_pool(c);
	int64_t before;

	check_ok(share_host_stream_create(c, &s));
	check_ok(share_alloc(p, 4096, s, &whole));
	check_ok(share_release(whole, s));
	check_ok(share_host_stream_synchronize(s));
	until(used_of(c, "bytes") == 0);
	before = used_of(c, "broker_memory");
	check_ok(share_alloc(p, 1 << 20, s, &whole));
	gate_hold(gate, s);
	check_ok(share_release(whole, s));
	for (int i = 0; i < 4; i++)
		check_ok(share_alloc(p, 4096, s, &pieces[i]));
	for (int i = 0; i < 4; i++)
		check_ok(share_release(pieces[i], s));
	gate_open(gate);
	check_ok(share_host_stream_synchronize(s));
	until(used_of(c, "bytes") == 0);
	check_eq(used_of(c, "broker_memory"), before);
	share_host_stream_destroy(s);
	share_pool_close(p);
	share_disconnect(c);
	gate_free(gate);
}
