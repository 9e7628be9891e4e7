/* SPDX-License-Identifier: MIT */
/*
 * Which pools are possible, what is assumed of those that say little, and the exact words about the
 * others: as a client asks for them, and as the file lists them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <jansson.h>

#include <share/share.h>

#include "base/size.h"
#include "broker/config/pool.h"

TestSuite(pool_config, .timeout = 30);

/* ------------------------------------------------------------------------------------------- */
/* Pools from the socket                                                                       */

static void expect_invalid(struct pool_config p, const char *expected)
{
	char error[CONFIG_ERROR_MAX] = "";

	cr_assert_eq(pool_config_validate(&p, GIB, error, sizeof(error)), CONFIG_EINVALID);
	cr_assert_str_eq(error, expected);
}

static struct pool_config valid(struct pool_config p)
{
	char error[CONFIG_ERROR_MAX] = "";

	cr_assert_eq(pool_config_validate(&p, GIB, error, sizeof(error)), 0, "%s", error);
	return p;
}

static char pool_name[] = "p";

#define POOL(...) \
	((struct pool_config){.name = pool_name, .release_threshold = UINT64_MAX, __VA_ARGS__})

Test(pool_config, what_is_left_out_is_filled_in)
{
	struct pool_config p = POOL_CONFIG_INIT;

	p.name = pool_name;
	p = valid(p);
	cr_assert_str_eq(p.kind, "auto");
	cr_assert_eq(p.limit, GIB);
	cr_assert_eq(p.segment_size, 64 * MIB);
	cr_assert_eq(p.alignment, 512);
	cr_assert_eq(p.release_threshold, 64 * MIB);
}

Test(pool_config, validating_twice_changes_nothing)
{
	struct pool_config once = valid(POOL(.limit = 100000)), twice = valid(once);

	cr_assert_eq(once.limit, twice.limit);
	cr_assert_eq(once.segment_size, twice.segment_size);
	cr_assert_eq(once.alignment, twice.alignment);
	cr_assert_eq(once.release_threshold, twice.release_threshold);
	cr_assert_eq(once.kind, twice.kind);
}

Test(pool_config, the_kind_does_not_point_to_the_callers_text)
{
	char kind[] = "host";
	struct pool_config p = valid(POOL(.kind = kind));

	cr_assert_neq(p.kind, kind);
	cr_assert_str_eq(p.kind, "host");
	expect_invalid(POOL(.kind = "managed"),
		       "kind: \"managed\" is not a kind of pool (auto, vmm, mempool, legacy, "
		       "pinned, host, adopted)");
	expect_invalid(
	    POOL(.kind = ""),
	    "kind: \"\" is not a kind of pool (auto, vmm, mempool, legacy, pinned, host, adopted)");
}

Test(pool_config, a_device_is_named_by_its_uuid)
{
	char uuid[] = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50", ordinal[] = "0";

	cr_assert_str_eq(valid(POOL(.kind = "vmm", .device = uuid)).device, uuid);
	cr_assert_str_eq(valid(POOL(.device = uuid)).device, uuid);
	expect_invalid(POOL(.device = ordinal),
		       "device: \"0\" is not the UUID of a device (like "
		       "\"GPU-5fd4f087-86f3-7a43-b711-4771313afc50\"; see sharectl devices)");
	expect_invalid(POOL(.kind = "host", .device = uuid),
		       "device: a pool of kind host is on no device");
}

Test(pool_config, mempools_cannot_lie_at_an_address_asked_for)
{
	cr_assert(valid(POOL(.kind = "vmm", .same_address = true)).same_address);
	expect_invalid(POOL(.kind = "mempool", .same_address = true),
		       "same_address: is not possible with kind mempool (the driver says where it "
		       "lies: use vmm)");
}

Test(pool_config, memory_is_used_again_in_one_of_three_ways)
{
	cr_assert_eq(valid(POOL(.kind = "host")).reuse, SHARE_REUSE_GATE);
	cr_assert_eq(valid(POOL(.reuse = SHARE_REUSE_CLEAN)).reuse, SHARE_REUSE_CLEAN);
	cr_assert_eq(valid(POOL(.reuse = SHARE_REUSE_SCRUB)).reuse, SHARE_REUSE_SCRUB);
	expect_invalid(POOL(.reuse = 3), "reuse: 3 is not an enum share_reuse");
	cr_assert_str_eq(pool_reuse_name(SHARE_REUSE_GATE), "gate");
	cr_assert_str_eq(pool_reuse_name(SHARE_REUSE_CLEAN), "clean");
	cr_assert_str_eq(pool_reuse_name(SHARE_REUSE_SCRUB), "scrub");
}

Test(pool_config, pages_are_those_of_host_memory)
{
	cr_assert_eq(valid(POOL(.kind = "host", .prefault = MIB)).prefault, MIB);
	cr_assert_eq(valid(POOL(.numa = SHARE_NUMA_NODE(7))).numa, 8);
	cr_assert_eq(valid(POOL(.numa = SHARE_NUMA_INTERLEAVE)).numa, UINT32_MAX);
	cr_assert_eq(valid(POOL(.huge_pages = SHARE_HUGE_PAGES_REQUIRE)).huge_pages, 2);
	expect_invalid(POOL(.huge_pages = 3), "huge_pages: 3 is not an enum share_huge_pages");
	expect_invalid(POOL(.numa = 2000), "numa: 1999 is not the number of a node");
	expect_invalid(POOL(.kind = "vmm", .prefault = MIB),
		       "prefault: is not possible with kind vmm (it is about memory of kind host)");
	expect_invalid(POOL(.kind = "mempool", .numa = 1),
		       "numa: is not possible with kind mempool (it is about memory of kind host)");
	expect_invalid(POOL(.limit = 64 * MIB, .prefault = 65 * MIB),
		       "prefault: 65MiB is more than the pool's limit (64MiB)");
}

Test(pool_config, a_small_pool_has_small_segments)
{
	cr_assert_eq(valid(POOL(.limit = 65536)).segment_size, 65536);
	cr_assert_eq(valid(POOL(.limit = 70000)).segment_size, 69632);
	cr_assert_eq(valid(POOL(.limit = 64 * MIB)).segment_size, 64 * MIB);
	expect_invalid(POOL(.limit = 65535),
		       "limit: 65535 is less than the smallest segment (64KiB)");
}

/* They cost descriptors, which are few: 2^45 bytes in pieces of 64 KiB would take all there are. */
Test(pool_config, a_large_pool_has_large_segments)
{
	cr_assert_eq(valid(POOL(.limit = 16 * TIB)).segment_size, 64 * MIB);
	cr_assert_eq(valid(POOL(.limit = 32 * TIB)).segment_size, 128 * MIB);
	cr_assert_eq(valid(POOL(.limit = 4 * GIB, .segment_size = 65536)).segment_size, 65536);
	expect_invalid(POOL(.limit = 32 * TIB, .segment_size = 65536),
		       "segment_size: 64KiB is too small for the pool's limit of 32TiB (at most "
		       "262144 segments)");
	expect_invalid(POOL(.limit = 129 * TIB), "limit: 129TiB is not possible (at most 128TiB)");
	/* as much as is possible */
	cr_assert_eq(valid(POOL(.limit = UINT64_MAX)).limit, 16 * TIB);
	cr_assert_eq(valid(POOL(.limit = UINT64_MAX, .segment_size = 65536)).limit, 16 * GIB);
	cr_assert_eq(valid(POOL(.limit = UINT64_MAX, .segment_size = TIB)).limit, 128 * TIB);
}

Test(pool_config, segment_sizes_are_rounded_up_to_pages)
{
	cr_assert_eq(valid(POOL(.segment_size = 65537)).segment_size, 69632);
	cr_assert_eq(valid(POOL(.segment_size = 65536)).segment_size, 65536);
	cr_assert_eq(valid(POOL(.limit = TIB, .segment_size = TIB)).segment_size, TIB);
	expect_invalid(POOL(.limit = 70000, .segment_size = 70000),
		       "segment_size: 72KiB is more than the pool's limit (70000)");
	expect_invalid(POOL(.segment_size = 65535),
		       "segment_size: 65535 is not possible (64KiB to 1TiB)");
	expect_invalid(POOL(.segment_size = TIB + 1),
		       "segment_size: 1.0TiB (1099511627777) is not possible (64KiB to 1TiB)");
	expect_invalid(
	    POOL(.segment_size = UINT64_MAX),
	    "segment_size: 16.0EiB (18446744073709551615) is not possible (64KiB to 1TiB)");
	expect_invalid(POOL(.segment_size = 2 * GIB),
		       "segment_size: 2GiB is more than the pool's limit (1GiB)");
}

Test(pool_config, alignments_are_powers_of_two)
{
	for (uint64_t a = 512; a <= 2 * MIB; a *= 2)
		cr_assert_eq(valid(POOL(.alignment = a)).alignment, a);
	expect_invalid(POOL(.alignment = 256),
		       "alignment: 256 is not possible (a power of two, 512 to 2MiB)");
	expect_invalid(POOL(.alignment = 768),
		       "alignment: 768 is not possible (a power of two, 512 to 2MiB)");
	expect_invalid(POOL(.alignment = 4 * MIB),
		       "alignment: 4MiB is not possible (a power of two, 512 to 2MiB)");
	expect_invalid(POOL(.alignment = 2 * MIB, .segment_size = MIB),
		       "alignment: 2MiB is more than a segment of the pool (1MiB)");
}

Test(pool_config, nothing_can_be_kept_or_everything)
{
	cr_assert_eq(valid(POOL(.segment_size = MIB)).release_threshold, MIB);
	cr_assert_eq(valid((struct pool_config){.name = pool_name}).release_threshold, 0);
	cr_assert_eq(valid((struct pool_config){.name = pool_name, .release_threshold = TIB})
			 .release_threshold,
		     TIB);
}

Test(pool_config, a_pool_needs_a_name)
{
	char escape[] = "a\x1b", latin[] = "\xe9";

	expect_invalid((struct pool_config)POOL_CONFIG_INIT, "lacks \"name\"");
	expect_invalid((struct pool_config){.name = escape},
		       "name: \"a\\u001b\" is not a name (1 to 255 bytes of UTF-8 without control "
		       "characters)");
	expect_invalid((struct pool_config){.name = latin},
		       "name: \"\\xe9\" is not a name (1 to 255 bytes of UTF-8 without control "
		       "characters)");
}

/* ------------------------------------------------------------------------------------------- */
/* Pools from the file                                                                         */

/* Reads "pools" of a document. */
static int read_pools(const char *text, struct pool_config **out, size_t *n, char *error,
		      size_t size)
{
	const struct config_reader r = {
	    .file = "FILE", .text = text, .size = strlen(text), .error = error, .error_size = size};
	json_t *document;
	int e = config_parse(&r, NULL, &document);

	if (e == 0) {
		e = pool_configs_read(&r, CONFIG_KEY(NULL, "pools"),
				      json_object_get(document, "pools"), GIB, out, n);
		json_decref(document);
	}
	return e;
}

static void expect_error(const char *text, const char *expected)
{
	char error[CONFIG_ERROR_MAX] = "";
	struct pool_config *out = NULL;
	size_t n = 7;

	cr_assert_eq(read_pools(text, &out, &n, error, sizeof(error)), CONFIG_EINVALID);
	cr_assert_str_eq(error, expected);
	cr_assert(out == NULL && n == 7);
}

Test(pool_config, a_list_lets_in_those_it_names_and_nobody_else)
{
	char error[CONFIG_ERROR_MAX] = "";
	struct pool_config *pools;
	size_t n;

	cr_assert_eq(read_pools("{\"pools\": [{\"name\": \"a\"}, {\"name\": \"b\", \"limit\": "
				"\"2GiB\", \"access\": [{\"user\": 70001, \"mode\": \"rw\"}]}]}",
				&pools, &n, error, sizeof(error)),
		     0, "%s", error);
	cr_assert_eq(n, 2);
	cr_assert_str_eq(pools[0].name, "a");
	cr_assert_eq(pools[0].limit, GIB);
	cr_assert_eq(pools[0].segment_size, 64 * MIB);
	cr_assert_eq(pools[0].access.n_entries, 0);
	cr_assert_str_eq(pools[1].name, "b");
	cr_assert_eq(pools[1].limit, 2 * GIB);
	cr_assert_eq(access_check(&pools[1].access, 70001, NULL, 0), ACCESS_RW);
	cr_assert_eq(pools[1].access.n_entries, 1);
	pool_configs_free(pools, n);
}

Test(pool_config, nobody_is_in_the_default_pool_yet)
{
	struct pool_config *pools;
	size_t n;

	cr_assert_eq(pool_configs_default(POOL_MIN_LIMIT, &pools, &n), 0);
	cr_assert_eq(n, 1);
	cr_assert_str_eq(pools[0].name, "default");
	cr_assert_eq(pools[0].limit, POOL_MIN_LIMIT);
	cr_assert_eq(pools[0].segment_size, POOL_MIN_LIMIT);
	cr_assert_eq(pools[0].access.n_entries, 0);
	pool_configs_free(pools, n);
	pool_configs_free(NULL, 0);
}

Test(pool_config, what_is_not_a_list_of_pools_is_an_error)
{
	expect_error("{\"pools\": {}}",
		     "FILE:1: pools: an object is not a list (like [{\"name\": \"frames\"}])");
	expect_error("{\"pools\": [null]}",
		     "FILE:1: pools[0]: null is not an object (like "
		     "{\"name\": \"frames\", \"limit\": \"4GiB\"})");
	expect_error("{\"pools\": [{\"name\": false}]}",
		     "FILE:1: pools[0].name: false is not a name");
	expect_error("{\"pools\": [{\"name\": \"a\", \"kind\": 1.5}]}",
		     "FILE:1: pools[0].kind: 1.5 is not a kind of pool");
	expect_error("{\"pools\": [{\"name\": \"a\", \"access\": \"*\"}]}",
		     "FILE:1: pools[0].access: \"*\" is not a list (like [{\"user\": \"alice\", "
		     "\"mode\": \"rw\"}])");
}

Test(pool_config, impossible_pools_are_errors)
{
	expect_error(
	    "{\"pools\": [{\"name\": \"a\",\n \"limit\": \"4GiB\",\n"
	    " \"segment_size\": \"8GiB\"}]}",
	    "FILE:3: pools[0].segment_size: 8GiB is more than the pool's limit (4GiB)");
	expect_error("{\"pools\": [{\"name\": \"a\", \"kind\": \"managed\"}]}",
		     "FILE:1: pools[0].kind: \"managed\" is not a kind of pool (auto, vmm, "
		     "mempool, legacy, pinned, host, adopted)");
	expect_error("{\"pools\": [{\"name\": \"a\", \"same_address\": 1}]}",
		     "FILE:1: pools[0].same_address: 1 is neither true nor false");
	expect_error("{\"pools\": [{\"name\": \"a\",\n\"reuse\": \"dirty\"}]}",
		     "FILE:2: pools[0].reuse: \"dirty\" is not a way to use memory again (gate, "
		     "clean, scrub)");
	expect_error("{\"pools\": [{\"name\": \"a\", \"reuse\": true}]}",
		     "FILE:1: pools[0].reuse: true is not a way to use memory again");
	expect_error(
	    "{\"pools\": [{\"name\": \"a\",\n\"huge_pages\": \"never\"}]}",
	    "FILE:2: pools[0].huge_pages: \"never\" is not a way to have huge pages (system, "
	    "advise, require)");
	expect_error(
	    "{\"pools\": [{\"name\": \"a\",\n\"numa\": \"near\"}]}",
	    "FILE:2: pools[0].numa: \"near\" is not a NUMA policy (\"any\", \"interleave\", "
	    "or the number of a node)");
	expect_error("{\"pools\": [{\"name\": \"a\",\n\"numa\": -1}]}",
		     "FILE:2: pools[0].numa: -1 is not a NUMA policy (\"any\", \"interleave\", or "
		     "the number of a node)");
	expect_error("{\"pools\": [\n{\"limit\": \"4GiB\"}]}", "FILE:2: pools[0]: lacks \"name\"");
	expect_error("{\"pools\": [{\"name\": \"\"}]}",
		     "FILE:1: pools[0].name: \"\" is not a name (1 to 255 bytes of UTF-8 without "
		     "control characters)");
	expect_error("{\"pools\": [{\"name\": \"a\\n\"}]}",
		     "FILE:1: pools[0].name: \"a\\u000a\" is not a name (1 to 255 bytes of UTF-8 "
		     "without control characters)");
}

Test(pool_config, too_many_pools_are_an_error)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	cr_assert_not_null(f);
	fputs("{\"pools\": [0", f);
	for (size_t i = 0; i < CONFIG_MAX_POOLS; i++)
		fputs(", 0", f);
	fputs("]}", f);
	fclose(f);
	expect_error(text, "FILE:1: pools: 4097 pools are too many (at most 4096)");
	free(text);
}

Test(pool_config, two_pools_of_one_name_are_an_error)
{
	expect_error(
	    "{\"pools\": [\n{\"name\": \"a\"},\n{\"name\": \"b\"},\n{\"limit\": \"1GiB\",\n"
	    "\"name\": \"a\"}]}",
	    "FILE:5: pools[2].name: \"a\" is the name of pools[0] already");
}
