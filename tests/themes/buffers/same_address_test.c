/* SPDX-License-Identifier: MIT */

/* Pools whose memory lies at the same address in every process. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/themes/pools/conformance.h"

TestSuite(conformance, .timeout = 120);

static bool is_placeable(const char *kind)
{
	return strcmp(kind, "mempool") != 0 && strcmp(kind, "legacy") != 0;
}

static share_pool_options same_address(void)
{
	share_pool_options options = OPTIONS;

	options.flags = SHARE_POOL_SAME_ADDRESS;
	options.segment_size = UNIT;
	return options;
}

#define skip_unless_placeable(kind)                                                                \
	do {                                                                                       \
		if (!is_placeable(kind))                                                           \
			cr_skip_test("where memory of kind %s lies is the driver's choice", kind); \
	} while (0)

ConformanceTest(where_the_driver_chooses_addresses_such_a_pool_is_refused)
{
	share_pool_options options = same_address();
	share_client *c = connect_as("test");
	share_pool *p = NULL;
	int r;

	options.kind = kind;
	r = share_pool_create(c, "test", &options, &p);
	if (is_placeable(kind)) {
		share_pool_info info = SHARE_POOL_INFO_INIT;

		check_ok(r);
		check_ok(share_pool_get_info(p, &info));
		check_eq(info.flags & SHARE_POOL_SAME_ADDRESS, SHARE_POOL_SAME_ADDRESS);
	} else {
		check(p == NULL);
		check(r == SHARE_ENOTSUP || r == SHARE_EINVAL);
		check_detail("use vmm");
	}
	share_pool_close(p);
	share_disconnect(c);
}

/* Tells where it has the buffers "0" to "2". */
static void tells_addresses(struct child *self, void *data)
{
	share_client *c = child_connect("other process");
	uint64_t addresses[3];
	share_buffer *b;

	(void)data;
	child_point(self, "connected");
	for (int i = 0; i < 3; i++) {
		char name[2] = {(char)('0' + i), '\0'};

		check_ok(share_lookup(c, name, i == 1 ? SHARE_RDWR : SHARE_RDONLY, 0, NULL, &b));
		addresses[i] = (uintptr_t)share_ptr(b);
		buffer_expect(b, i);
		check_ok(share_release(b, NULL));
	}
	child_point_with(self, "told", addresses, sizeof(addresses));
	share_disconnect(c);
}

ConformanceTest(a_buffer_has_the_same_address_in_every_process)
{
	struct child *child;
	uint64_t addresses[3];
	share_buffer *b[3];
	share_client *c;
	share_pool *p;

	skip_unless_placeable(kind);
	child = child_start(tells_addresses, NULL);
	c = connect_as("test");
	p = conformance_pool(c, kind, same_address());
	for (int i = 0; i < 3; i++) { /* of two segments */
		char name[2] = {(char)('0' + i), '\0'};

		b[i] = allocate(p, UNIT / 2, NULL);
		buffer_fill(b[i], i);
		check_ok(share_publish(b[i], name, NULL));
	}
	child_wait(child, "connected");
	child_go(child);
	child_wait_with(child, "told", addresses, sizeof(addresses));
	child_go(child);
	for (int i = 0; i < 3; i++)
		check_eq(addresses[i], (uintptr_t)share_ptr(b[i]));
	child_finish(child);
	for (int i = 0; i < 3; i++)
		check_ok(share_release(b[i], NULL));
	share_pool_close(p);
	share_disconnect(c);
}

static void reads_then_writes(struct child *self, void *data)
{
	share_client *c = child_connect("other process");
	share_buffer *ro, *rw;

	(void)data;
	child_point(self, "connected");
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &ro));
	check(buffer_reads(ro, "first"));
	check_error(share_copy_from_host(ro, 0, "x", 1, NULL), SHARE_EACCES);
	check_ok(share_lookup(c, "name", SHARE_RDWR, 0, NULL, &rw));
	check(share_ptr(ro) == share_ptr(rw));
	buffer_write(rw, "second");
	check(buffer_reads(ro, "second"));
	check_ok(share_release(rw, NULL));
	check(buffer_reads(ro, "second"));
	check_ok(share_release(ro, NULL));
	share_disconnect(c);
}

ConformanceTest(what_was_mapped_for_reading_becomes_writable_in_its_place)
{
	struct child *child;
	share_client *c;
	share_buffer *b;
	share_pool *p;

	skip_unless_placeable(kind);
	child = child_start(reads_then_writes, NULL);
	c = connect_as("test");
	p = conformance_pool(c, kind, same_address());
	b = allocate(p, 4096, NULL);
	buffer_write(b, "first");
	check_ok(share_publish(b, "name", NULL));
	child_wait(child, "connected");
	child_go(child);
	child_finish(child);
	check(buffer_reads(b, "second"));
	check_ok(share_unpublish(c, "name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

static void has_something_there(struct child *self, void *data)
{
	const char *kind = data;
	share_client *c = child_connect("crowded one");
	share_buffer *b = NULL;
	char address[32];
	uint64_t at;
	void *mine;
	int r;

	child_exchange(self, "connected", NULL, 0, &at, sizeof(at));
	at &= ~(uint64_t)(UNIT - 1);
	mine = mmap((void *)(uintptr_t)at, 4096, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	check(mine == (void *)(uintptr_t)at);
	check_error(share_lookup(c, "name", SHARE_RDWR, 0, NULL, &b), SHARE_EBUSY);
	check(b == NULL);
	snprintf(address, sizeof(address), "0x%" PRIx64, at);
	check_detail(address);
	check_error(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b), SHARE_EBUSY);
	/* nothing is lost by it: once the place is free, it works */
	check(munmap(mine, 4096) == 0);
	r = share_lookup(c, "name", SHARE_RDWR, 0, NULL, &b);
	/* a driver may remember what was there: then it says so again */
	if (r != 0) {
		check(!is_host(kind));
		check_error(r, SHARE_EBUSY);
	} else {
		check_eq((uintptr_t)share_ptr(b) & ~(UNIT - 1), at);
		check(buffer_reads(b, "here"));
		check_ok(share_release(b, NULL));
	}
	share_disconnect(c);
}

ConformanceTest(where_something_else_lies_there_acquiring_says_busy)
{
	struct child *child;
	share_client *c;
	share_buffer *b;
	share_pool *p;
	uint64_t at;

	skip_unless_placeable(kind);
	child = child_start(has_something_there, (void *)(uintptr_t)kind);
	c = connect_as("test");
	p = conformance_pool(c, kind, same_address());
	b = allocate(p, 4096, NULL);
	buffer_write(b, "here");
	check_ok(share_publish(b, "name", NULL));
	at = (uintptr_t)share_ptr(b);
	child_wait(child, "connected");
	child_go_with(child, &at, sizeof(at));
	child_finish(child);
	check(buffer_reads(b, "here"));
	check_ok(share_unpublish(c, "name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(memory_at_a_fixed_address_can_go_back_and_be_had_again)
{
	share_client *c;
	share_pool *p;

	skip_unless_placeable(kind);
	c = connect_as("test");
	p = conformance_pool(c, kind, same_address());
	for (int i = 0; i < 20; i++) {
		share_buffer *a = allocate(p, UNIT, NULL), *b = allocate(p, UNIT, NULL);

		check(share_ptr(a) != share_ptr(b));
		buffer_fill(a, i);
		buffer_fill(b, i + 1);
		buffer_expect(a, i);
		buffer_expect(b, i + 1);
		check_ok(share_release(a, NULL));
		check_ok(share_release(b, NULL));
	}
	share_pool_close(p);
	settle(c, s.segments == 0);
	share_disconnect(c);
}
