/* SPDX-License-Identifier: MIT */

/* Metadata: JSON that belongs to a buffer, for all who hold it. */

#include <stdlib.h>
#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

static share_client *client;
static share_pool *pool;
static share_buffer *buffer;

static void start(void)
{
	fixture_start();
	client = connect_as("test");
	pool = open_pool(client);
	buffer = allocate(pool, 4096, NULL);
}

static void stop(void)
{
	if (!check_has_failed())
		check_ok(share_release(buffer, NULL));
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(metadata, .init = start, .fini = stop, .timeout = 60);

static void expect_metadata(share_buffer *b, const char *json)
{
	char *text;

	check_ok(share_metadata_get(b, &text));
	if (strcmp(text, json) != 0)
		check_failed(__FILE__, __LINE__, "the metadata is %.100s, not %.100s", text, json);
	free(text);
}

static void expect_none(share_buffer *b)
{
	char *text = NULL;

	check_error(share_metadata_get(b, &text), SHARE_ENOENT);
	check(text == NULL);
}

Test(metadata, is_what_was_set_last)
{
	expect_none(buffer);
	check_ok(share_metadata_set(buffer, "{\"a\": [1, 2.5, null, true, \"\xe2\x82\xac\"]}"));
	expect_metadata(buffer, "{\"a\": [1, 2.5, null, true, \"\xe2\x82\xac\"]}");
	check_ok(share_metadata_set(buffer, " [] "));
	expect_metadata(buffer, " [] ");
	check_ok(share_metadata_set(buffer, NULL));
	expect_none(buffer);
	check_ok(share_metadata_set(buffer, NULL));
}

static void reads_and_writes(struct child *self, void *data)
{
	share_client *c = child_connect("other process");
	share_buffer *b;

	(void)self, (void)data;
	check_ok(share_lookup(c, "name", SHARE_RDWR, 0, NULL, &b));
	expect_metadata(b, "{\"from\": \"test\"}");
	check_ok(share_metadata_set(b, "{\"from\": \"other\"}"));
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

Test(metadata, is_shared_by_all_holders)
{
	check_ok(share_metadata_set(buffer, "{\"from\": \"test\"}"));
	check_ok(share_publish(buffer, "name", NULL));
	child_finish(child_start(reads_and_writes, NULL));
	expect_metadata(buffer, "{\"from\": \"other\"}");
}

Test(metadata, can_be_read_but_not_written_by_those_who_may_only_read)
{
	share_client *c = connect_as("reader");
	share_buffer *b;

	check_ok(share_metadata_set(buffer, "{}"));
	check_ok(share_publish(buffer, "name", NULL));
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b));
	expect_metadata(b, "{}");
	check_error(share_metadata_set(b, "[]"), SHARE_EACCES);
	check_error(share_metadata_set(b, NULL), SHARE_EACCES);
	expect_metadata(buffer, "{}");
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

Test(metadata, goes_with_its_buffer)
{
	for (int i = 0; i < 10; i++) {
		share_buffer *b = allocate(pool, 4096, NULL);

		expect_none(b);
		check_ok(share_metadata_set(b, "{}"));
		check_ok(share_release(b, NULL));
	}
}

Test(metadata, is_one_json_object_or_array)
{
	static const char *const bad[] = {
	    "",
	    " ",
	    "x",
	    "1",
	    "\"text\"",
	    "true",
	    "null",
	    "{",
	    "[1,]",
	    "{a:1}",
	    "{\"a\":1,\"a\":2}",
	    "{} {}",
	    "[\"\\u0000\"]",
	    "[\"\xff\"]",
	    "[1e999]",
	    "[01]",
	};

	check_ok(share_metadata_set(buffer, "{\"kept\": 1}"));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		check_error(share_metadata_set(buffer, bad[i]), SHARE_EINVAL);
	expect_metadata(buffer, "{\"kept\": 1}");
}

static char *nested(int depth)
{
	char *text = calloc(1, 2 * (size_t)depth + 1);

	memset(text, '[', (size_t)depth);
	memset(text + depth, ']', (size_t)depth);
	return text;
}

Test(metadata, is_nested_no_deeper_than_64)
{
	static const int depths[] = {65, 66, 2000, 30000};
	char *text = nested(64);

	check_ok(share_metadata_set(buffer, text));
	expect_metadata(buffer, text);
	free(text);
	for (int i = 0; i < 4; i++) {
		text = nested(depths[i]);
		check_error(share_metadata_set(buffer, text), SHARE_EINVAL);
		free(text);
	}
	/* brackets in strings are no brackets */
	text = nested(100);
	memcpy(text, "[\"\\\"", 4);
	memcpy(text + 198, "\"]", 2);
	check_ok(share_metadata_set(buffer, text));
	free(text);
}

struct text {
	const char *bytes;
	size_t size;
};

/* None is JSON, or is what every reader understands alike. */
static const struct text no_json[] = {
#define TEXT(literal)                        \
	{                                    \
		literal, sizeof(literal) - 1 \
	}
    TEXT("x"),
    TEXT("1"),
    TEXT("\"text\""),
    TEXT("null"),
    TEXT("{"),
    TEXT("[1,]"),
    TEXT("{} x"),
    TEXT("{\"a\":1,\"a\":2}"),
    TEXT("[1e999]"),
    TEXT("[9223372036854775808]"),
    TEXT("\xff"),
    TEXT("[\"\xff\"]"),
    TEXT("[\"\xed\xa0\x80\"]"),
    TEXT("[\"\\ud800\"]"),
    TEXT("[\"\\u0000\"]"),
    TEXT("\0"),
    TEXT("{}\0"),
    TEXT("{}\0{}"),
    TEXT("[\"\0\"]"),
    TEXT("[NaN]"),
    TEXT("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
	 "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"),
#undef TEXT
};

/* What a process without this library can do that may write in the buffer. */
Test(metadata, that_is_no_json_is_told_from_json_where_it_is_read)
{
	struct wire_message lookup = {.type = WIRE_LOOKUP}, set = {.type = WIRE_METADATA_SET};
	share_tensor t = SHARE_TENSOR_INIT;
	struct raw r;
	char *text = NULL;
	void *bytes;
	size_t size;

	check_ok(share_publish(buffer, "name", NULL));
	raw_open(&r, "hostile");
	lookup.lookup.mode = SHARE_RDWR;
	lookup.lookup.name = raw_text("name");
	raw_ask(&r, &lookup, WIRE_GRANT);
	fd_list_close(&r.fds);
	set.metadata_set.buffer = r.m.grant.buffer;
	for (size_t i = 0; i < sizeof(no_json) / sizeof(no_json[0]); i++) {
		set.metadata_set.json =
		    (struct wire_bytes){no_json[i].bytes, (uint32_t)no_json[i].size};
		raw_ask(&r, &set, WIRE_DONE);
		check_error(share_metadata_get(buffer, &text), SHARE_EPROTO);
		check_error(share_tensor_get(buffer, &t), SHARE_EPROTO);
		check(text == NULL);
		check_ok(share_metadata_get_raw(buffer, &bytes, &size));
		check_eq(size, no_json[i].size);
		check(memcmp(bytes, no_json[i].bytes, size + 1) == 0);
		free(bytes);
	}
	/* and whoever may write can put it right */
	check_ok(share_metadata_set(buffer, "{}"));
	expect_metadata(buffer, "{}");
	check_ok(share_metadata_get_raw(buffer, &bytes, &size));
	check(size == 2 && memcmp(bytes, "{}", 3) == 0);
	free(bytes);
	check_ok(share_metadata_set(buffer, NULL));
	check_error(share_metadata_get_raw(buffer, &bytes, &size), SHARE_ENOENT);
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
}

Test(metadata, is_refused_with_the_line_and_the_column)
{
	check_error(share_metadata_set(buffer, "{\n \"a\": x}"), SHARE_EINVAL);
	check(strstr(share_error_detail(), "line 2, column 7") != NULL);
}

Test(metadata, has_64_kib_and_not_a_byte_more)
{
	char *text = calloc(1, SHARE_METADATA_MAX + 2);

	memset(text, 'x', SHARE_METADATA_MAX);
	memcpy(text, "[\"", 2);
	memcpy(text + SHARE_METADATA_MAX - 2, "\"]", 2);
	check_ok(share_metadata_set(buffer, text));
	expect_metadata(buffer, text);
	memcpy(text + SHARE_METADATA_MAX - 2, "x\"]", 3);
	check_error(share_metadata_set(buffer, text), SHARE_EINVAL);
	free(text);
}
