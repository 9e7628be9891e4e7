/* SPDX-License-Identifier: MIT */

/* Where a buffer lies, and how to reach it without the library. */

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/raw.h"
#include "tests/themes/pools/conformance.h"

TestSuite(conformance, .timeout = 120);

ConformanceTest(a_buffer_tells_where_it_lies)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *a = allocate(p, 1000, NULL), *b = allocate(p, 1000, NULL);
	share_buffer_info info = SHARE_BUFFER_INFO_INIT, other = SHARE_BUFFER_INFO_INIT;
	share_pool_info pool = SHARE_POOL_INFO_INIT;

	check_ok(share_pool_get_info(p, &pool));
	check_ok(share_buffer_get_info(a, &info));
	check_ok(share_buffer_get_info(b, &other));
	check(strcmp(info.kind, kind) == 0);
	check_eq(info.segment, other.segment);
	check(info.offset != other.offset);
	check_eq((uint64_t)((char *)share_ptr(b) - (char *)share_ptr(a)),
		 other.offset - info.offset);
	check(info.segment_size >= info.offset + 1000);
	if (is_host(kind)) {
		check(info.device == NULL && pool.device == NULL);
		check(info.ordinal == -1);
	} else {
		check(info.device != NULL && strcmp(info.device, pool.device) == 0);
		check(info.ordinal >= 0);
	}
	check(pool.reason != NULL && pool.reason[0] != '\0');
	check_error(share_buffer_get_info(NULL, &info), SHARE_EINVAL);
	check_error(share_buffer_get_info(a, NULL), SHARE_EINVAL);
	info.size = 3;
	check_error(share_buffer_get_info(a, &info), SHARE_EINVAL);
	check_ok(share_release(a, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(a_recipe_says_how_to_reach_a_buffer)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *first = allocate(p, 1000, NULL), *b = allocate(p, 1000, NULL);
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	share_recipe recipe = SHARE_RECIPE_INIT, bad = SHARE_RECIPE_INIT;
	static const unsigned char zeros[sizeof(recipe.pointer)];

	check_ok(share_buffer_get_info(b, &info));
	check_ok(share_get_recipe(b, &recipe));
	check(strcmp(recipe.kind, kind) == 0);
	check_eq(recipe.mode, SHARE_RDWR);
	check_eq(recipe.offset, info.offset);
	check_eq(recipe.segment_size, info.segment_size);
	check(strcmp(recipe.device, info.device ? info.device : "") == 0);
	/* only memory pools have pointers to export, and only legacy memory handles of its own */
	check((memcmp(recipe.pointer, zeros, sizeof(zeros)) != 0) ==
	      (strcmp(kind, "mempool") == 0 || strcmp(kind, "legacy") == 0));
	check(recipe.fd >= 0 && fcntl(recipe.fd, F_GETFD) == FD_CLOEXEC);
	close(recipe.fd);
	check_error(share_get_recipe(NULL, &bad), SHARE_EINVAL);
	check_error(share_get_recipe(b, NULL), SHARE_EINVAL);
	bad.size = 1;
	check_error(share_get_recipe(b, &bad), SHARE_EINVAL);
	check_eq(bad.fd, -1);
	check_ok(share_release(first, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(nobody_gets_the_recipe_of_what_he_does_not_hold)
{
	struct wire_message get = {.type = WIRE_RECIPE_GET};
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *b = allocate(p, 1000, NULL);
	struct raw r;

	raw_open(&r, "raw");
	get.recipe_get.buffer = share_id(b);
	raw_ask_error(&r, &get, SHARE_ESTALE);
	get.recipe_get.buffer = UINT64_MAX;
	raw_ask_error(&r, &get, SHARE_ESTALE);
	raw_request(&r, &(struct wire_message){.type = WIRE_BYE});
	raw_close(&r);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */

#define skip_unless_host(kind)                                                              \
	do {                                                                                \
		if (!is_host(kind))                                                         \
			cr_skip_test("memory of a device takes CUDA: see plain_cuda_test"); \
	} while (0)

ConformanceTest(a_recipe_of_host_memory_is_something_to_mmap)
{
	share_recipe recipe = SHARE_RECIPE_INIT;
	share_buffer *first, *b;
	share_client *c;
	share_pool *p;
	char *base;

	skip_unless_host(kind);
	c = connect_as("test");
	p = conformance_pool(c, kind, OPTIONS);
	first = allocate(p, 5000, NULL);
	b = allocate(p, 5000, NULL);
	buffer_write(b, "through the library");
	check_ok(share_get_recipe(b, &recipe));
	base = mmap(NULL, recipe.segment_size, PROT_READ | PROT_WRITE, MAP_SHARED, recipe.fd, 0);
	check(base != MAP_FAILED);
	close(recipe.fd);
	check(strcmp(base + recipe.offset, "through the library") == 0);
	strcpy(base + recipe.offset, "and back");
	check(buffer_reads(b, "and back"));
	munmap(base, recipe.segment_size);
	check_ok(share_release(first, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

static void maps_read_only(struct child *self, void *data)
{
	share_client *c = child_connect("reader");
	share_recipe recipe = SHARE_RECIPE_INIT;
	share_buffer *b;
	void *base;

	(void)self, (void)data;
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b));
	check_ok(share_get_recipe(b, &recipe));
	check_eq(recipe.mode, SHARE_RDONLY);
	check(mmap(NULL, recipe.segment_size, PROT_READ | PROT_WRITE, MAP_SHARED, recipe.fd, 0) ==
	      MAP_FAILED);
	base = mmap(NULL, recipe.segment_size, PROT_READ, MAP_SHARED, recipe.fd, 0);
	check(base != MAP_FAILED);
	check(strcmp((char *)base + recipe.offset, "read me") == 0);
	close(recipe.fd);
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

ConformanceTest(a_recipe_for_who_may_only_read_is_for_reading)
{
	share_client *c;
	share_buffer *b;
	share_pool *p;

	skip_unless_host(kind);
	c = connect_as("test");
	p = conformance_pool(c, kind, OPTIONS);
	b = allocate(p, 5000, NULL);
	buffer_write(b, "read me");
	check_ok(share_publish(b, "name", NULL));
	child_finish(child_start(maps_read_only, NULL));
	check_ok(share_unpublish(c, "name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}
