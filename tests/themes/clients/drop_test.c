/* SPDX-License-Identifier: MIT */

/*
 * What an operator can end: a client's connection, but not its hold on memory, which only the end
 * of its process proves to be over; and a token, by a number that is not the secret. Who may is
 * other_user_test's.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/admin.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

static share_client *client;

static void start(void)
{
	fixture_start();
	client = connect_as("operator");
}

static void stop(void)
{
	share_disconnect(client);
	fixture_stop();
}

TestSuite(drop, .init = start, .fini = stop, .timeout = 60);

static uint64_t client_named(const char *label)
{
	json_t *rows = report(client, "clients");
	const json_t *row = row_named(rows, "label", label);
	uint64_t id = row ? (uint64_t)number_of(row, "client") : 0;

	json_decref(rows);
	check(id != 0);
	return id;
}

/* The only token there is, as reports have it. */
static uint64_t only_token(void)
{
	json_t *rows = report(client, "tokens");
	uint64_t id;

	check_eq(json_array_size(rows), 1);
	id = strtoull(json_string_value(json_object_get(json_array_get(rows, 0), "token")), NULL,
		      16);
	json_decref(rows);
	return id;
}

/* ------------------------------------------------------------------------------------------- */

static void is_dropped(struct child *self, void *data)
{
	share_client *c = child_connect("dropped one");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 4096, NULL), *none = NULL;
	share_token token;

	(void)data;
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_export(b, NULL, &token));
	child_point(self, "holding");
	check_error(share_ping(c), SHARE_EDISCONNECTED);
	check_detail("has dropped this client");
	check_error(share_alloc(p, 1 << 20, NULL, &none), SHARE_EDISCONNECTED);
	/* this it can, as nobody takes away what it may be using */
	memset(share_ptr(b), 1, share_size(b));
	child_point(self, "has lost it");
	check_error(share_release(b, NULL), SHARE_EDISCONNECTED);
	share_pool_close(p);
	share_disconnect(c);
	child_point(self, "lives");
}

Test(drop, ends_a_connection_and_leaves_the_memory_until_the_process_ends)
{
	struct child *child = child_start(is_dropped, NULL);
	struct status now;
	json_t *rows;
	uint64_t id;

	child_wait(child, "holding");
	id = client_named("dropped one");
	rows = report(client, "clients");
	check_eq(number_of(row_where(rows, "client", (int64_t)id), "leases"), 1);
	check_eq(number_of(row_where(rows, "client", (int64_t)id), "bytes"), 4096);
	check_eq(number_of(row_where(rows, "client", (int64_t)id), "names"), 1);
	check_eq(number_of(row_where(rows, "client", (int64_t)id), "tokens"), 1);
	check_eq(number_of(row_where(rows, "client", (int64_t)id), "memberships"), 0);
	json_decref(rows);
	check_ok(share_drop_client(client, id));
	settle(client, s.clients == 2 && s.quarantined == 1 && s.names == 0 && s.tokens == 0 &&
			   s.leases == 1 && s.buffers == 1);
	check_error(share_drop_client(client, id), SHARE_ESTALE);
	child_go(child);
	child_wait(child, "has lost it");
	child_go(child);
	child_wait(child, "lives");
	status_read(client, &now);
	check_eq(now.quarantined, 1);
	check_eq(now.leases, 1);
	check_eq(now.dropped, 0); /* it has broken nothing */
	child_kill(child);
	settle(client, s.clients == 1 && s.leases == 0 && s.buffers == 0);
	check_error(share_drop_client(client, id), SHARE_ENOENT);
	check_eq(broker_said("'dropped one') is dropped, as uid "), 1);
}

Test(drop, of_a_client_with_nothing_is_its_end)
{
	struct raw r;

	raw_open(&r, "poor one");
	check_ok(share_drop_client(client, client_named("poor one")));
	check_error(raw_farewell(&r), SHARE_EDISCONNECTED);
	settle(client, s.clients == 1);
	raw_close(&r);
}

Test(drop, of_one_that_has_not_said_hello_is_its_end)
{
	struct raw r;
	json_t *rows;

	raw_connect(&r);
	settle(client, s.clients == 2);
	rows = report(client, "clients");
	check_ok(share_drop_client(
	    client, (uint64_t)number_of(row_named(rows, "state", "connected"), "client")));
	json_decref(rows);
	check_error(raw_farewell(&r), SHARE_EDISCONNECTED);
	settle(client, s.clients == 1);
	raw_close(&r);
}

static void waits_for_a_name(struct child *self, void *data)
{
	share_client *c = child_connect("waiting one");
	share_buffer *none = NULL;

	(void)data;
	child_point(self, "waiting");
	check_error(share_lookup(c, "never", SHARE_RDONLY, -1, NULL, &none), SHARE_EDISCONNECTED);
	share_disconnect(c);
}

Test(drop, ends_what_a_client_waits_for)
{
	struct child *child = child_start(waits_for_a_name, NULL);

	child_wait(child, "waiting");
	child_go(child);
	until(used_of(client, "waits") == 1);
	check_ok(share_drop_client(client, client_named("waiting one")));
	child_finish(child);
	settle(client, s.clients == 1);
}

Test(drop, is_for_others_and_for_who_is_there)
{
	check_error(share_drop_client(client, client_named("operator")), SHARE_EINVAL);
	check_error(share_drop_client(client, 0), SHARE_ENOENT);
	check_error(share_drop_client(client, UINT64_MAX), SHARE_ENOENT);
	check_detail("there is no client 18446744073709551615 of yours");
	check_error(share_drop_client(NULL, 1), SHARE_EINVAL);
	check_ok(share_ping(client));
}

Test(drop, of_what_the_broker_does_not_know_is_refused)
{
	struct wire_message m = {.type = WIRE_DROP};
	struct raw r;

	raw_open(&r, "raw");
	m.drop.id = 1;
	raw_ask_error(&r, &m, SHARE_EINVAL);
	m.drop.what = WIRE_DROP_MESSAGES + 1;
	raw_ask_error(&r, &m, SHARE_EINVAL);
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
}

/* ------------------------------------------------------------------------------------------- */

Test(drop, a_token_is_revoked_by_a_number_that_is_no_secret)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_pool *p = open_pool(client);
	share_buffer *b = allocate(p, 4096, NULL), *none = NULL;
	share_token first, second;
	const json_t *row;
	uint64_t id;
	json_t *rows;

	options.uses = 3;
	options.timeout_ms = 3600000;
	check_ok(share_export_with(b, &options, NULL, &first));
	rows = report(client, "tokens");
	row = json_array_get(rows, 0);
	check_eq(number_of(row, "uses"), 3);
	check(number_of(row, "left_ms") > 3500000 && number_of(row, "left_ms") <= 3600000);
	check_eq(number_of(row, "size"), 4096);
	check_eq(number_of(row, "pid"), getpid());
	check_eq(strtoull(json_string_value(json_object_get(row, "buffer")), NULL, 16),
		 share_id(b));
	json_decref(rows);
	id = only_token();
	check_ok(share_revoke_id(client, id));
	check_error(share_import(client, &first, 0, NULL, &none), SHARE_ENOENT);
	check_error(share_revoke_id(client, id), SHARE_ENOENT);
	/* the number of one that is gone is not the number of the next */
	check_ok(share_export(b, NULL, &second));
	check(only_token() != id);
	check_error(share_revoke_id(client, id), SHARE_ENOENT);
	check_error(share_revoke_id(client, 0), SHARE_ENOENT);
	check_error(share_revoke_id(client, UINT64_MAX), SHARE_ENOENT);
	check_ok(share_revoke_id(client, only_token()));
	check_error(share_revoke_id(NULL, 1), SHARE_EINVAL);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

Test(drop, tokens_of_any_number_are_listed_once_each)
{
	share_pool *p = open_pool(client);
	share_buffer *b = allocate(p, 4096, NULL);
	static share_token tokens[1000];
	uint64_t before = 0, id;
	json_t *rows, *row;
	size_t i;

	for (i = 0; i < 1000; i++)
		check_ok(share_export(b, NULL, &tokens[i]));
	for (i = 0; i < 1000; i += 3)
		check_ok(share_revoke(client, &tokens[i]));
	rows = report(client, "tokens");
	check_eq(json_array_size(rows), 1000 - 334);
	json_array_foreach (rows, i, row) {
		id = strtoull(json_string_value(json_object_get(row, "token")), NULL, 16);
		check(id > before);
		before = id;
		check_ok(share_revoke_id(client, id));
	}
	json_decref(rows);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}
