/* SPDX-License-Identifier: MIT */

/*
 * What is said to who does not get what he asked for: by name, in units that people read, with what
 * would help; and nothing of what is not his to know.
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <share/channel.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"
#include "tests/support/raw_channel.h"

#define KIB    UINT64_C(1024)
#define MIB    (1024 * KIB)
#define ALICE  4711
#define BOB    4712
#define CAMERA 4800  /* a group */
#define NOBODY 65534 /* has a name, on every system */

static const char config[] =
    "{\"create_pools\": [4711],"
    " \"pools\": ["
    "{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"4MiB\", \"segment_size\": \"1MiB\","
    " \"release_threshold\": 0, \"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]},"
    "{\"name\": \"alices\", \"kind\": \"host\", \"limit\": \"1MiB\","
    " \"access\": [{\"user\": 4711, \"mode\": \"manage\"}, {\"group\": 4800, \"mode\": \"ro\"}]}]}";

static share_client *client;
static share_pool *pool;

static void start(void)
{
	fixture_start_with(config);
	client = connect_as("test");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(words, .init = start, .fini = stop, .timeout = 60);

static void expect_text(const char *text)
{
	if (strcmp(share_error_detail(), text) != 0)
		check_failed(__FILE__, __LINE__, "the detail says\n%s\nand not\n%s",
			     share_error_detail(), text);
}

/* ------------------------------------------------------------------------------------------- */
/* An option that means nothing                                                                */

/* Of several that may be it. */
Test(words, an_option_of_a_channel_that_means_nothing_is_named_with_its_value)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	o.mode = 5;
	check_error(share_channel_open(client, "left", SHARE_PRODUCER, &o, &ch), SHARE_EINVAL);
	expect_text("mode 5 is neither SHARE_BROADCAST nor SHARE_QUEUE");
	o.mode = 0;
	o.when_full = 9;
	check_error(share_channel_open(client, "left", SHARE_PRODUCER, &o, &ch), SHARE_EINVAL);
	expect_text("when_full 9 is not an enum share_when_full");
	o.when_full = 0;
	o.from = 4;
	check_error(share_channel_open(client, "left", SHARE_CONSUMER, &o, &ch), SHARE_EINVAL);
	expect_text("from 4 is neither SHARE_FROM_NEWEST nor SHARE_FROM_OLDEST");
}

/* ------------------------------------------------------------------------------------------- */
/* A buffer that is not of the channel's pool                                                  */

Test(words, a_buffer_of_another_pool_is_told_with_what_to_do)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_channel *ch;
	share_buffer *b;
	share_pool *p;

	options.kind = "host";
	check_ok(share_pool_create(client, "other", &options, &p));
	check_ok(share_channel_open(client, "left", SHARE_PRODUCER, NULL, &ch));
	b = allocate(p, 4096, NULL);
	check_error(share_send(ch, b, NULL, 0, NULL), SHARE_EINVAL);
	expect_text(
	    "the buffer is of another pool than the channel: "
	    "allocate what goes through it there, or open a channel of the buffer's pool");
	check_ok(share_release(b, NULL));
	share_channel_close(ch);
	share_pool_close(p);
}

/* Who makes up the number of a segment does not learn which pools there are. */
static void bob_asks_for_a_segment(struct child *self, void *data)
{
	struct wire_message m = {.type = WIRE_CHANNEL_SEGMENT};
	struct party p;
	struct raw r;

	(void)data;
	child_become(BOB, 0);
	raw_open(&r, "bob");
	party_join(&p, &r, "left", SHARE_PRODUCER);
	child_exchange(self, "joined", NULL, 0, &m.channel_segment.segment, 8);
	m.channel_segment.member = p.id;
	raw_ask_error(&r, &m, SHARE_ENOENT);
	check(!memmem(r.m.error.detail.data, r.m.error.detail.size, "alices", 6));
	party_close(&p);
	raw_close(&r);
}

Test(words, a_pool_that_is_not_for_the_asker_is_not_named)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	struct child *bob;
	share_buffer *b;
	share_pool *p;

	skip_unless_root();
	check_ok(share_pool_open(client, "alices", &p));
	b = allocate(p, 4096, NULL);
	check_ok(share_buffer_get_info(b, &info));
	bob = child_start(bob_asks_for_a_segment, NULL);
	child_wait(bob, "joined");
	child_go_with(bob, &info.segment, 8);
	child_finish(bob);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Pools that are for others                                                                   */

#define IN_CONFIGURATION "in the pool's \"access\", in the broker's configuration"

static void bob_is_refused(struct child *self, void *data)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch = NULL;
	share_pool *p = NULL;
	share_client *c;

	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_error(share_pool_open(c, "alices", &p), SHARE_ENOENT);
	expect_text("there is no pool 'alices', or this user may not use it");
	options.pool = "alices";
	check_error(share_channel_open(c, "channel", SHARE_PRODUCER, &options, &ch), SHARE_ENOENT);
	expect_text("there is no pool 'alices', or this user may not use it");
	check_error(share_pool_create(c, "bobs", NULL, &p), SHARE_EACCES);
	expect_text(
	    "there is no pool 'bobs' that this user may use, and user 4712 may not create pools: "
	    "\"create_pools\" in the broker's configuration says who may");
	share_disconnect(c);
	child_point(self, "refused by the configuration");
	c = child_connect("bob");
	check_error(share_pool_open(c, "made", &p), SHARE_ENOENT);
	child_point(self, "refused by alice");
	/* it is what the log has told */
	check_ok(share_pool_open(c, "made", &p));
	check_ok(share_release(allocate(p, 1, NULL), NULL));
	share_pool_close(p);
	share_disconnect(c);
}

static void alice_makes_a_pool(struct child *self, void *data)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *c;
	share_pool *p;

	(void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	options.kind = "host";
	check_ok(share_pool_create(c, "made", &options, &p));
	child_point(self, "for herself");
	share_pool_close(p);
	options.access = "[{\"user\": 4712, \"mode\": \"rw\"}]";
	check_ok(share_pool_create(c, "made", &options, &p));
	child_point(self, "for bob as well");
	share_pool_close(p);
	share_disconnect(c);
}

/* He is not told whether it is there: the log has it, for those who can help. */
Test(words, what_would_let_in_who_may_not_use_a_pool_stands_in_the_log)
{
	struct child *alice, *bob;

	skip_unless_root();
	alice = child_start(alice_makes_a_pool, NULL);
	bob = child_start(bob_is_refused, NULL);
	child_wait(bob, "refused by the configuration");
	check_eq(broker_said("user 4712 may not use pool 'alices': that takes an entry {\"user\": "
			     "4712, \"mode\": \"ro\" or \"rw\"} " IN_CONFIGURATION),
		 1);
	child_wait(alice, "for herself");
	child_go(bob);
	child_wait(bob, "refused by alice");
	check_eq(
	    broker_said("user 4712 may not use pool 'made': that takes an entry {\"user\": 4712, "
			"\"mode\": \"ro\" or \"rw\"} in the pool's \"access\", which user 4711 "
			"gives in share_pool_options.access when creating it"),
	    1);
	child_go(alice);
	child_wait(alice, "for bob as well");
	child_go(bob);
	child_finish(bob);
	child_go(alice);
	child_finish(alice);
}

static void a_reader_wants_more(struct child *self, void *data)
{
	share_buffer *b = NULL;
	share_client *c;
	share_pool *p;

	(void)self, (void)data;
	child_become(BOB, CAMERA);
	c = child_connect("bob");
	check_ok(share_pool_open(c, "alices", &p));
	check_error(share_alloc(p, 1, NULL, &b), SHARE_EACCES);
	expect_text(
	    "user 4712 may only read in pool 'alices': that takes an entry {\"user\": 4712, "
	    "\"mode\": \"rw\"} " IN_CONFIGURATION);
	check_error(share_lookup(c, "hers", SHARE_RDWR, 0, NULL, &b), SHARE_EACCES);
	expect_text(
	    "user 4712 may only read in pool 'alices': that takes an entry {\"user\": 4712, "
	    "\"mode\": \"rw\"} " IN_CONFIGURATION);
	check_error(share_pool_destroy(c, "alices"), SHARE_EACCES);
	expect_text(
	    "user 4712 may not destroy pool 'alices': that takes an entry {\"user\": 4712, "
	    "\"mode\": \"manage\"} " IN_CONFIGURATION);
	share_pool_close(p);
	share_disconnect(c);
}

Test(words, who_may_only_read_is_told_what_takes_more)
{
	share_buffer *b;
	share_pool *p;

	skip_unless_root();
	check_ok(share_pool_open(client, "alices", &p));
	b = allocate(p, 4096, NULL);
	check_ok(share_publish(b, "hers", NULL));
	child_finish(child_start(a_reader_wants_more, NULL));
	check_ok(share_unpublish(client, "hers"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

static void one_with_a_name_is_refused(struct child *self, void *data)
{
	share_client *c;
	share_buffer *b;
	share_pool *p;

	(void)self, (void)data;
	child_become(NOBODY, 0);
	c = child_connect("nobody");
	p = open_pool(c);
	b = allocate(p, 1, NULL);
	check_error(share_publish(b, "uid/4711/left", NULL), SHARE_EACCES);
	check_detail("user nobody (65534) may not publish 'uid/4711/left'");
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(words, a_user_is_called_by_his_name)
{
	skip_unless_root();
	child_finish(child_start(one_with_a_name_is_refused, NULL));
}

/* ------------------------------------------------------------------------------------------- */
/* Pools that are full                                                                         */

#define FULL "pool 'default' has no room for 1MiB: limit 4MiB, in use "

struct holder {
	uid_t uid;
	uint64_t bytes;
};

static void holds(struct child *self, void *data)
{
	const struct holder *h = data;
	share_client *c;
	share_buffer *b;
	share_pool *p;

	if (h->uid)
		child_become(h->uid, 0);
	c = child_connect("holder");
	p = open_pool(c);
	b = allocate(p, h->bytes, NULL);
	child_point(self, "holding");
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

static void expect_full(const char *used, const char *largest, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void expect_full(const char *used, const char *largest, const char *format, ...)
{
	share_buffer *none = NULL;
	char text[512];
	va_list args;
	int n;

	check_error(share_alloc(pool, MIB, NULL, &none), SHARE_ENOMEM);
	check(none == NULL);
	n = snprintf(text, sizeof(text), FULL "%s, largest free block %s; ", used, largest);
	va_start(args, format);
	vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
	va_end(args);
	expect_text(text);
}

Test(words, a_full_pool_says_in_units_that_people_read_who_holds_most)
{
	struct holder most = {0, 3 * MIB}, less = {0, 256 * KIB};
	struct child *first = child_start(holds, &most), *second = child_start(holds, &less);
	share_buffer *b = NULL;

	child_wait(first, "holding");
	child_wait(second, "holding");
	b = allocate(pool, 512 * KIB, NULL);
	expect_full("3.8MiB", "256KiB",
		    "'holder' (pid %d) holds most, 3MiB (sharectl clients shows who else)",
		    (int)first->pid);
	child_go(first);
	child_finish(first);
	settle(client, s.buffers == 2);
	check_ok(share_release(b, NULL));
	b = allocate(pool, 3 * MIB, NULL);
	expect_full("3.2MiB", "768KiB",
		    "this process (pid %d) holds most, 3MiB (sharectl clients shows who else)",
		    (int)getpid());
	check_ok(share_release(b, NULL));
	child_go(second);
	child_finish(second);

	check_error(share_alloc(pool, 4 * MIB + 1, NULL, &b), SHARE_ENOMEM);
	expect_text(
	    "pool 'default' can never hold a buffer of 4194305 bytes (4.0MiB): at most 4MiB");
}

Test(words, what_no_process_holds_is_found_by_its_name)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_buffer *b = allocate(pool, 4 * MIB - 100 * KIB, NULL);

	options.flags = SHARE_PUBLISH_PERSISTENT;
	check_ok(share_publish_with(b, "weights", &options, NULL, NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_ping(client)); /* what was said before has been seen */
	expect_full("3.9MiB", "100KiB",
		    "no process holds any of it; names keep 3.9MiB (sharectl names shows which, "
		    "unpublish ends one)");
	check_ok(share_unpublish(client, "weights"));
}

static share_buffer *allocate_kib(uint64_t size)
{
	return allocate(pool, size * KIB, NULL);
}

/* Two tokens of one buffer keep it once. */
Test(words, what_tokens_and_names_keep_is_said_with_how_much_it_is)
{
	share_buffer *b[3] = {allocate_kib(2048), allocate_kib(1024), allocate_kib(512)};
	share_token tokens[3];

	check_ok(share_export(b[0], NULL, &tokens[0]));
	check_ok(share_export(b[0], NULL, &tokens[1]));
	check_ok(share_export(b[1], NULL, &tokens[2]));
	check_ok(share_publish(b[2], "one", NULL));
	check_ok(share_publish(b[2], "two", NULL));
	for (int i = 0; i < 3; i++)
		check_ok(share_release(b[i], NULL));
	check_ok(share_ping(client)); /* what was said before has been seen */
	expect_full("3.5MiB", "512KiB", "%s",
		    "no process holds any of it; names keep 512KiB (sharectl names shows which, "
		    "unpublish ends one); tokens keep 3MiB (sharectl tokens shows which, revoke "
		    "ends one)");
	check_ok(share_revoke(client, &tokens[0]));
	check_ok(share_unpublish(client, "one"));
	expect_full("3.5MiB", "512KiB", "%s",
		    "no process holds any of it; names keep 512KiB (sharectl names shows which, "
		    "unpublish ends one); tokens keep 3MiB (sharectl tokens shows which, revoke "
		    "ends one)");
	broker_kill_serving(); /* the next one counts again */
	check_ok(share_ping(client));
	check_ok(share_unpublish(client, "two"));
	b[0] = allocate_kib(512);
	b[1] = allocate_kib(512);
	expect_full("4MiB", "0 bytes",
		    "this process (pid %d) holds most, 1MiB (sharectl clients shows who else); "
		    "tokens keep 3MiB (sharectl tokens shows which, revoke ends one)",
		    (int)getpid());
	check_ok(share_revoke(client, &tokens[1]));
	check_ok(share_revoke(client, &tokens[2]));
	check_ok(share_release(b[0], NULL));
	check_ok(share_release(b[1], NULL));
}

Test(words, what_messages_and_work_keep_is_said_with_how_much_it_is)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_FAIL);
	share_client *other = connect_as("consumer");
	share_channel *consumer = open_channel(other, SHARE_CONSUMER, &o);
	share_channel *producer = open_channel(client, SHARE_PRODUCER, &o);
	struct gate *gate = gate_new();
	share_host_stream *stream;
	share_buffer *b = allocate_kib(512);
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_host_stream_create(client, &stream));
	check_ok(share_send(producer, b, NULL, 0, NULL));
	check_ok(share_recv(consumer, HARNESS_LIMIT_MS, NULL, &m));
	check_ok(share_release(b, NULL));
	share_channel_close(producer);
	b = allocate_kib(256);
	gate_hold(gate, stream);
	check_ok(share_release(b, stream));
	b = allocate_kib(3072);
	expect_full("3.5MiB", "256KiB",
		    "this process (pid %d) holds most, 3MiB (sharectl clients shows who else); "
		    "messages whose producers are gone keep 512KiB (sharectl channels shows who "
		    "has them, end-channel ends those that wait); work still runs on 256KiB that "
		    "was given back, and is free once it is done",
		    (int)getpid());
	gate_open(gate);
	check_ok(share_release(b, NULL));
	check_ok(share_ack(&m, NULL));
	share_channel_close(consumer);
	share_disconnect(other);
	share_host_stream_destroy(stream);
	gate_free(gate);
}

Test(words, what_the_machine_can_never_hold_is_refused_and_a_pool_of_that_size_is_a_warning)
{
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;
	share_buffer *b = NULL;
	struct sysinfo info;
	uint64_t memory;
	share_pool *p;

	check(sysinfo(&info) == 0);
	memory = ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
	o.kind = "host";
	o.limit = 4 * memory;
	check_ok(share_pool_create(client, "vast", &o, &p));
	until(broker_said("warning: pool 'vast' may have") == 1);
	check_error(share_alloc(p, 2 * memory, NULL, &b), SHARE_ENOMEM);
	check_detail("of memory and swap, and can never hold a buffer of");
	check(b == NULL);
	check_ok(share_alloc(p, MIB, NULL, &b));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

static void bob_finds_it_full(struct child *self, void *data)
{
	share_buffer *none = NULL;
	char text[256];
	share_client *c;
	share_pool *p;

	(void)self;
	child_become(BOB, 0);
	c = child_connect("bob");
	p = open_pool(c);
	check_error(share_alloc(p, MIB, NULL, &none), SHARE_ENOMEM);
	snprintf(text, sizeof(text), "; a process of another user (pid %d) holds most, 4MiB",
		 *(const int *)data);
	check_detail(text);
	check(!strstr(share_error_detail(), "holder"));
	share_pool_close(p);
	share_disconnect(c);
}

Test(words, what_others_call_their_processes_is_theirs)
{
	struct holder all = {ALICE, 4 * MIB};
	struct child *alice;
	int pid;

	skip_unless_root();
	alice = child_start(holds, &all);
	child_wait(alice, "holding");
	pid = alice->pid;
	child_finish(child_start(bob_finds_it_full, &pid));
	/* but the administrator may know */
	expect_full("4MiB", "0 bytes",
		    "'holder' (pid %d) holds most, 4MiB (sharectl clients shows who else)", pid);
	child_go(alice);
	child_finish(alice);
}
