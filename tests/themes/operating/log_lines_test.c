/* SPDX-License-Identifier: MIT */

/*
 * What the broker's log says of clients, and that it says it once: how one ended that said no
 * goodbye, what it held, and who was refused memory. That such lines come once a minute is
 * log_test's.
 */

#include <stdio.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

static const char config[] =
    "{\"limits\": {\"names\": 1}, \"pools\": [{\"name\": \"default\", \"kind\": \"host\", "
    "\"limit\": "
    "\"1MiB\", \"segment_size\": \"1MiB\"}]}";

static share_client *witness;

static void start(void)
{
	fixture_start_with(config);
	witness = connect_as("witness");
}

static void stop(void)
{
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(log_lines, .init = start, .fini = stop, .timeout = 60);

enum { HOLDS_A_NAME = 1 << 0, HOLDS_A_TOKEN = 1 << 1, HANGS_UP = 1 << 2 };

static void holds(struct child *self, void *data)
{
	struct wire_message publish = {.type = WIRE_PUBLISH}, export = {.type = WIRE_EXPORT};
	int what = *(int *)data;
	struct raw r;

	raw_open(&r, "holding one");
	publish.publish.buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	publish.publish.name = raw_text("name");
	export.export.buffer = publish.publish.buffer;
	export.export.mode = SHARE_RDONLY;
	if (what & HOLDS_A_NAME)
		raw_ask(&r, &publish, WIRE_PUBLISHED);
	if (what & HOLDS_A_TOKEN)
		raw_ask(&r, &export, WIRE_TOKEN);
	child_point(self, "holding");
	if (what & HANGS_UP)
		raw_hang_up(&r);
	child_point(self, "done");
}

static struct child *start_holding(int what)
{
	struct child *child = child_start(holds, &what);

	child_wait(child, "holding");
	return child;
}

/* Its connection is seen to end before its death, or not: that is the kernel's to choose. */
Test(log_lines, who_dies_has_one_line_with_what_it_held)
{
	for (int i = 1; i <= 20; i++) {
		child_kill(start_holding(HOLDS_A_NAME | HOLDS_A_TOKEN));
		settle(witness, s.clients == 1);
		until(broker_said("died holding 1 lease (4KiB), 1 name, 1 token") == i);
	}
	check_eq(broker_said("'holding one'"), 20);
}

Test(log_lines, who_says_goodbye_has_none)
{
	share_client *c = connect_as("polite one");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 4096, NULL);

	check_ok(share_publish(b, "name", NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
	settle(witness, s.clients == 1);
	check_eq(broker_said("'polite one'"), 0);
}

Test(log_lines, quarantine_has_a_line_when_it_begins_and_one_when_it_ends)
{
	static const char begins[] =
	    "is quarantined: its connection has ended, its process lives "
	    "and keeps 1 lease (4KiB)",
			  ends[] =
			      "has left quarantine: its process has ended, holding 1 lease (4KiB)";
	struct child *child = start_holding(HOLDS_A_NAME | HANGS_UP);

	child_go(child);
	child_wait(child, "done");
	settle(witness, s.quarantined == 1);
	until(broker_said(begins) == 1);
	child_kill(child);
	until(broker_said(ends) == 1);
	settle(witness, s.clients == 1);
	check_eq(broker_said("'holding one'"), 2);
}

Test(log_lines, who_breaks_the_protocol_is_named)
{
	char who[128];
	struct raw r;

	raw_open(&r, "rude one");
	check_eq(raw_send_bytes(&r, "nonsense", 8, NULL, 0), 0);
	check_error(raw_farewell(&r), SHARE_EPROTO);
	raw_close(&r);
	snprintf(who, sizeof(who), "(pid %d, uid %u, 'rude one') broke the protocol", getpid(),
		 (unsigned)getuid());
	until(broker_said(who) == 1);
	settle(witness, s.clients == 1);
	check_eq(broker_said("'rude one'"), 1);
}

Test(log_lines, a_full_pool_says_who_got_nothing)
{
	share_client *c = connect_as("greedy one");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 1 << 20, NULL), *none = NULL;

	for (int i = 0; i < 3; i++)
		check_error(share_alloc(p, 4096, NULL, &none), SHARE_ENOMEM);
	check_eq(broker_said("'greedy one') gets no memory: pool 'default' "), 1);
	check_eq(broker_said("gets no memory"), 1);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* The library asks for a larger block first, which it could use again for other sizes. */
Test(log_lines, who_gets_memory_in_the_end_was_not_refused)
{
	share_alloc_options exactly = SHARE_ALLOC_OPTIONS_INIT;
	share_client *c = connect_as("modest one");
	share_pool *p = open_pool(c);
	share_buffer *large, *rest;

	exactly.alignment = 4096; /* no block that is kept has that */
	check_ok(share_alloc_with(p, (1 << 20) - 4608, &exactly, NULL, &large));
	rest = allocate(p, 4608, NULL);
	check_eq(broker_said("gets no memory"), 0);
	check_ok(share_release(large, NULL));
	check_ok(share_release(rest, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(log_lines, a_refused_charge_has_the_words_of_the_error)
{
	share_client *c = connect_as("famous one");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 1, NULL);

	check_ok(share_publish(b, "a", NULL));
	for (int i = 0; i < 3; i++)
		check_error(share_publish(b, "b", NULL), SHARE_EQUOTA);
	check_detail("reached its limit of 1 name");
	check_eq(broker_said(share_error_detail()), 1);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(log_lines, what_another_one_ends_is_said)
{
	share_client *c = connect_as("publisher");
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *pool;
	share_buffer *b;

	options.kind = "host";
	check_ok(share_pool_create(c, "short-lived", &options, &pool));
	b = allocate(pool, 1, NULL);
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_unpublish(c, "name"));
	check_eq(broker_said("is unpublished"), 0);
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_unpublish(witness, "name"));
	check_eq(broker_said("name 'name' is unpublished, as uid "), 1);
	check_ok(share_release(b, NULL));
	check_ok(share_pool_destroy(witness, "short-lived"));
	check_eq(broker_said("pool 'short-lived' is destroyed, as uid "), 1);
	share_pool_close(pool);
	share_disconnect(c);
}
