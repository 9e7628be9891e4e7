/* SPDX-License-Identifier: MIT */

/*
 * Blocks that a process keeps are larger than what it uses of one. What the broker believes of
 * that.
 */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

#define KIB 1024u

static struct raw keeper, other;

static void start(void)
{
	fixture_start();
	raw_open(&keeper, "keeper");
	raw_open(&other, "other");
}

static void goodbye(struct raw *r)
{
	if (!check_has_failed())
		raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

static void stop(void)
{
	struct wire_message m = {.type = WIRE_UNPUBLISH};

	m.unpublish.name = raw_text("name");
	if (!check_has_failed())
		raw_request(&keeper, &m);
	goodbye(&keeper);
	goodbye(&other);
	fixture_stop();
}

TestSuite(magazine_size, .init = start, .fini = stop, .timeout = 60);

static void release_block(struct raw *r, uint64_t buffer)
{
	struct wire_message m = {.type = WIRE_RELEASE};

	m.release.buffer = buffer;
	m.release.count = 1;
	raw_ask(r, &m, WIRE_DONE);
}

static struct wire_message publish_of(uint64_t buffer, uint64_t size)
{
	struct wire_message m = {.type = WIRE_PUBLISH};

	m.publish.name = raw_text("name");
	m.publish.buffer = buffer;
	m.publish.size = size;
	return m;
}

static struct wire_message export_of(uint64_t buffer, uint64_t size)
{
	struct wire_message m = {.type = WIRE_EXPORT};

	m.export.buffer = buffer;
	m.export.mode = SHARE_RDONLY;
	m.export.size = size;
	return m;
}

static uint64_t size_by_name(struct raw *r)
{
	struct wire_message m = {.type = WIRE_LOOKUP};

	m.lookup.name = raw_text("name");
	m.lookup.mode = SHARE_RDONLY;
	raw_ask(r, &m, WIRE_GRANT);
	return r->m.grant.size;
}

Test(magazine_size, who_allocated_it_says_how_much_is_in_use)
{
	uint64_t buffer = raw_alloc(&keeper, raw_pool(&keeper, "default"), 8 * KIB);
	struct wire_message m = export_of(buffer, 5000), import = {.type = WIRE_IMPORT};
	uint8_t token[32];

	raw_ask(&keeper, &m, WIRE_TOKEN);
	check_eq(keeper.m.token.token.size, sizeof(token));
	memcpy(token, keeper.m.token.token.data, sizeof(token));
	import.import.token = (struct wire_bytes){token, sizeof(token)};
	raw_ask(&other, &import, WIRE_GRANT);
	check_eq(other.m.grant.size, 5000);
}

Test(magazine_size, who_may_only_read_makes_it_no_smaller_for_others)
{
	uint64_t buffer = raw_alloc(&keeper, raw_pool(&keeper, "default"), 8 * KIB);
	struct wire_message m = publish_of(buffer, 6000);

	raw_ask(&keeper, &m, WIRE_PUBLISHED);
	check_eq(size_by_name(&other), 6000);
	m = export_of(buffer, 100);
	raw_ask(&other, &m, WIRE_TOKEN);
	check_eq(size_by_name(&other), 6000);
	m = publish_of(buffer, 0); /* as it is */
	raw_ask(&keeper, &m, WIRE_PUBLISHED);
	check_eq(size_by_name(&other), 6000);
	m = publish_of(buffer, 100);
	raw_ask(&keeper, &m, WIRE_PUBLISHED);
	check_eq(size_by_name(&other), 100);
}

Test(magazine_size, no_buffer_is_larger_than_its_block)
{
	uint64_t buffer = raw_alloc(&keeper, raw_pool(&keeper, "default"), 8 * KIB);
	struct wire_message publish = publish_of(buffer, 8 * KIB + 1),
			    export = export_of(buffer, UINT64_MAX), missing;

	raw_ask_error(&keeper, &publish, SHARE_EINVAL);
	raw_ask_error(&keeper, &export, SHARE_EINVAL);
	missing = (struct wire_message){.type = WIRE_LOOKUP};
	missing.lookup.name = raw_text("name");
	missing.lookup.mode = SHARE_RDONLY;
	raw_ask_error(&other, &missing, SHARE_ENOENT);
	release_block(&keeper, buffer);
}
