/* SPDX-License-Identifier: MIT */

/*
 * Tokens whose makers are gone: those with a time limit stay, as far as there is room and as long
 * as their user may use the pool; and who comes too late is told why, as far as that may be known.
 * The makers are processes of their own.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/admin.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/harness/memory.h"
#include "tests/harness/raw.h"

#define LIMIT_MS 600000
#define ALICE    4711
#define CAMERA   4800 /* a group */

/* An eighth of the pool is eight blocks. */
#define BLOCK 16384u
#define ROOM  8u
#define CONFIG(access)                                                                          \
	"{\"limits\": {\"tokens\": 40}, \"pools\": ["                                           \
	"{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"1MiB\", \"access\": ["        \
	"{\"user\": \"*\", \"mode\": \"rw\"}]},"                                                \
	"{\"name\": \"cameras\", \"kind\": \"host\", \"limit\": \"1MiB\", \"access\": [" access \
	"{\"user\": 0, \"mode\": \"rw\"}]}]}"

static share_client *client;

static void start(void)
{
	setenv("SHARE_MAGAZINES", "0", 1);
	fixture_start_with(CONFIG("{\"group\": 4800, \"mode\": \"rw\"},"));
	client = connect_as("importer");
}

static void stop(void)
{
	share_disconnect(client);
	fixture_stop();
}

TestSuite(token_left, .init = start, .fini = stop, .timeout = 60);

static share_token export_for(share_buffer *b, uint32_t uses, uint32_t timeout_ms)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_token token;

	options.uses = uses;
	options.timeout_ms = timeout_ms;
	check_ok(share_export_with(b, &options, NULL, &token));
	return token;
}

static void expect_import(const share_token *token, int value)
{
	share_buffer *b;

	check_ok(share_import(client, token, 0, NULL, &b));
	expect_filled(share_ptr(b), value, share_size(b));
	check_ok(share_release(b, NULL));
}

static void expect_none(const share_token *token, const char *why)
{
	share_buffer *b;

	check_error(share_import(client, token, 0, NULL, &b), SHARE_ENOENT);
	check_detail(why);
}

/* ------------------------------------------------------------------------------------------- */

struct making {
	uint32_t n, uses, timeout_ms; /* tokens */
	size_t size;                  /* of a buffer for each */
	bool of_one;                  /* buffer, all of them */
	bool again;                   /* it has made as many before, which were revoked */
	bool says_goodbye;
};

static void make_and_revoke(share_client *c, share_pool *p, uint32_t n)
{
	share_buffer *b = allocate(p, 4096, NULL);
	share_token tokens[ROOM + 8];

	for (uint32_t i = 0; i < n; i++)
		tokens[i] = export_for(b, 1, LIMIT_MS);
	for (uint32_t i = 0; i < n; i++)
		check_ok(share_revoke(c, &tokens[i]));
	check_ok(share_release(b, NULL));
}

static void makes(struct child *self, void *data)
{
	const struct making *m = data;
	share_client *c = child_connect("maker");
	share_pool *p = open_pool(c);
	share_token tokens[ROOM + 8];
	share_buffer *b = NULL;

	if (m->again)
		make_and_revoke(c, p, m->n);
	for (uint32_t i = 0; i < m->n; i++) {
		if (!m->of_one || i == 0) {
			b = allocate(p, m->size, NULL);
			buffer_fill(b, 10 + (int)i);
		}
		tokens[i] = export_for(b, m->uses, m->timeout_ms);
	}
	child_point_with(self, "made", tokens, m->n * sizeof(tokens[0]));
	if (!m->says_goodbye)
		return;
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* And is dead when this returns. */
static void make(const struct making *m, share_token *tokens)
{
	struct child *child = child_start(makes, (void *)(uintptr_t)m);

	child_wait_with(child, "made", tokens, m->n * sizeof(*tokens));
	if (m->says_goodbye) {
		child_go(child);
		child_finish(child);
	} else {
		child_kill(child);
	}
	settle(client, s.clients == 1 && s.leases == 0);
}

static share_token make_one(uint32_t uses, uint32_t timeout_ms, bool says_goodbye)
{
	const struct making m = {.n = 1,
				 .uses = uses,
				 .timeout_ms = timeout_ms,
				 .size = 4096,
				 .says_goodbye = says_goodbye};
	share_token token;

	make(&m, &token);
	return token;
}

Test(token_left, with_a_time_limit_it_outlives_its_maker)
{
	for (int how = 0; how < 2; how++) {
		share_token token = make_one(2, LIMIT_MS, how == 0);

		settle(client, s.tokens == 1 && s.buffers == 1);
		expect_import(&token, 10);
		settle(client, s.tokens == 1 && s.buffers == 1);
		expect_import(&token, 10);
		settle(client, s.tokens == 0 && s.buffers == 0);
		expect_none(&token, "it was used up");
	}
}

Test(token_left, without_one_it_ends_with_its_maker)
{
	share_token token = make_one(1, 0, false);

	settle(client, s.tokens == 0 && s.buffers == 0);
	expect_none(&token, "its maker is gone, and it had no time limit");
}

Test(token_left, reports_say_whose_it_was_and_it_stays_for_an_hour)
{
	share_token token = make_one(1, 24 * 3600 * 1000, false);
	json_t *rows = report(client, "tokens");
	const json_t *row = json_array_get(rows, 0);

	check(json_is_null(json_object_get(row, "client")));
	check(strcmp(json_string_value(json_object_get(row, "label")), "maker") == 0);
	check_eq(number_of(row, "uid"), getuid());
	check(number_of(row, "pid") > 0);
	check(number_of(row, "left_ms") <= 3600 * 1000);
	json_decref(rows);
	check_ok(share_revoke(client, &token));
	expect_none(&token, "it was revoked");
}

Test(token_left, it_ends_in_its_time)
{
	share_token token = make_one(1, 200, false);

	settle(client, s.tokens == 0 && s.buffers == 0);
	expect_none(&token, "its time limit has passed");
}

Test(token_left, it_ends_with_a_maker_that_is_dropped)
{
	struct making m = {.n = 1, .uses = 1, .timeout_ms = LIMIT_MS, .size = 4096};
	struct child *child = child_start(makes, &m);
	share_token token;
	json_t *rows;

	child_wait_with(child, "made", &token, sizeof(token));
	rows = report(client, "clients");
	check_ok(share_drop_client(
	    client, (uint64_t)number_of(row_named(rows, "label", "maker"), "client")));
	json_decref(rows);
	settle(client, s.quarantined == 1 && s.tokens == 0);
	expect_none(&token, "its maker was disconnected by an administrator");
	child_kill(child);
	settle(client, s.clients == 1 && s.buffers == 0);
}

static void breaks_the_protocol(struct child *self, void *data)
{
	struct wire_message m = {.type = WIRE_EXPORT};
	share_token token;
	struct raw r;

	(void)data;
	raw_open(&r, "maker");
	m.export.buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	m.export.mode = SHARE_RDONLY;
	m.export.uses = 1;
	m.export.timeout = LIMIT_MS;
	raw_ask(&r, &m, WIRE_TOKEN);
	memcpy(token.bytes, r.m.token.token.data, sizeof(token.bytes));
	check(raw_send_bytes(&r, "nonsense", 8, NULL, 0) >= 0);
	child_point_with(self, "made", &token, sizeof(token));
}

Test(token_left, it_ends_with_a_maker_that_breaks_the_protocol)
{
	struct child *child = child_start(breaks_the_protocol, NULL);
	share_token token;

	child_wait_with(child, "made", &token, sizeof(token));
	settle(client, s.quarantined == 1 && s.tokens == 0);
	expect_none(&token, "its maker was disconnected by an administrator or for breaking");
	child_kill(child);
}

/* ------------------------------------------------------------------------------------------- */
/* What they may keep                                                                          */

Test(token_left, an_eighth_of_a_pool_is_kept_and_the_oldest_end_first)
{
	const struct making m = {.n = ROOM + 4, .uses = 1, .timeout_ms = LIMIT_MS, .size = BLOCK};
	share_token tokens[ROOM + 8], more;

	make(&m, tokens);
	settle(client, s.tokens == (int64_t)ROOM && s.buffers == (int64_t)ROOM);
	for (uint32_t i = 0; i < 4; i++)
		expect_none(&tokens[i], "tokens without makers keep at most an eighth of a pool");
	expect_import(&tokens[ROOM + 3], 10 + ROOM + 3);
	/* there is room for one, and then the oldest ends */
	more = make_one(1, LIMIT_MS, false);
	settle(client, s.tokens == (int64_t)ROOM);
	expect_import(&tokens[4], 14);
	expect_import(&more, 10);
	for (uint32_t i = 5; i < ROOM + 3; i++)
		expect_import(&tokens[i], 10 + (int)i);
	settle(client, s.tokens == 0 && s.buffers == 0);
}

/* Whatever the order of their records is: the ones before have left their places in another one. */
Test(token_left, the_oldest_is_the_same_after_a_restart)
{
	const struct making m = {
	    .n = ROOM, .uses = 1, .timeout_ms = LIMIT_MS, .size = BLOCK, .again = true};
	const struct making one = {.n = 1, .uses = 1, .timeout_ms = LIMIT_MS, .size = BLOCK};
	share_token tokens[ROOM + 8], more[2];

	make(&m, tokens);
	settle(client, s.tokens == (int64_t)ROOM);
	broker_kill_serving();
	for (int i = 0; i < 2; i++) {
		make(&one, &more[i]);
		settle(client, s.tokens == (int64_t)ROOM);
		expect_none(&tokens[i], "keep at most an eighth of a pool");
	}
	for (uint32_t i = 2; i < ROOM; i++)
		expect_import(&tokens[i], 10 + (int)i);
	for (int i = 0; i < 2; i++)
		expect_import(&more[i], 10);
}

Test(token_left, what_is_larger_than_that_ends_with_its_maker)
{
	const struct making m = {
	    .n = 1, .uses = 1, .timeout_ms = LIMIT_MS, .size = (ROOM + 1) * BLOCK};
	share_token small = make_one(1, LIMIT_MS, false), token;

	make(&m, &token);
	settle(client, s.tokens == 1);
	expect_none(&token, "tokens without makers keep at most an eighth of a pool");
	expect_import(&small, 10);
}

Test(token_left, a_buffer_counts_once_however_many_tokens_lead_to_it)
{
	const struct making m = {
	    .n = ROOM + 4, .uses = 1, .timeout_ms = LIMIT_MS, .size = ROOM * BLOCK, .of_one = true};
	share_token tokens[ROOM + 8];

	make(&m, tokens);
	settle(client, s.tokens == (int64_t)m.n && s.buffers == 1);
	for (uint32_t i = 0; i < m.n; i++)
		expect_import(&tokens[i], 10);
	settle(client, s.tokens == 0 && s.buffers == 0);
}

Test(token_left, makers_that_crash_again_and_again_are_charged_for_what_they_leave)
{
	const struct making m = {
	    .n = 10, .uses = 1, .timeout_ms = LIMIT_MS, .size = 256, .of_one = true};
	share_token tokens[4][ROOM + 8], none;
	share_pool *p = open_pool(client);
	share_buffer *b = allocate(p, 256, NULL);

	for (int i = 0; i < 4; i++) {
		struct child *child = child_start(makes, (void *)(uintptr_t)&m);

		child_wait_with(child, "made", tokens[i], m.n * sizeof(none));
		child_kill(child);
		settle(client, s.clients == 1 && s.tokens == 10 * (i + 1));
	}
	check_error(share_export(b, NULL, &none), SHARE_EQUOTA);
	check_ok(share_revoke(client, &tokens[0][0]));
	check_ok(share_export(b, NULL, &none));
	check_ok(share_revoke(client, &none));
	for (uint32_t i = 1; i < 4 * m.n; i++)
		check_ok(share_revoke(client, &tokens[i / m.n][i % m.n]));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Whose it is                                                                                 */

static void alice_makes(struct child *self, void *data)
{
	share_client *c;
	share_pool *p;
	share_buffer *b;
	share_token token[2];

	(void)data;
	child_become(ALICE, CAMERA);
	c = child_connect("maker");
	check_ok(share_pool_open(c, "cameras", &p));
	b = allocate(p, 4096, NULL);
	buffer_fill(b, 10);
	token[0] = export_for(b, 1, LIMIT_MS);
	token[1] = export_for(b, 1, LIMIT_MS);
	child_point_with(self, "made", token, sizeof(token));
}

Test(token_left, it_goes_on_by_its_users_group_until_that_may_not_use_the_pool)
{
	struct child *child;
	share_token token[2];

	skip_unless_root();
	child = child_start(alice_makes, NULL);
	child_wait_with(child, "made", token, sizeof(token));
	child_kill(child);
	settle(client, s.clients == 1 && s.tokens == 2);
	expect_import(&token[0], 10);
	broker_write_config(CONFIG(""));
	check_ok(share_reload(client, NULL, NULL));
	expect_none(&token[1], "its maker is gone, whose user may not use its pool any more");
	settle(client, s.tokens == 0 && s.buffers == 0);
}

static void alice_comes_late(struct child *self, void *data)
{
	share_client *c;
	share_buffer *b;

	(void)self;
	child_become(ALICE, 0); /* whoever is not in the group */
	c = child_connect("stranger");
	check_error(share_import(c, data, 0, NULL, &b), SHARE_ENOENT);
	check_detail("it was used up, revoked, has timed out, its maker is gone, or this user may");
	share_disconnect(c);
}

Test(token_left, who_may_not_use_its_pool_is_not_told_how_it_ended)
{
	share_pool *p;
	share_buffer *b;
	share_token token;

	skip_unless_root();
	check_ok(share_pool_open(client, "cameras", &p));
	b = allocate(p, 4096, NULL);
	token = export_for(b, 1, LIMIT_MS);
	check_ok(share_revoke(client, &token));
	expect_none(&token, "it was revoked");
	child_finish(child_start(alice_comes_late, &token));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}
