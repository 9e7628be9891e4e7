/* SPDX-License-Identifier: MIT */

/*
 * Memory that a program has by cuMemAlloc() (cudaMalloc()) becomes a buffer, which others have by a
 * handle of the whole allocation. It keeps nothing: so the memory is gone with the program, or when
 * the program has no connection any more that tells it who has it, and then nobody is let to it,
 * whatever the driver would still do.
 */

#include <string.h>
#include <unistd.h>

#include "memory/cuda/driver.h"
#include "tests/harness/descriptors.h"
#include "tests/harness/fixture.h"
#include "tests/harness/memory.h"
#include "tests/support/gpu_memory.h"
#include "tests/support/gpu_work.h"

#define MIB  (UINT64_C(1) << 20)
#define SIZE (4 * MIB)
#define PART (UINT64_C(64) << 10)

static share_pool *pool;

static share_pool *adopting(share_client *c)
{
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;
	share_pool *p;

	o.kind = "adopted";
	o.limit = 64 * MIB;
	o.flags = SHARE_POOL_OPEN_OR_CREATE;
	check_ok(share_pool_create(c, "adopted", &o, &p));
	return p;
}

static void start(void)
{
	gpu_work_start();
	pool = adopting(gpu_client);
}

static void stop(void)
{
	if (!check_has_failed()) {
		settle(gpu_client, s.buffers == 0 && s.leases == 0);
		share_pool_close(pool);
	}
	gpu_work_stop();
}

TestSuite(gpu_adopt_plain, .init = start, .fini = stop, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */

static share_buffer *adopted_by(share_pool *p, char *memory, uint64_t size)
{
	share_buffer *b = NULL;

	check_ok(share_adopt(p, memory, size, NULL, &b));
	check(share_ptr(b) == memory);
	check_eq(share_size(b), size);
	return b;
}

static share_buffer *adopted(char *memory, uint64_t size)
{
	return adopted_by(pool, memory, size);
}

static share_buffer_info info_of(share_buffer *b)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;

	check_ok(share_buffer_get_info(b, &info));
	return info;
}

static void publish_as(share_buffer *b, const char *name)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;

	options.flags = SHARE_PUBLISH_PERSISTENT;
	check_ok(share_publish_with(b, name, &options, NULL, NULL));
}

static share_buffer *found_by(share_client *c, const char *name)
{
	share_buffer *b = NULL;

	check_ok(share_lookup(c, name, SHARE_RDWR, 0, NULL, &b));
	return b;
}

static void expect_lost(share_client *c, const char *name)
{
	const int modes[] = {SHARE_RDWR, SHARE_RDONLY};
	share_buffer *b = NULL;

	for (int i = 0; i < 2; i++)
		check_error(share_lookup(c, name, modes[i], 0, NULL, &b), SHARE_EOWNERDEAD);
	check(b == NULL);
}

static void drop(share_buffer *b)
{
	check_ok(share_release(b, NULL));
}

static void unpublish(const char *name)
{
	check_ok(share_unpublish(gpu_client, name));
}

/* ------------------------------------------------------------------------------------------- */

static void reads_and_writes(struct child *self, void *data)
{
	share_client *c = child_connect("other");
	share_buffer *b;

	(void)data;
	child_point(self, "ready");
	b = found_by(c, "data");
	check(strcmp(info_of(b).kind, "legacy") == 0);
	buffer_expect(b, 0x11);
	buffer_fill(b, 0x22);
	drop(b);
	child_point(self, "written");
	share_disconnect(c);
}

/* An allocation, and a part of it, of any size. */
static void is_shared(uint64_t whole, uint64_t offset, uint64_t size)
{
	struct child *other = child_start(reads_and_writes, NULL);
	share_buffer_info info;
	share_buffer *b;
	char *memory;

	child_wait(other, "ready");
	gpu_use();
	memory = gpu_memory_make_plain(0, whole);
	b = adopted(memory + offset, size);
	info = info_of(b);
	check(strcmp(info.kind, "legacy") == 0);
	check_eq(info.ordinal, 0);
	check(info.segment_size >= whole);
	check_eq(info.offset, offset);
	buffer_fill(b, 0x11);
	publish_as(b, "data");
	child_go(other);
	child_wait(other, "written");
	buffer_expect(b, 0x22);
	child_go(other);
	child_finish(other);
	unpublish("data");
	drop(b);
	settle(gpu_client, s.segments == 0);
	gpu_memory_free_plain(0, memory);
}

Test(gpu_adopt_plain, memory_that_is_there_becomes_a_buffer_without_a_copy)
{
	is_shared(SIZE, 0, SIZE);
}

Test(gpu_adopt_plain, it_may_be_a_part_of_an_allocation)
{
	is_shared(SIZE, 3 * PART, PART - 3);
}

Test(gpu_adopt_plain, an_allocation_may_have_any_size)
{
	is_shared(SIZE + 1000, SIZE, 1000);
}

static void has_two(struct child *self, void *data)
{
	share_client *c = child_connect("other");
	share_buffer *first, *second;

	(void)data;
	child_point(self, "ready");
	first = found_by(c, "first");
	second = found_by(c, "second");
	/* it is one mapping, of which the first that goes takes nothing away */
	check((char *)share_ptr(second) - (char *)share_ptr(first) == PART);
	drop(first);
	buffer_expect(second, 0x31);
	child_point(self, "has let one go");
	check_ok(share_ping(c)); /* after which it has unmapped the first */
	buffer_expect(second, 0x31);
	first = found_by(c, "third");
	buffer_expect(first, 0x32);
	drop(second);
	buffer_expect(first, 0x32);
	drop(first);
	share_disconnect(c);
}

Test(gpu_adopt_plain, two_parts_of_an_allocation_are_two_buffers)
{
	static const char *const names[] = {"first", "second", "third"};
	struct child *other = child_start(has_two, NULL);
	share_buffer *b[3];
	char *memory;

	child_wait(other, "ready");
	gpu_use();
	memory = gpu_memory_make_plain(0, SIZE);
	for (int i = 0; i < 3; i++) {
		b[i] = adopted(memory + i * PART, PART);
		buffer_fill(b[i], 0x30 + i);
		publish_as(b[i], names[i]);
	}
	child_go(other);
	child_wait(other, "has let one go");
	unpublish("first");
	drop(b[0]);
	settle(gpu_client, s.buffers == 2);
	child_go(other);
	child_finish(other);
	for (int i = 1; i < 3; i++) {
		unpublish(names[i]);
		drop(b[i]);
	}
	settle(gpu_client, s.segments == 0);
	gpu_memory_free_plain(0, memory);
}

/* No process can open a handle that it has made. */
Test(gpu_adopt_plain, in_its_own_process_it_is_where_it_is)
{
	share_client *other = connect_as("other");
	share_buffer *b, *found;
	char *memory;

	gpu_use();
	memory = gpu_memory_make_plain(0, SIZE);
	b = adopted(memory + PART, PART);
	publish_as(b, "data");
	drop(b);
	for (int i = 0; i < 2; i++) {
		found = found_by(i ? other : gpu_client, "data");
		check(share_ptr(found) == memory + PART);
		buffer_fill(found, 0x40 + i);
		buffer_expect(found, 0x40 + i);
		check_ok(share_buffer_status(found));
		drop(found);
	}
	unpublish("data");
	share_disconnect(other);
	settle(gpu_client, s.segments == 0);
	gpu_memory_free_plain(0, memory);
}

Test(gpu_adopt_plain, a_recipe_leads_to_it)
{
	share_recipe recipe = SHARE_RECIPE_INIT;
	const unsigned char nothing[64] = {0};
	share_buffer *b;
	char *memory;

	gpu_use();
	memory = gpu_memory_make_plain(0, SIZE);
	b = adopted(memory + PART, PART);
	check_ok(share_get_recipe(b, &recipe));
	check(strcmp(recipe.kind, "legacy") == 0);
	check_eq(recipe.segment_size, SIZE);
	check_eq(recipe.offset, PART);
	check(memcmp(recipe.pointer, nothing, sizeof(nothing)) != 0);
	close(recipe.fd);
	drop(b);
	gpu_memory_free_plain(0, memory);
}

/* ------------------------------------------------------------------------------------------- */

static void lends(struct child *self, void *data)
{
	share_client *c = child_connect("owner");
	share_buffer *b;
	share_pool *p;

	(void)data;
	gpu_use();
	p = adopting(c);
	b = adopted_by(p, gpu_memory_make_plain(0, SIZE), PART);
	buffer_fill(b, 0x44);
	publish_as(b, "data");
	drop(found_by(c, "data")); /* by which the broker knows that the work was done */
	child_point(self, "lent");
	/* an owner that lives, and that nobody asks who has it any more */
	drop(b);
	share_pool_close(p);
	share_disconnect(c);
	child_point(self, "has given it up");
}

/* Who has been told that it is gone has not been told too early: nobody gets it any more. */
Test(gpu_adopt_plain, it_is_gone_with_its_owner)
{
	struct child *owner = child_start(lends, NULL);
	char out[PART];
	share_buffer *b;

	child_wait(owner, "lent");
	gpu_use();
	b = found_by(gpu_client, "data");
	buffer_expect(b, 0x44);
	check_ok(share_buffer_status(b));
	child_kill(owner);
	until(share_buffer_status(b) == SHARE_EOWNERDEAD);
	expect_lost(gpu_client, "data");
	check_error(share_copy_to_host(b, 0, out, sizeof(out), NULL), SHARE_EOWNERDEAD);
	check_error(share_publish(b, "again", NULL), SHARE_EOWNERDEAD);
	settle(gpu_client, s.clients == 1);
	expect_lost(gpu_client, "data");
	unpublish("data");
	drop(b);
	settle(gpu_client, s.segments == 0);
}

/* It may free it then, as it is told. */
Test(gpu_adopt_plain, nobody_finds_what_its_owner_has_given_up)
{
	struct child *owner = child_start(lends, NULL);

	child_wait(owner, "lent");
	gpu_use();
	drop(found_by(gpu_client, "data"));
	child_go(owner);
	child_wait(owner, "has given it up");
	settle(gpu_client, s.clients == 1);
	expect_lost(gpu_client, "data");
	check_detail("has given it up");
	broker_kill_serving();
	check_ok(share_ping(gpu_client));
	expect_lost(gpu_client, "data");
	child_go(owner);
	child_finish(owner);
	unpublish("data");
	settle(gpu_client, s.segments == 0);
}

static void lends_by_two(struct child *self, void *data)
{
	share_client *c = child_connect("owner"), *second = child_connect("second");
	share_buffer *b;
	share_pool *p;

	(void)data;
	gpu_use();
	p = adopting(c);
	b = adopted_by(p, gpu_memory_make_plain(0, SIZE), PART);
	buffer_fill(b, 0x44);
	publish_as(b, "data");
	drop(b);
	b = found_by(second, "data");
	share_pool_close(p);
	share_disconnect(c);
	child_point(self, "has another connection");
	drop(b);
	share_disconnect(second);
	child_point(self, "has given it up");
}

Test(gpu_adopt_plain, an_owner_has_it_by_any_of_its_connections)
{
	struct child *owner = child_start(lends_by_two, NULL);
	share_buffer *b;

	child_wait(owner, "has another connection");
	settle(gpu_client, s.clients == 2);
	gpu_use();
	b = found_by(gpu_client, "data");
	buffer_expect(b, 0x44);
	drop(b);
	child_go(owner);
	child_wait(owner, "has given it up");
	settle(gpu_client, s.clients == 1);
	expect_lost(gpu_client, "data");
	child_go(owner);
	child_finish(owner);
	unpublish("data");
	settle(gpu_client, s.segments == 0);
}

static void has_it(struct child *self, void *data)
{
	share_client *c = child_connect("other");
	share_buffer *b;

	(void)data;
	child_point(self, "ready");
	b = found_by(c, "data");
	child_point(self, "found");
	buffer_expect(b, 0x66);
	drop(b);
	share_disconnect(c);
}

static void counts(void *data)
{
	++*(int *)data;
}

Test(gpu_adopt_plain, the_owner_is_told_when_nobody_else_has_it)
{
	struct child *other = child_start(has_it, NULL);
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	int told = 0;
	share_buffer *b;

	child_wait(other, "ready");
	gpu_use();
	options.memory = gpu_memory_make_plain(0, SIZE);
	options.done = counts;
	options.data = &told;
	check_ok(share_alloc_with(pool, SIZE, &options, NULL, &b));
	buffer_fill(b, 0x66);
	publish_as(b, "data");
	child_go(other);
	child_wait(other, "found");
	unpublish("data");
	check_error(share_reclaim(b, 0, NULL), SHARE_EBUSY);
	child_go(other);
	check_ok(share_reclaim(b, HARNESS_LIMIT_MS, NULL));
	child_finish(other);
	check_eq(told, 0);
	drop(b);
	until((share_ping(gpu_client), told == 1));
	gpu_memory_free_plain(0, options.memory);
}

/* It goes on with the broker that comes after one that was killed. */
Test(gpu_adopt_plain, it_survives_its_broker)
{
	struct child *other = child_start(has_it, NULL);
	share_buffer *b;
	char *memory;

	child_wait(other, "ready");
	gpu_use();
	memory = gpu_memory_make_plain(0, SIZE);
	b = adopted(memory + PART, PART);
	buffer_fill(b, 0x66);
	publish_as(b, "data");
	broker_kill_serving();
	check_ok(share_ping(gpu_client));
	child_go(other);
	child_wait(other, "found");
	unpublish("data");
	drop(b);
	child_go(other);
	child_finish(other);
	settle(gpu_client, s.buffers == 0 && s.segments == 0);
	gpu_memory_free_plain(0, memory);
}

/* ------------------------------------------------------------------------------------------- */

static void expect_refused(void *memory, uint64_t size, int error, const char *why)
{
	size_t before = descriptors_count(getpid());
	share_buffer *b = NULL;

	check_error(share_adopt(pool, memory, size, NULL, &b), error);
	check_detail(why);
	check(b == NULL);
	check_eq(descriptors_count(getpid()), before);
}

Test(gpu_adopt_plain, what_is_not_of_one_allocation_is_refused)
{
	char *memory;

	gpu_use();
	memory = gpu_memory_make_plain(0, SIZE);
	expect_refused(memory, SIZE + 1, SHARE_EINVAL, "does not lie in one allocation");
	expect_refused(memory + SIZE - 512, 513, SHARE_EINVAL, "512 bytes are of one");
	expect_refused(memory + 513, 512, SHARE_EINVAL, "begins at a multiple of 512");
	expect_refused(memory, INT64_MAX, SHARE_EINVAL, "no memory has");
	expect_refused(memory, 0, SHARE_EINVAL, "no memory has");
	drop(adopted(memory + SIZE - 512, 512));
	settle(gpu_client, s.segments == 0);
	gpu_memory_free_plain(0, memory);
	expect_refused(memory, SIZE, SHARE_EINVAL, "");
}

static void lends_another(struct child *self, void *data)
{
	share_client *c = child_connect("other");
	share_buffer *b;
	share_pool *p;

	(void)data;
	p = adopting(c);
	b = adopted_by(p, gpu_memory_make_plain(0, SIZE), SIZE);
	publish_as(b, "another's");
	drop(b);
	child_point(self, "lent");
	share_pool_close(p);
	share_disconnect(c);
}

Test(gpu_adopt_plain, what_is_a_buffer_already_is_refused)
{
	struct child *other = child_start(lends_another, NULL);
	share_buffer *b;
	char *memory;

	child_wait(other, "lent");
	gpu_use();
	memory = gpu_memory_make_plain(0, SIZE);
	b = adopted(memory, PART);
	expect_refused(memory, SIZE, SHARE_EEXIST, "was adopted already");
	expect_refused(memory + 512, PART, SHARE_EEXIST, "was adopted already");
	drop(b);
	b = found_by(gpu_client, "another's");
	expect_refused(share_ptr(b), PART, SHARE_EEXIST, "of a buffer already");
	drop(b);
	unpublish("another's");
	child_go(other);
	child_finish(other);
	settle(gpu_client, s.segments == 0);
	gpu_memory_free_plain(0, memory);
}

static void start_on_two(void)
{
	gpu_work_start_on("devices=2");
	pool = adopting(gpu_client);
}

static void uses_it(struct child *self, void *data)
{
	share_client *c = child_connect("other");
	share_buffer *b;

	(void)data;
	child_point(self, "ready");
	b = found_by(c, "data");
	check_eq(info_of(b).ordinal, 1);
	buffer_fill(b, 0x55);
	buffer_expect(b, 0x55);
	drop(b);
	share_disconnect(c);
}

/* Of which one is not this thread's. */
Test(gpu_adopt_plain_on_two, it_may_be_of_any_device, .init = start_on_two, .fini = stop,
     .timeout = 60)
{
	struct child *other = child_start(uses_it, NULL);
	share_buffer *b;
	char *memory;

	child_wait(other, "ready");
	gpu_use();
	memory = gpu_memory_make_plain(1, SIZE);
	b = adopted(memory, SIZE);
	check_eq(info_of(b).ordinal, 1);
	publish_as(b, "data");
	child_go(other);
	child_finish(other);
	unpublish("data");
	drop(b);
	settle(gpu_client, s.segments == 0);
	gpu_memory_free_plain(1, memory);
}
