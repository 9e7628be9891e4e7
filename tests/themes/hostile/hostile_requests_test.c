/* SPDX-License-Identifier: MIT */

/*
 * Requests that are well-formed and wrong: identifiers of others and of nobody, fences of others,
 * numbers that nothing has, names that are none. Each is answered with an error that changes
 * nothing, and the connection goes on.
 */

#include <limits.h>
#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

static share_client *witness;
static struct raw raw;
static uint64_t pool, buffer;

static void start(void)
{
	fixture_start();
	witness = connect_as("witness");
	raw_open(&raw, "raw");
	pool = raw_pool(&raw, "default");
	buffer = raw_alloc(&raw, pool, 4096);
}

static void stop(void)
{
	if (!check_has_failed()) {
		settle(witness, s.clients == 2 && s.buffers == 1 && s.leases == 1 && s.names == 0 &&
				    s.tokens == 0 && s.pools == 1 && s.dropped == 0);
		raw_ask(&raw, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	}
	raw_close(&raw);
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(hostile_requests, .init = start, .fini = stop, .timeout = 60);

static void expect_error_and_peace(struct wire_message *m, int error)
{
	raw_ask_error(&raw, m, error);
	check(raw.m.error.detail.size > 0);
	raw_ask(&raw, &(struct wire_message){.type = WIRE_PING}, WIRE_DONE);
	check_ok(share_ping(witness));
}

/* expect(ERROR, TYPE, name, .field = value, ...) */
#define expect(error, TYPE, name, ...)                                                             \
	expect_error_and_peace(&(struct wire_message){.type = WIRE_##TYPE, .name = {__VA_ARGS__}}, \
			       (error))

#define TEXT(literal)                              \
	(struct wire_bytes)                        \
	{                                          \
		(literal), sizeof(literal "") - 1U \
	}

/* ------------------------------------------------------------------------------------------- */

Test(hostile_requests, pools_that_this_client_does_not_have)
{
	const uint64_t ids[] = {0, pool + 1, pool + (UINT64_C(1) << 32), UINT64_MAX};

	for (int i = 0; i < 4; i++) {
		expect(SHARE_ESTALE, ALLOC, alloc, .pool = ids[i], .size = 1);
		expect(SHARE_ESTALE, POOL_CLOSE, pool_close, .pool = ids[i]);
		expect(SHARE_ESTALE, POOL_SEGMENTS, pool_segments, .pool = ids[i],
		       .mode = SHARE_RDONLY);
	}
	raw_pool(&raw, "default");
	raw_ask(&raw, &(struct wire_message){.type = WIRE_POOL_CLOSE, .pool_close = {.pool = pool}},
		WIRE_DONE);
	raw_ask(&raw, &(struct wire_message){.type = WIRE_POOL_CLOSE, .pool_close = {.pool = pool}},
		WIRE_DONE);
	expect(SHARE_ESTALE, POOL_CLOSE, pool_close, .pool = pool);
	expect(SHARE_ESTALE, ALLOC, alloc, .pool = pool, .size = 1);
}

Test(hostile_requests, sizes_and_alignments_that_nothing_has)
{
	expect(SHARE_EINVAL, ALLOC, alloc, .pool = pool);
	expect(SHARE_ENOMEM, ALLOC, alloc, .pool = pool, .size = UINT64_MAX);
	expect(SHARE_ENOMEM, ALLOC, alloc, .pool = pool, .size = INT64_MAX);
	expect(SHARE_EINVAL, ALLOC, alloc, .pool = pool, .size = 1, .alignment = 3);
	expect(SHARE_EINVAL, ALLOC, alloc, .pool = pool, .size = 1, .alignment = UINT64_MAX);
	expect(SHARE_EINVAL, ALLOC, alloc, .pool = pool, .size = 1, .alignment = 1 << 22);
}

Test(hostile_requests, buffers_that_this_client_does_not_hold)
{
	const uint64_t ids[] = {0, buffer + 1, buffer ^ (UINT64_C(1) << 32), UINT64_MAX};

	for (int i = 0; i < 4; i++) {
		expect(SHARE_ESTALE, RELEASE, release, .buffer = ids[i], .count = 1);
		expect(SHARE_ESTALE, PUBLISH, publish, .buffer = ids[i], .name = TEXT("n"));
		expect(SHARE_ESTALE, EXPORT, export, .buffer = ids[i], .mode = SHARE_RDONLY);
		expect(SHARE_ESTALE, METADATA_SET, metadata_set, .buffer = ids[i],
		       .json = TEXT("{}"));
		expect(SHARE_ESTALE, METADATA_GET, metadata_get, .buffer = ids[i]);
	}
}

Test(hostile_requests, more_references_than_it_holds)
{
	expect(SHARE_EINVAL, RELEASE, release, .buffer = buffer, .count = 2);
	expect(SHARE_EINVAL, RELEASE, release, .buffer = buffer, .count = UINT32_MAX);
	expect(SHARE_EINVAL, RELEASE, release, .buffer = buffer, .count = 0);
}

Test(hostile_requests, fences_that_are_not_its_own)
{
	struct raw other;
	share_fence bad[9];

	raw_open(&other, "other");
	bad[0] = (share_fence){WIRE_TIMELINE(other.page_id, 5), 1};
	bad[1] = (share_fence){WIRE_TIMELINE(raw.page_id, 0), 1};
	bad[2] = (share_fence){WIRE_TIMELINE(raw.page_id, TIMELINE_SLOTS), 1};
	bad[3] = (share_fence){WIRE_TIMELINE(raw.page_id, 0xffff), 1};
	bad[4] = (share_fence){WIRE_TIMELINE(raw.page_id, 5), 0};
	bad[5] = (share_fence){WIRE_TIMELINE(raw.page_id, 5), TIMELINE_POISON};
	bad[6] = (share_fence){WIRE_TIMELINE(raw.page_id, 5), UINT64_MAX};
	bad[7] = (share_fence){UINT64_MAX, 1};
	/* its own, and further ahead than any stream gets */
	bad[8] = (share_fence){WIRE_TIMELINE(raw.page_id, 5), UINT64_C(1) << 40};
	for (int i = 0; i < 9; i++) {
		expect(SHARE_EINVAL, RELEASE, release, .buffer = buffer, .count = 1,
		       .timeline = bad[i].timeline, .value = bad[i].value);
		expect(SHARE_EINVAL, PUBLISH, publish, .buffer = buffer,
		       .timeline = bad[i].timeline, .value = bad[i].value, .name = TEXT("n"));
		expect(SHARE_EINVAL, EXPORT, export, .buffer = buffer, .mode = SHARE_RDONLY,
		       .timeline = bad[i].timeline, .value = bad[i].value);
	}
	raw_close(&other);
}

Test(hostile_requests, timelines_that_nobody_has)
{
	expect(SHARE_ESTALE, TIMELINE, timeline, .page = 0);
	expect(SHARE_ESTALE, TIMELINE, timeline, .page = raw.page_id + 1000);
	expect(SHARE_ESTALE, TIMELINE, timeline, .page = UINT64_MAX);
}

static bool can_be_written(int fd)
{
	struct timeline_page *page;

	if (timeline_map(fd, true, &page) < 0)
		return false;
	timeline_unmap(page);
	return true;
}

Test(hostile_requests, a_page_of_another_cannot_be_written_nor_ones_own_again)
{
	struct wire_message m = {.type = WIRE_TIMELINE};
	struct raw other;

	raw_open(&other, "other");
	m.timeline.page = other.page_id;
	raw_ask(&raw, &m, WIRE_TIMELINE_PAGE);
	check(!can_be_written(raw.fds.fds[0]));
	m.timeline.page = raw.page_id;
	raw_ask(&raw, &m, WIRE_TIMELINE_PAGE);
	check(!can_be_written(raw.fds.fds[0]));
	raw_close(&other);
}

/* ------------------------------------------------------------------------------------------- */

static const struct wire_bytes bad_names[] = {
    {"", 0},
    {"\x01", 1},
    {"a\nb", 3},
    {"a\0b", 3},
    {"\x7f", 1},
    {"\xc2\x85", 2},         /* a control character of two bytes */
    {"\xe2\x80\xae", 3},     /* from right to left, from here on */
    {"\xff", 1},             /* never in UTF-8 */
    {"\xc0\x80", 2},         /* NUL in two bytes */
    {"\xe2\x82", 2},         /* cut off */
    {"\xed\xa0\x80", 3},     /* a surrogate */
    {"\xf4\x90\x80\x80", 4}, /* beyond Unicode */
};

Test(hostile_requests, names_that_are_none)
{
	for (size_t i = 0; i < sizeof(bad_names) / sizeof(bad_names[0]); i++) {
		const struct wire_bytes name = bad_names[i];

		expect(SHARE_EINVAL, PUBLISH, publish, .buffer = buffer, .name = name);
		expect(SHARE_EINVAL, UNPUBLISH, unpublish, .name = name);
		expect(SHARE_EINVAL, LOOKUP, lookup, .mode = SHARE_RDONLY, .timeout = -1,
		       .name = name);
		expect(SHARE_EINVAL, POOL_OPEN, pool_open, .name = name);
		expect(SHARE_EINVAL, POOL_CREATE, pool_create, .name = name);
		expect(SHARE_EINVAL, POOL_DESTROY, pool_destroy, .name = name);
	}
	expect(SHARE_EINVAL, WATCH, watch, .prefix = TEXT("\xff"));
	expect(SHARE_EINVAL, WATCH, watch, .prefix = TEXT("a\xc0\x80"));
}

Test(hostile_requests, modes_and_flags_that_are_none)
{
	static const uint32_t modes[] = {2, 4, 5, 7, 0x80000001, UINT32_MAX};

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		expect(SHARE_EINVAL, PUBLISH, publish, .buffer = buffer, .mode = modes[i],
		       .name = TEXT("n"));
		expect(SHARE_EINVAL, LOOKUP, lookup, .mode = modes[i], .name = TEXT("n"));
		expect(SHARE_EINVAL, EXPORT, export, .buffer = buffer, .mode = modes[i]);
	}
	expect(SHARE_EINVAL, LOOKUP, lookup, .mode = 0, .name = TEXT("n"));
	expect(SHARE_EINVAL, POOL_SEGMENTS, pool_segments, .pool = pool, .mode = 0);
	expect(SHARE_EINVAL, POOL_SEGMENTS, pool_segments, .pool = pool, .mode = UINT32_MAX);
	expect(SHARE_EINVAL, PUBLISH, publish, .buffer = buffer, .flags = 4, .name = TEXT("n"));
	expect(SHARE_EINVAL, PUBLISH, publish, .buffer = buffer, .flags = UINT32_MAX,
	       .name = TEXT("n"));
	expect(SHARE_EINVAL, POOL_CREATE, pool_create, .flags = 8, .name = TEXT("n"));
	expect(SHARE_EINVAL, LOOKUP, lookup, .mode = 1, .timeout = -2, .name = TEXT("n"));
	expect(SHARE_EINVAL, LOOKUP, lookup, .mode = 1, .timeout = INT_MIN, .name = TEXT("n"));
}

Test(hostile_requests, pools_that_cannot_be)
{
	static const char *const lists[] = {
	    "[",
	    "{}",
	    "3",
	    "[3]",
	    "[{\"user\": \"root\", \"mode\": \"rw\"}]", /* a name: no look-ups in the broker */
	    "[{\"user\": \"1000\", \"mode\": \"rw\"}]",
	    "[{\"user\": -1, \"mode\": \"rw\"}]",
	    "[{\"user\": 4294967295, \"mode\": \"rw\"}]",
	    "[{\"user\": 99999999999999999999, \"mode\": \"rw\"}]",
	    "[{\"user\": 1, \"group\": 1, \"mode\": \"rw\"}]",
	    "[{\"user\": 1, \"mode\": \"root\"}]",
	    "[{\"user\": 1, \"mode\": \"rw\", \"mode\": \"ro\"}]",
	};
	static char deep[16384];

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		expect(SHARE_EINVAL, POOL_CREATE, pool_create, .name = TEXT("n"),
		       .access = raw_text(lists[i]));
	memset(deep, '[', sizeof(deep));
	expect(SHARE_EINVAL, POOL_CREATE, pool_create, .name = TEXT("n"),
	       .access = {deep, sizeof(deep)});
	expect(SHARE_EINVAL, POOL_CREATE, pool_create, .name = TEXT("n"), .kind = TEXT("vmm "));
	expect(SHARE_EINVAL, POOL_CREATE, pool_create, .name = TEXT("n"), .kind = TEXT("host\0"));
	expect(SHARE_EINVAL, POOL_CREATE, pool_create, .name = TEXT("n"),
	       .kind = TEXT("0123456789012345678901234567890"));
	expect(SHARE_EINVAL, POOL_CREATE, pool_create, .limit = 1, .name = TEXT("n"));
	expect(SHARE_EEXIST, POOL_CREATE, pool_create, .name = TEXT("default"));
	expect(SHARE_ENOENT, POOL_DESTROY, pool_destroy, .name = TEXT("nothing"));
}

/* ------------------------------------------------------------------------------------------- */

Test(hostile_requests, watches_and_tokens_of_others_and_of_nobody)
{
	struct wire_message watch = {.type = WIRE_WATCH};
	unsigned char token[32] = {1};
	struct raw other;
	uint64_t others;

	raw_open(&other, "other");
	raw_ask(&other, &watch, WIRE_WATCHING);
	others = other.m.watching.watch;
	expect(SHARE_ESTALE, UNWATCH, unwatch, .watch = others);
	expect(SHARE_ESTALE, UNWATCH, unwatch, .watch = 0);
	expect(SHARE_ESTALE, UNWATCH, unwatch, .watch = UINT64_MAX);
	expect(SHARE_ENOENT, IMPORT, import, .token = {token, 32});
	expect(SHARE_ENOENT, IMPORT, import, .token = {token, 31});
	expect(SHARE_ENOENT, IMPORT, import, .mode = 0);
	expect(SHARE_ENOENT, REVOKE, revoke, .token = {token, 32});
	expect(SHARE_ENOENT, REVOKE, revoke, .token = {token, 0});
	raw_close(&other);
}

Test(hostile_requests, a_token_is_imported_in_a_mode_there_is)
{
	struct wire_message export = {.type = WIRE_EXPORT}, revoke = {.type = WIRE_REVOKE};
	unsigned char token[32];

	export.export.buffer = buffer;
	export.export.mode = SHARE_RDONLY;
	raw_ask(&raw, &export, WIRE_TOKEN);
	memcpy(token, raw.m.token.token.data, 32);
	expect(SHARE_EINVAL, IMPORT, import, .mode = 2, .token = {token, 32});
	expect(SHARE_EINVAL, IMPORT, import, .mode = 8, .token = {token, 32});
	expect(SHARE_EACCES, IMPORT, import, .mode = SHARE_RDWR, .token = {token, 32});
	revoke.revoke.token = (struct wire_bytes){token, 32};
	raw_ask(&raw, &revoke, WIRE_DONE);
	expect(SHARE_ENOENT, REVOKE, revoke, .token = {token, 32});
}

Test(hostile_requests, reports_that_there_are_not)
{
	expect(SHARE_EINVAL, QUERY, query, .what = TEXT(""));
	expect(SHARE_EINVAL, QUERY, query, .what = TEXT("statu"));
	expect(SHARE_EINVAL, QUERY, query, .what = TEXT("status "));
	expect(SHARE_EINVAL, QUERY, query, .what = TEXT("\xff\x00\n"));
}

/* A cursor is what the last report said. Any other one is answered with some page, or none. */
Test(hostile_requests, cursors_that_no_report_gave)
{
	static const char *const reports[] = {"status",  "pools",   "segments",
					      "clients", "buffers", "names"};
	static const char *const cursors[] = {"-1",         "18446744073709551615",
					      "4294967295", "99999999999999999999999999",
					      "\xff\xff",   "x",
					      " 7"};
	char longest[511];

	memset(longest, '9', sizeof(longest));
	for (size_t i = 0; i < 6; i++) {
		struct wire_message m = {.type = WIRE_QUERY};

		m.query.what = raw_text(reports[i]);
		m.query.prefix = (struct wire_bytes){"\xff\0\n", 3};
		for (size_t k = 0; k < 7; k++) {
			m.query.cursor = raw_text(cursors[k]);
			raw_ask(&raw, &m, WIRE_REPORT);
		}
		m.query.cursor = (struct wire_bytes){longest, sizeof(longest)};
		raw_ask(&raw, &m, WIRE_REPORT);
		m.query.cursor = (struct wire_bytes){"\0\0\0", 3};
		raw_ask(&raw, &m, WIRE_REPORT);
	}
}

Test(hostile_requests, canceling_what_does_not_wait_does_nothing)
{
	struct wire_message m = {.type = WIRE_CANCEL};
	const uint32_t serials[] = {0, 1, 12345, UINT32_MAX};

	for (int i = 0; i < 4; i++) {
		m.cancel.lookup = serials[i];
		check_eq(raw_send(&raw, &m), 0);
		m.serial = 5;
	}
	raw_ask(&raw, &(struct wire_message){.type = WIRE_PING}, WIRE_DONE);
}

/* ------------------------------------------------------------------------------------------- */
/* What nobody could be told about                                                             */

TestSuite(hostile_words, .init = fixture_start, .fini = fixture_stop, .timeout = 60);

Test(hostile_words, a_release_without_a_reply_that_is_wrong_ends_the_connection)
{
	share_client *c = connect_as("witness");
	struct wire_message m = {.type = WIRE_RELEASE};
	struct raw r;

	raw_open(&r, "raw");
	m.release.buffer = 1234567;
	m.release.count = 1;
	check_eq(raw_send(&r, &m), 0);
	check_error(raw_farewell(&r), SHARE_ESTALE);
	raw_close(&r);
	settle(c, s.clients == 1 && s.dropped == 1);
	share_disconnect(c);
}

Test(hostile_words, a_segment_that_was_not_to_be_unmapped_ends_the_connection)
{
	const uint64_t ids[] = {0, 1, UINT64_C(1) << 32, UINT64_MAX};
	share_client *c = connect_as("witness");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 1, NULL);
	struct raw r;

	for (int i = 0; i < 4; i++) {
		struct wire_message m = {.type = WIRE_SEGMENT_RETIRED};

		raw_open(&r, "raw");
		m.segment_retired.segment = ids[i];
		check_eq(raw_send(&r, &m), 0);
		check_error(raw_farewell(&r), SHARE_EPROTO);
		raw_close(&r);
		check_ok(share_ping(c));
	}
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}
