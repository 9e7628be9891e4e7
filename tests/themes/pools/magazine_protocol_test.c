/* SPDX-License-Identifier: MIT */

/*
 * The broker's part in what clients keep: several blocks for one request, and asking for them back.
 * Without the library, as some of this that one never does.
 */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

#define KIB 1024u
#define MIB (1024u * KIB)

static const char config[] =
    "{\"limits\": {\"leases\": 20, \"bytes\": \"3MiB\"},"
    "\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"16MiB\", "
    "\"segment_size\": \"1MiB\", \"release_threshold\": 0},"
    "{\"name\": \"tight\", \"kind\": \"host\", \"limit\": \"1MiB\", \"segment_size\": \"1MiB\", "
    "\"release_threshold\": 0}]}";

static struct raw keeper, other;

static void start(void)
{
	fixture_start_with(config);
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
	goodbye(&keeper);
	goodbye(&other);
	fixture_stop();
}

TestSuite(magazine_protocol, .init = start, .fini = stop, .timeout = 60);

static struct wire_message alloc_of(uint64_t pool, uint64_t size, uint32_t count, uint32_t flags)
{
	struct wire_message m = {.type = WIRE_ALLOC};

	m.alloc.pool = pool;
	m.alloc.size = size;
	m.alloc.count = count;
	m.alloc.flags = flags;
	return m;
}

/* What came with the last GRANT of @r, the first included. Returns how many. */
static uint32_t blocks_of(const struct raw *r, struct wire_more *out)
{
	const struct wire_grant *g = &r->m.grant;

	check_eq(g->more.size % sizeof(struct wire_more), 0);
	check(g->more.size / sizeof(struct wire_more) < 64);
	out[0] = (struct wire_more){g->buffer, g->offset};
	memcpy(out + 1, g->more.data, g->more.size);
	return 1 + (uint32_t)(g->more.size / sizeof(struct wire_more));
}

static uint32_t alloc_many(struct raw *r, uint64_t pool, uint64_t size, uint32_t count,
			   struct wire_more *out)
{
	struct wire_message m = alloc_of(pool, size, count, WIRE_ALLOC_KEEPS);

	raw_ask(r, &m, WIRE_GRANT);
	return blocks_of(r, out);
}

static void release_block(struct raw *r, uint64_t buffer)
{
	struct wire_message m = {.type = WIRE_RELEASE};

	m.release.buffer = buffer;
	m.release.count = 1;
	raw_ask(r, &m, WIRE_DONE);
}

/* ------------------------------------------------------------------------------------------- */
/* Several at once                                                                             */

Test(magazine_protocol, several_blocks_come_with_one_request)
{
	uint64_t pool = raw_pool(&keeper, "default");
	struct wire_more b[64];
	uint32_t n = alloc_many(&keeper, pool, 4 * KIB, 16, b);

	check_eq(n, 16);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < i; k++)
			check(b[i].buffer != b[k].buffer && (b[i].offset >= b[k].offset + 4 * KIB ||
							     b[k].offset >= b[i].offset + 4 * KIB));
	for (uint32_t i = 0; i < n; i++)
		release_block(&keeper, b[i].buffer); /* one lease on each, */
	for (uint32_t i = 0; i < n; i++) {
		struct wire_message m = {.type = WIRE_RELEASE};

		m.release.buffer = b[i].buffer;
		m.release.count = 1;
		raw_ask_error(&keeper, &m, SHARE_ESTALE); /* and no more */
	}
}

Test(magazine_protocol, one_is_what_most_ask_for)
{
	uint64_t pool = raw_pool(&keeper, "default");
	struct wire_more b[64];

	check_eq(alloc_many(&keeper, pool, 4 * KIB, 0, b), 1);
	release_block(&keeper, b[0].buffer);
	check_eq(alloc_many(&keeper, pool, 4 * KIB, 1, b), 1);
	release_block(&keeper, b[0].buffer);
}

Test(magazine_protocol, there_are_as_many_as_the_pool_has_room_for)
{
	uint64_t pool = raw_pool(&keeper, "tight");
	struct wire_message m;
	struct wire_more b[64];

	check_eq(alloc_many(&keeper, pool, 256 * KIB, 16, b), 4);
	/* who only wants something to keep is refused at once, and nobody is asked */
	m = alloc_of(pool, 256 * KIB, 1, WIRE_ALLOC_KEEPS);
	raw_ask_error(&keeper, &m, SHARE_ENOMEM);
	check_eq(atomic_load(&keeper.page->slots[0].last), 0);
	for (int i = 0; i < 4; i++)
		release_block(&keeper, b[i].buffer);
}

Test(magazine_protocol, there_are_as_many_as_the_user_may_have)
{
	uint64_t pool = raw_pool(&keeper, "default");
	struct wire_message m;
	struct wire_more b[64];

	check_eq(alloc_many(&keeper, pool, KIB, 1000, b), 20); /* leases */
	m = alloc_of(pool, KIB, 2, WIRE_ALLOC_KEEPS);
	raw_ask_error(&keeper, &m, SHARE_EQUOTA);
	for (int i = 0; i < 20; i++)
		release_block(&keeper, b[i].buffer);
	/* bytes; and only what lies in the same segment comes along */
	for (int i = 0; i < 3; i++)
		check_eq(alloc_many(&keeper, pool, 512 * KIB, 16, b + (size_t)i * 2), 2);
	raw_ask_error(&keeper, &m, SHARE_EQUOTA);
	for (int i = 0; i < 6; i++)
		release_block(&keeper, b[i].buffer);
}

Test(magazine_protocol, nothing_comes_along_that_somebody_still_uses)
{
	uint64_t pool = raw_pool(&keeper, "tight");
	struct wire_message m = {.type = WIRE_RELEASE};
	struct wire_more b[64], again[64];
	uint64_t used;

	check_eq(alloc_many(&keeper, pool, 256 * KIB, 4, b), 4);
	used = b[0].offset;
	m.release.buffer = b[0].buffer;
	m.release.count = 1;
	m.release.timeline = WIRE_TIMELINE(keeper.page_id, 1);
	m.release.value = 1;
	raw_ask(&keeper, &m, WIRE_DONE);
	release_block(&keeper, b[2].buffer);
	for (uint32_t n = alloc_many(&keeper, pool, 256 * KIB, 4, again); n > 1; n--)
		check(again[n - 1].offset != used);
	timeline_signal(keeper.page, 1, 1);
}

Test(magazine_protocol, flags_that_nobody_knows_are_refused)
{
	struct wire_message m = alloc_of(raw_pool(&keeper, "default"), KIB, 1, 1u << 31);

	raw_ask_error(&keeper, &m, SHARE_EINVAL);
}

/* ------------------------------------------------------------------------------------------- */
/* Asking for them back                                                                        */

static void expect_trim(struct raw *r, uint64_t pool, uint64_t asked)
{
	check_eq(raw_receive(r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r->m.type, WIRE_TRIM);
	check_eq(r->m.trim.pool, pool);
	check_eq(atomic_load(&r->page->slots[0].last), asked);
}

static void say_trimmed(struct raw *r, uint64_t asked)
{
	struct wire_message m = {.type = WIRE_TRIMMED};

	m.trimmed.asked = asked;
	check_eq(raw_send(r, &m), 0);
}

static void send_alloc(struct raw *r, uint64_t pool, uint64_t size)
{
	struct wire_message m = alloc_of(pool, size, 1, 0);

	m.serial = ++r->serial;
	check_eq(raw_send(r, &m), 0);
}

static void expect_answer(struct raw *r, enum wire_type type)
{
	do
		check_eq(raw_receive(r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	while (r->m.serial != r->serial);
	check_eq(r->m.type, type);
}

static void expect_refusal(struct raw *r, int error)
{
	expect_answer(r, WIRE_ERROR);
	check_error(r->m.error.error, error);
}

Test(magazine_protocol, who_keeps_memory_is_asked_when_another_needs_it)
{
	uint64_t pool = raw_pool(&keeper, "tight");
	struct wire_more b[64];

	raw_pool(&other, "tight");
	alloc_many(&keeper, pool, 512 * KIB, 1, b);
	send_alloc(&other, pool, MIB);
	expect_trim(&keeper, pool, 1);
	release_block(&keeper, b[0].buffer);
	say_trimmed(&keeper, 1);
	expect_answer(&other, WIRE_GRANT);
	release_block(&other, other.m.grant.buffer);
}

/* Were it not for the answers, who was asked once would not be asked again for a second. With them
 * it is, but for a request that comes in the same millisecond as their last. */
Test(magazine_protocol, when_all_have_answered_there_is_no_memory)
{
	uint64_t pool = raw_pool(&keeper, "tight"), asked = 0, before;
	struct raw second;
	struct wire_more b[64], its[64];

	raw_open(&second, "second");
	raw_pool(&second, "tight");
	raw_pool(&other, "tight");
	alloc_many(&keeper, pool, 512 * KIB, 1, b);
	alloc_many(&second, pool, 4 * KIB, 1, its);
	for (int round = 0, unasked = 0; round < 50;) {
		before = asked;
		send_alloc(&other, pool, MIB);
		until((asked = atomic_load(&keeper.page->slots[0].last)) != before ||
		      raw_receive(&other, 0) == RAW_MESSAGE);
		if (asked == before) {
			check_eq(other.m.type, WIRE_ERROR);
			check(++unasked < 500);
			continue;
		}
		expect_trim(&keeper, pool, asked);
		expect_trim(&second, pool, asked);
		say_trimmed(&keeper, asked);
		say_trimmed(&second, asked);
		expect_refusal(&other, SHARE_ENOMEM);
		unasked = 0;
		round++;
	}
	release_block(&second, its[0].buffer);
	release_block(&keeper, b[0].buffer);
	goodbye(&second);
}

Test(magazine_protocol, who_waits_for_memory_itself_is_not_asked)
{
	uint64_t pool = raw_pool(&keeper, "tight");
	struct wire_more mine[64], its[64];
	uint64_t asked = 0, before;

	raw_pool(&other, "tight");
	alloc_many(&keeper, pool, 256 * KIB, 1, mine);
	alloc_many(&other, pool, 256 * KIB, 1, its);
	/* more than once only if this test is stopped for so long that nobody waits any more */
	do {
		struct wire_message m = alloc_of(pool, MIB, 1, 0);

		before = atomic_load(&other.page->slots[0].last);
		send_alloc(&other, pool, MIB);
		until(atomic_load(&keeper.page->slots[0].last) != asked);
		asked = atomic_load(&keeper.page->slots[0].last);
		raw_ask_error(&keeper, &m, SHARE_ENOMEM);
		say_trimmed(&keeper, asked);
		expect_refusal(&other, SHARE_ENOMEM);
		say_trimmed(&other, atomic_load(&other.page->slots[0].last));
	} while (atomic_load(&other.page->slots[0].last) != before);
	release_block(&keeper, mine[0].buffer);
	release_block(&other, its[0].buffer);
}

Test(magazine_protocol, who_does_not_answer_is_not_waited_for_without_end)
{
	uint64_t pool = raw_pool(&keeper, "tight");
	struct wire_message m = alloc_of(pool, MIB, 1, 0);
	struct wire_more b[64];

	raw_pool(&other, "tight");
	alloc_many(&keeper, pool, 512 * KIB, 1, b);
	raw_ask_error(&other, &m, SHARE_ENOMEM);
	release_block(&keeper, b[0].buffer);
}

Test(magazine_protocol, an_answer_that_makes_no_sense_is_none)
{
	static const uint64_t wrong[] = {0, 2, UINT64_MAX};
	uint64_t pool = raw_pool(&keeper, "tight");
	struct wire_message ping = {.type = WIRE_PING};
	struct wire_more b[64];

	raw_pool(&other, "tight");
	for (size_t i = 0; i < 3; i++)
		say_trimmed(&keeper, wrong[i]);
	raw_ask(&keeper, &ping, WIRE_DONE);
	alloc_many(&keeper, pool, 512 * KIB, 1, b);
	send_alloc(&other, pool, MIB);
	expect_trim(&keeper, pool, 1);
	for (size_t i = 0; i < 3; i++)
		say_trimmed(&keeper, wrong[i]);
	say_trimmed(&keeper, 1);
	say_trimmed(&keeper, 1);
	raw_ask(&keeper, &ping, WIRE_DONE);
	expect_refusal(&other, SHARE_ENOMEM);
	release_block(&keeper, b[0].buffer);
}

/* It is the client's to write: what it does to it harms nobody else. */
Test(magazine_protocol, the_counter_is_not_believed)
{
	uint64_t pool = raw_pool(&keeper, "tight");
	struct wire_more b[64];

	raw_pool(&other, "tight");
	alloc_many(&keeper, pool, 512 * KIB, 1, b);
	atomic_store(&keeper.page->slots[0].last, 1000);
	send_alloc(&other, pool, MIB);
	expect_trim(&keeper, pool, 1);
	release_block(&keeper, b[0].buffer);
	expect_answer(&other, WIRE_GRANT);
	release_block(&other, other.m.grant.buffer);
}

Test(magazine_protocol, of_a_destroyed_pool_nothing_is_to_be_kept)
{
	struct wire_message create = {.type = WIRE_POOL_CREATE}, m = {.type = WIRE_POOL_DESTROY};
	struct wire_more b[64];
	uint64_t pool;

	create.pool_create.name = raw_text("short-lived");
	raw_ask(&other, &create, WIRE_POOL);
	pool = raw_pool(&keeper, "short-lived");
	alloc_many(&keeper, pool, 4 * KIB, 1, b);
	m.pool_destroy.name = raw_text("short-lived");
	raw_ask(&other, &m, WIRE_DONE);
	expect_trim(&keeper, pool, 1);
	check_eq(keeper.m.trim.flags, WIRE_TRIM_ENDED);
	say_trimmed(&keeper, 1);
	release_block(&keeper, b[0].buffer);
	m = alloc_of(pool, 4 * KIB, 1, WIRE_ALLOC_KEEPS);
	raw_ask_error(&keeper, &m, SHARE_ENOENT);
}
