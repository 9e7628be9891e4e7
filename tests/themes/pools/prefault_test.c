/* SPDX-License-Identifier: MIT */

/*
 * The pages of host pools: made before anybody needs them, huge, and of NUMA nodes. What a machine
 * has of these is looked up, and either way something is expected.
 */

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/kind.h"
#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

#define MIB     (UINT64_C(1) << 20)
#define SEGMENT (4 * MIB)
#define PAGE    4096
#define AHEAD   (8 * MIB)

static share_client *client;

static void start(void)
{
	fixture_start();
	client = connect_as("one");
}

static void stop(void)
{
	if (!check_has_failed())
		share_disconnect(client);
	fixture_stop();
}

TestSuite(prefault, .init = start, .fini = stop, .timeout = 60);

static share_pool_options host_options(uint64_t prefault)
{
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;

	o.kind = "host";
	o.limit = 1024 * MIB;
	o.segment_size = SEGMENT;
	o.prefault = prefault;
	return o;
}

static share_pool *make(const char *name, const share_pool_options *o)
{
	share_pool *p;

	check_ok(share_pool_create(client, name, o, &p));
	return p;
}

static int64_t of_pool(const char *name, const char *key)
{
	json_t *rows = report(client, "pools");
	json_t *row = row_named(rows, "pool", name);
	int64_t n = row ? number_of(row, key) : -1;

	json_decref(rows);
	return n;
}

static bool is_there(const char *name, uint64_t bytes)
{
	return of_pool(name, "prefaulted") == (int64_t)bytes;
}

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

/* How many faults it takes to write to each page. Those of a sanitizer's own memory are none of it.
 */
__attribute__((no_sanitize("address"))) static long touch(share_buffer *b, uint64_t size)
{
	volatile char *at = share_ptr(b);
	long before = faults();

	for (uint64_t i = 0; i < size; i += PAGE)
		at[i] = 1;
	return faults() - before;
}

/* Where nothing is made ahead each page is a fault, whose number the kernel may make smaller by
 * huge pages alone. */
Test(prefault, memory_that_was_made_ahead_takes_no_faults)
{
	share_pool_options o = host_options(AHEAD);
	share_pool *p = make("ahead", &o);
	share_buffer *one, *other;

	check_eq(of_pool("ahead", "prefault"), AHEAD);
	until(is_there("ahead", AHEAD));
	check_eq(of_pool("ahead", "segments"), AHEAD / SEGMENT);
	one = allocate(p, SEGMENT, NULL);
	other = allocate(p, SEGMENT, NULL);
	check(touch(one, SEGMENT) + touch(other, SEGMENT) < (long)(AHEAD / PAGE / 8));
	/* what does not lie in these is as ever */
	share_release(one, NULL);
	share_release(other, NULL);
	share_pool_close(p);
}

Test(prefault, what_is_ahead_stays_when_it_is_empty_and_goes_with_the_pool)
{
	share_pool_options o = host_options(AHEAD);
	share_pool *p;
	share_buffer *b[3];

	o.release_threshold = SHARE_KEEP_NONE;
	p = make("ahead", &o);
	for (int i = 0; i < 3; i++)
		b[i] = allocate(p, SEGMENT, NULL);
	until(is_there("ahead", AHEAD));
	check_eq(of_pool("ahead", "segments"), 3);
	check_ok(share_pool_set_cache(p, 0));
	for (int i = 0; i < 3; i++)
		share_release(b[i], NULL);
	until(of_pool("ahead", "segments") == 2);
	share_pool_close(p);
	settle(client, s.pools == 1 && s.segments == 0);
}

/* The page that is being made when its segment ends is no exception. */
Test(prefault, a_pool_that_is_destroyed_meanwhile_leaves_nothing)
{
	share_pool_options o = host_options(256 * MIB);
	int before;

	share_pool_close(make("first", &o));
	settle(client, s.pools == 1 && s.segments == 0);
	before = broker_descriptors();
	for (int i = 0; i < 16; i++) {
		share_pool *p = make("ahead", &o);

		/* at once, while one is on its way, and a little later */
		if (i % 3 == 1)
			until(of_pool("ahead", "prefaulted") > 0);
		check_ok(share_pool_destroy(client, "ahead"));
		share_pool_close(p);
	}
	settle(client, s.pools == 1 && s.segments == 0);
	until(broker_descriptors() == before);
}

Test(prefault, the_next_broker_goes_on_with_it)
{
	share_pool_options o = host_options(128 * MIB);
	share_pool *p = make("ahead", &o);
	share_buffer *b = allocate(p, SEGMENT, NULL);
	char *at = share_ptr(b);

	memset(at, 0x5a, SEGMENT);
	for (int i = 0; i < 3; i++)
		broker_kill_serving();
	until(is_there("ahead", 128 * MIB));
	broker_kill_serving();
	check(is_there("ahead", 128 * MIB));
	check_eq(of_pool("ahead", "prefault"), 128 * MIB);
	for (uint64_t i = 0; i < SEGMENT; i++)
		if (at[i] != 0x5a)
			check_failed(__FILE__, __LINE__, "byte %lu is another", (unsigned long)i);
	share_release(b, NULL);
	share_pool_close(p);
}

/* The first segment is larger than what is made ahead; and the next broker finds two that nothing
 * was made of. */
Test(prefault, no_more_is_made_than_was_asked_for)
{
	share_pool_options o = host_options(2 * MIB), other = host_options(SEGMENT);
	share_pool *p, *last;
	share_buffer *b[3];

	o.segment_size = 16 * MIB;
	p = make("ahead", &o);
	for (int i = 0; i < 3; i++)
		b[i] = allocate(p, 16 * MIB, NULL);
	until(is_there("ahead", 2 * MIB));
	check_eq(of_pool("ahead", "segments"), 3);
	broker_kill_serving();
	/* is made after those */
	last = make("last", &other);
	until(is_there("last", SEGMENT));
	check_eq(of_pool("ahead", "prefaulted"), 2 * MIB);
	share_pool_close(last);
	for (int i = 0; i < 3; i++)
		share_release(b[i], NULL);
	share_pool_close(p);
}

/* What a client has mapped is its own then, with the piece that is being made. */
Test(prefault, a_broker_that_ends_meanwhile_takes_nothing_back)
{
	const uint64_t size = 256 * MIB;
	share_pool_options o = host_options(size);
	share_buffer *b;
	share_pool *p;
	char *at;

	o.segment_size = size;
	p = make("ahead", &o);
	b = allocate(p, size, NULL);
	at = share_ptr(b);
	for (uint64_t i = 0; i < size; i += 2 * MIB)
		at[i] = 1;
	check(kill(broker_pid(), SIGTERM) == 0);
	check_eq(broker_wait(), 0);
	for (uint64_t i = 0; i < size; i += 2 * MIB)
		check_eq(at[i], 1);
	share_release(b, NULL);
	share_pool_close(p);
}

/* Without libshare, of this version of the protocol: the flags of the recipe that it is sent. */
static void gets_recipe(struct child *self, void *data)
{
	struct memory_recipe recipe;
	struct raw r;

	raw_connect(&r);
	r.version = *(const uint32_t *)data;
	raw_greet(&r, "raw");
	raw_alloc(&r, raw_pool(&r, "ahead"), PAGE);
	check_eq(r.m.grant.recipe.size, sizeof(recipe));
	memcpy(&recipe, r.m.grant.recipe.data, sizeof(recipe));
	child_point_with(self, "has it", &recipe.flags, sizeof(recipe.flags));
}

static uint32_t flags_for(uint32_t version)
{
	struct child *child = child_start(gets_recipe, &version);
	uint32_t flags;

	child_wait_with(child, "has it", &flags, sizeof(flags));
	child_go(child);
	child_finish(child);
	return flags;
}

/* Such a library refuses a recipe with flags that it does not know. */
Test(prefault, a_library_of_the_version_before_is_told_nothing_of_it)
{
	share_pool_options o = host_options(AHEAD);
	share_pool *p;

	o.huge_pages = SHARE_HUGE_PAGES_ADVISE;
	p = make("ahead", &o);
	until(is_there("ahead", AHEAD));
	check_eq(flags_for(WIRE_VERSION_HOST_PAGES - 1), 0);
	check_eq(flags_for(WIRE_VERSION), MEMORY_HUGE_PAGES | MEMORY_IS_THERE);
	share_pool_close(p);
}

/* Free memory is taken for anybody's by the next broker. Who maps what was given back of it would
 * have it made again, all of it. */
Test(prefault, memory_that_was_scrubbed_is_not_said_to_be_all_there)
{
	share_pool_options o = host_options(SEGMENT);
	share_buffer *b;
	share_pool *p;

	o.reuse = SHARE_REUSE_SCRUB;
	p = make("ahead", &o);
	until(is_there("ahead", SEGMENT));
	check_eq(flags_for(WIRE_VERSION), MEMORY_IS_THERE);
	broker_kill_serving();
	b = allocate(p, SEGMENT / 2, NULL);
	check_eq(flags_for(WIRE_VERSION), 0);
	check(is_there("ahead", SEGMENT));
	share_release(b, NULL);
	share_pool_close(p);
}

/* ------------------------------------------------------------------------------------------- */

/* And the one that the broker came from. */
struct group {
	char path[PATH_MAX], parent[PATH_MAX];
};

static bool write_to(const char *folder, const char *name, const char *text)
{
	char path[PATH_MAX + 64];
	FILE *file;
	bool good;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "we");
	if (!file)
		return false;
	good = fputs(text, file) >= 0;
	return fclose(file) == 0 && good;
}

/* A cgroup of that many bytes, for the broker. False where this process may make none. */
static bool make_group(struct group *g, const char *bytes)
{
	char line[PATH_MAX], *own = NULL;
	FILE *file = fopen("/proc/self/cgroup", "re");
	const char *limit = "memory.max", *root = "/sys/fs/cgroup";

	while (!own && file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (strstr(line, ":memory:")) {
			own = strstr(line, ":memory:") + strlen(":memory:");
			limit = "memory.limit_in_bytes";
			root = "/sys/fs/cgroup/memory";
		} else if (strncmp(line, "0::", 3) == 0 &&
			   access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0) {
			own = line + 3;
		}
	}
	if (file)
		fclose(file);
	if (!own || snprintf(g->parent, sizeof(g->parent), "%.200s%.2000s", root, own) < 0 ||
	    snprintf(g->path, sizeof(g->path), "%.2200s/share-test-%d", g->parent, (int)getpid()) <
		0)
		return false;
	if (mkdir(g->path, 0755) < 0)
		return false;
	if (write_to(g->path, limit, bytes))
		return true;
	rmdir(g->path);
	return false;
}

/* Without a look at what is left, the kernel kills the broker for it. */
Test(prefault, a_cgroup_that_has_no_memory_left_ends_it_and_not_the_broker)
{
	share_pool_options o = host_options(1024 * MIB);
	struct group group;
	char pid[32];
	pid_t serving;
	share_pool *p;

	if (!make_group(&group, "201326592")) /* 192 MiB */
		cr_skip_test("needs a cgroup of its own with a limit of memory");
	serving = broker_pid();
	snprintf(pid, sizeof(pid), "%d", (int)serving);
	check(write_to(group.path, "cgroup.procs", pid));
	p = make("ahead", &o);
	until(broker_said("left; the rest comes as it is used") > 0);
	check(of_pool("ahead", "prefaulted") >= (int64_t)(32 * MIB));
	check(of_pool("ahead", "prefaulted") <= (int64_t)(160 * MIB));
	check_eq(broker_pid(), serving);
	share_pool_close(p);
	settle(client, s.pools == 1 && s.segments == 0);
	check(write_to(group.parent, "cgroup.procs", pid));
	until(rmdir(group.path) == 0);
}

/* ------------------------------------------------------------------------------------------- */

static void expect_reason(share_pool *p, const char *text)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;

	check_ok(share_pool_get_info(p, &info));
	if (!strstr(info.reason, text))
		check_failed(__FILE__, __LINE__, "\"%s\" is not in \"%s\"", text, info.reason);
}

Test(prefault, memory_is_spread_over_nodes_even_where_there_is_one)
{
	share_pool_options o = host_options(AHEAD);
	share_pool *p;

	o.numa = SHARE_NUMA_INTERLEAVE;
	p = make("spread", &o);
	until(is_there("spread", AHEAD));
	expect_reason(p, "; spread over ");
	share_pool_close(p);
	o.numa = SHARE_NUMA_NODE(0);
	p = make("near", &o);
	until(is_there("near", AHEAD));
	expect_reason(p, "; of NUMA node 0 as long as it has memory");
	share_pool_close(p);
	o.numa = SHARE_NUMA_NODE(1023);
	check_error(share_pool_create(client, "nowhere", &o, &p), SHARE_EINVAL);
	check_detail("numa: the broker may have no memory of node 1023, but of: 0");
	o.numa = SHARE_NUMA_NODE(1024);
	check_error(share_pool_create(client, "nowhere", &o, &p), SHARE_EINVAL);
	check_detail("numa: 1024 is not the number of a node");
}

static bool read_text(const char *path, char *out, size_t size)
{
	FILE *file = fopen(path, "re");
	bool good = file && fgets(out, (int)size, file);

	if (file)
		fclose(file);
	return good;
}

Test(prefault, huge_pages_that_are_advised_are_what_the_kernel_gives)
{
	static const char path[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	share_pool_options o = host_options(AHEAD);
	char word[256] = "[never]";
	share_buffer *b;
	share_pool *p;
	bool any;

	read_text(path, word, sizeof(word));
	any = !strstr(word, "[never]") && !strstr(word, "[deny]");
	o.huge_pages = SHARE_HUGE_PAGES_ADVISE;
	p = make("huge", &o);
	until(is_there("huge", AHEAD));
	expect_reason(p, any ? "; huge pages where the kernel finds them" : "; no huge pages, as ");
	b = allocate(p, SEGMENT, NULL);
	check(touch(b, SEGMENT) < (long)(SEGMENT / PAGE / 8));
	share_release(b, NULL);
	share_pool_close(p);
}

static long huge_pages_of_the_machine(const char *name)
{
	char path[128], text[64] = "0";

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-2048kB/%s", name);
	read_text(path, text, sizeof(text));
	return atol(text);
}

static void use_reserved(share_pool_options *o)
{
	long before = huge_pages_of_the_machine("resv_hugepages");
	share_buffer *b;
	share_pool *p;

	o->prefault = 0;
	o->segment_size = 4 * MIB;
	o->limit = 4 * MIB;
	p = make("huge", o);
	expect_reason(p, "; huge pages of 2 MiB, reserved");
	b = allocate(p, 3 * MIB, NULL);
	check_eq(huge_pages_of_the_machine("resv_hugepages"), before + 2);
	check(touch(b, 3 * MIB) <= 8);
	share_release(b, NULL);
	share_pool_close(p);
	settle(client, s.segments == 0);
	until(huge_pages_of_the_machine("resv_hugepages") == before);
	/* more than there are */
	o->limit = o->segment_size =
	    (uint64_t)(huge_pages_of_the_machine("nr_hugepages") + 8) * 2 * MIB;
	p = make("many", o);
	check_error(share_alloc(p, PAGE, NULL, &b), SHARE_ENOMEM);
	check_detail("huge pages of 2 MiB are wanted, and ");
	share_pool_close(p);
}

Test(prefault, huge_pages_that_are_required_are_there_or_the_pool_is_not)
{
	share_pool_options o = host_options(0);
	share_pool *p;

	o.huge_pages = SHARE_HUGE_PAGES_REQUIRE;
	if (huge_pages_of_the_machine("free_hugepages") >= 4) {
		use_reserved(&o);
		return;
	}
	if (huge_pages_of_the_machine("nr_hugepages") > 0)
		cr_skip_test("somebody else has the huge pages of this machine");
	check_error(share_pool_create(client, "huge", &o, &p), SHARE_ENOTSUP);
	check_detail("huge_pages: \"require\": this machine has no huge pages of 2 MiB");
}

Test(prefault, a_pool_that_is_there_is_compared)
{
	share_pool_options o = host_options(AHEAD);
	share_pool *p, *again;

	o.huge_pages = SHARE_HUGE_PAGES_ADVISE;
	o.numa = SHARE_NUMA_NODE(0);
	o.flags = SHARE_POOL_OPEN_OR_CREATE;
	p = make("ahead", &o);
	check_ok(share_pool_create(client, "ahead", &o, &again));
	share_pool_close(again);
	o.prefault = MIB;
	check_error(share_pool_create(client, "ahead", &o, &again), SHARE_EEXIST);
	check_detail("prefault");
	o.prefault = 0;
	o.huge_pages = SHARE_HUGE_PAGES_REQUIRE;
	check_error(share_pool_create(client, "ahead", &o, &again), SHARE_EEXIST);
	check_detail("huge_pages");
	o.huge_pages = SHARE_HUGE_PAGES_SYSTEM;
	o.numa = SHARE_NUMA_INTERLEAVE;
	check_error(share_pool_create(client, "ahead", &o, &again), SHARE_EEXIST);
	check_detail("numa");
	o.numa = SHARE_NUMA_ANY;
	check_ok(share_pool_create(client, "ahead", &o, &again));
	share_pool_close(again);
	share_pool_close(p);
}

Test(prefault, what_cannot_be_is_refused)
{
	share_pool_options o = host_options(0);
	share_pool *p;

	o.prefault = o.limit + 1;
	check_error(share_pool_create(client, "no", &o, &p), SHARE_EINVAL);
	check_detail("prefault: ");
	o.prefault = 0;
	o.huge_pages = 3;
	check_error(share_pool_create(client, "no", &o, &p), SHARE_EINVAL);
	check_detail("huge_pages: 3 is not an enum share_huge_pages");
	o.huge_pages = SHARE_HUGE_PAGES_ADVISE;
	o.kind = "adopted";
	check_error(share_pool_create(client, "no", &o, &p), SHARE_EINVAL);
	check_detail("huge_pages: is not possible with kind adopted");
}
