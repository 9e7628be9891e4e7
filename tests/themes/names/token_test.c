/* SPDX-License-Identifier: MIT */

/* Tokens: the right to import one buffer, as often and as long as it was meant. */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"

static share_client *client, *other;
static share_pool *pool;
static share_buffer *buffer;

static void start(void)
{
	fixture_start();
	client = connect_as("maker");
	other = connect_as("importer");
	pool = open_pool(client);
	buffer = allocate(pool, 4096, NULL);
	memset(share_ptr(buffer), 8, 4096);
}

static void stop(void)
{
	if (!check_has_failed())
		check_ok(share_release(buffer, NULL));
	share_pool_close(pool);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(token, .init = start, .fini = stop, .timeout = 60);

static share_token export_with(uint32_t mode, uint32_t uses, uint32_t timeout_ms)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_token token;

	options.mode = mode;
	options.uses = uses;
	options.timeout_ms = timeout_ms;
	check_ok(share_export_with(buffer, &options, NULL, &token));
	return token;
}

static void expect_import(const share_token *token, int mode, int expected_mode)
{
	share_buffer *b;

	check_ok(share_import(other, token, mode, NULL, &b));
	check_eq(share_id(b), share_id(buffer));
	check_eq(share_mode(b), expected_mode);
	expect_filled(share_ptr(b), 8, 4096); /* as start() left it */
	check_ok(share_release(b, NULL));
}

static void expect_none(const share_token *token)
{
	share_buffer *b = NULL;

	check_error(share_import(other, token, 0, NULL, &b), SHARE_ENOENT);
	check(b == NULL);
}

Test(token, is_read_only_and_for_one_use_unless_said_otherwise)
{
	share_token token;

	for (int how = 0; how < 2; how++) {
		if (how == 0)
			check_ok(share_export(buffer, NULL, &token));
		else
			token = export_with(0, 0, 0);
		expect_import(&token, 0, SHARE_RDONLY);
		expect_none(&token);
		settle(client, s.tokens == 0);
	}
}

Test(token, is_good_for_so_many_uses)
{
	share_token token = export_with(SHARE_RDWR, 3, 0);

	expect_import(&token, SHARE_RDONLY, SHARE_RDONLY);
	expect_import(&token, SHARE_RDWR, SHARE_RDWR);
	expect_import(&token, 0, SHARE_RDWR);
	expect_none(&token);
}

Test(token, without_a_limit_is_good_until_it_is_revoked)
{
	share_token token = export_with(0, SHARE_USES_UNLIMITED, 0);

	for (int i = 0; i < 50; i++)
		expect_import(&token, 0, SHARE_RDONLY);
	check_ok(share_revoke(client, &token));
	expect_none(&token);
	check_error(share_revoke(client, &token), SHARE_ENOENT);
}

Test(token, ends_after_its_time)
{
	share_token token = export_with(0, SHARE_USES_UNLIMITED, 20),
		    longer = export_with(0, SHARE_USES_UNLIMITED, 600000);
	share_buffer *b;
	int r;

	until((r = share_import(other, &token, 0, NULL, &b)) != 0 || (share_release(b, NULL), 0));
	check_error(r, SHARE_ENOENT);
	expect_import(&longer, 0, SHARE_RDONLY);
	check_ok(share_revoke(client, &longer));
}

Test(token, for_reading_is_not_for_writing_and_a_failed_import_uses_nothing_up)
{
	share_token token = export_with(SHARE_RDONLY, 1, 0);
	share_buffer *b = NULL;

	check_error(share_import(other, &token, SHARE_RDWR, NULL, &b), SHARE_EACCES);
	check_error(share_import(other, &token, 2, NULL, &b), SHARE_EINVAL);
	check(b == NULL);
	expect_import(&token, SHARE_RDONLY, SHARE_RDONLY);
}

Test(token, of_a_read_only_buffer_is_for_reading)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_token token = export_with(0, 1, 0), second;
	share_buffer *b;

	check_ok(share_import(other, &token, 0, NULL, &b));
	options.mode = SHARE_RDWR;
	check_error(share_export_with(b, &options, NULL, &second), SHARE_EACCES);
	check_ok(share_export(b, NULL, &second));
	check_ok(share_release(b, NULL));
	check_ok(share_import(client, &second, 0, NULL, &b));
	/* who has it for writing as well, by another handle */
	check_error(share_export_with(b, &options, NULL, &token), SHARE_EACCES);
	check_ok(share_release(b, NULL));
}

Test(token, holds_a_reference)
{
	share_buffer *b = allocate(pool, 100, NULL), *v;
	uint64_t id = share_id(b);
	share_token token;

	check_ok(share_export(b, NULL, &token));
	check_ok(share_release(b, NULL));
	settle(client, s.buffers == 2 && s.leases == 1 && s.tokens == 1);
	check_ok(share_import(other, &token, 0, NULL, &v));
	check_eq(share_id(v), id);
	check_ok(share_release(v, NULL));
	settle(client, s.buffers == 1);
}

Test(token, ends_with_the_connection_that_made_it)
{
	share_client *c = connect_as("leaving one");
	share_buffer *b;
	share_token token = export_with(0, 1, 0), second;

	check_ok(share_import(c, &token, 0, NULL, &b));
	check_ok(share_export(b, NULL, &second));
	check_ok(share_release(b, NULL));
	share_disconnect(c);
	expect_none(&second);
}

Test(token, is_revoked_by_any_client_of_its_user)
{
	share_token token = export_with(0, 1, 0);

	check_ok(share_revoke(other, &token));
	expect_none(&token);
	check_error(share_revoke(client, &token), SHARE_ENOENT);
}

Test(token, cannot_be_guessed_from_one_that_is_nearly_right)
{
	share_token token = export_with(0, 1, 0), wrong;

	for (int i = 0; i < 256; i++) {
		wrong = token;
		wrong.bytes[i / 8] ^= (unsigned char)(1 << i % 8);
		expect_none(&wrong);
	}
	memset(&wrong, 0, sizeof(wrong));
	expect_none(&wrong);
	expect_import(&token, 0, SHARE_RDONLY);
}

Test(token, of_each_export_is_another)
{
	share_token tokens[20];

	for (int i = 0; i < 20; i++) {
		tokens[i] = export_with(0, 1, 0);
		for (int k = 0; k < i; k++)
			check(memcmp(&tokens[i], &tokens[k], sizeof(share_token)) != 0);
	}
	for (int i = 0; i < 20; i++)
		check_ok(share_revoke(client, &tokens[i]));
}

Test(token, with_a_mode_there_is_not_is_refused)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_token token;

	options.mode = 2;
	check_error(share_export_with(buffer, &options, NULL, &token), SHARE_EINVAL);
	options.mode = 0;
	options.size = 3;
	check_error(share_export_with(buffer, &options, NULL, &token), SHARE_EINVAL);
	check_error(share_export(buffer, NULL, NULL), SHARE_EINVAL);
	check_error(share_import(other, NULL, 0, NULL, &(share_buffer *){NULL}), SHARE_EINVAL);
}
