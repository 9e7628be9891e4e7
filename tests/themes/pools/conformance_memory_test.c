/* SPDX-License-Identifier: MIT */

/* Every kind of pool: what a buffer is to those who hold it. */

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/gate.h"
#include "tests/harness/raw.h"
#include "tests/themes/pools/conformance.h"

TestSuite(conformance, .timeout = 120);

ConformanceTest(what_is_written_is_read)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *b = allocate(p, 100000, NULL);

	check_eq(share_size(b), 100000);
	check_eq(share_mode(b), SHARE_RDWR);
	check(share_id(b) != 0);
	check_eq(share_name_version(b), 0);
	buffer_fill(b, 0x5a);
	buffer_expect(b, 0x5a);
	settle(c, s.buffers == 1 && s.leases == 1 && s.buffer_bytes >= 100000);
	check_ok(share_release(b, NULL));
	settle(c, s.buffers == 0 && s.leases == 0 && s.buffer_bytes == 0);
	share_pool_close(p);
	share_disconnect(c);
}

#define LIVE 64

ConformanceTest(live_buffers_never_overlap)
{
	share_client *c = connect_as("test");
	share_pool_options options = OPTIONS;
	share_buffer *live[LIVE] = {NULL};
	unsigned seed = 7;
	share_pool *p;

	options.limit = 64 * MIB;
	options.segment_size = UNIT;
	p = conformance_pool(c, kind, options);
	for (int i = 0; i < 3000; i++) {
		int k = rand_r(&seed) % LIVE;
		uint64_t size = 1 + (uint64_t)rand_r(&seed) % (i % 50 ? 20000 : 2000000);

		if (live[k]) {
			buffer_expect(live[k], k);
			check_ok(share_release(live[k], NULL));
			live[k] = NULL;
		} else if (share_alloc(p, size, NULL, &live[k]) == 0) {
			buffer_fill(live[k], k);
		}
	}
	for (int k = 0; k < LIVE; k++) {
		if (!live[k])
			continue;
		buffer_expect(live[k], k);
		check_ok(share_release(live[k], NULL));
	}
	settle(c, s.buffers == 0);
	share_pool_close(p);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Alignment                                                                                   */

static void expect_aligned(struct child *self, void *data)
{
	share_client *c = child_connect("other process");
	share_buffer *b;

	(void)data;
	child_point(self, "connected");
	for (uint64_t alignment = 512; alignment <= 2 * MIB; alignment *= 2) {
		char name[32];

		snprintf(name, sizeof(name), "%d", (int)alignment);
		check_ok(share_lookup(c, name, SHARE_RDONLY, 0, NULL, &b));
		check_eq((uintptr_t)share_ptr(b) % alignment, 0);
		check_ok(share_release(b, NULL));
		check_ok(share_lookup(c, name, SHARE_RDWR, 0, NULL, &b));
		check_eq((uintptr_t)share_ptr(b) % alignment, 0);
		check_ok(share_release(b, NULL));
	}
	share_disconnect(c);
}

ConformanceTest(an_alignment_asked_for_is_that_of_the_address_in_every_process)
{
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	struct child *child = child_start(expect_aligned, NULL);
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *odd = allocate(p, 1, NULL), *b;

	for (options.alignment = 512; options.alignment <= 2 * MIB; options.alignment *= 2) {
		char name[32];

		check_ok(share_alloc_with(p, 1000, &options, NULL, &b));
		check_eq((uintptr_t)share_ptr(b) % options.alignment, 0);
		snprintf(name, sizeof(name), "%d", (int)options.alignment);
		check_ok(share_publish(b, name, NULL));
		check_ok(share_release(b, NULL));
	}
	child_wait(child, "connected");
	child_go(child);
	child_finish(child);
	check_ok(share_release(odd, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(an_impossible_alignment_is_refused)
{
	static const uint64_t impossible[] = {3, 513, 768, 4 * MIB, UINT64_C(1) << 63, UINT64_MAX};
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *b = NULL;

	for (size_t i = 0; i < sizeof(impossible) / sizeof(impossible[0]); i++) {
		options.alignment = impossible[i];
		check_error(share_alloc_with(p, 1, &options, NULL, &b), SHARE_EINVAL);
	}
	check(b == NULL);
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(every_buffer_has_the_alignment_of_its_pool)
{
	share_alloc_options small = SHARE_ALLOC_OPTIONS_INIT;
	share_client *c = connect_as("test");
	share_pool_options options = OPTIONS;
	share_buffer *buffers[20];
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_pool *p;

	options.alignment = 65536;
	small.alignment = 512; /* less than the pool's means the pool's */
	p = conformance_pool(c, kind, options);
	check_ok(share_pool_get_info(p, &info));
	check_eq(info.alignment, 65536);
	for (int i = 0; i < 20; i++) {
		check_ok(share_alloc_with(p, 100 + (uint64_t)i * 1000, &small, NULL, &buffers[i]));
		check_eq((uintptr_t)share_ptr(buffers[i]) % 65536, 0);
	}
	for (int i = 0; i < 20; i++)
		check_ok(share_release(buffers[i], NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Between processes                                                                           */

static void answers_in_the_buffer(struct child *self, void *data)
{
	share_client *c = child_connect("other process");
	share_buffer *b;

	(void)data;
	child_point(self, "connected");
	check_ok(share_lookup(c, "letter", SHARE_RDWR, 0, NULL, &b));
	check(buffer_reads(b, "question"));
	buffer_write(b, "answer");
	child_point(self, "answered");
	check(buffer_reads(b, "thanks"));
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

ConformanceTest(processes_share_the_content)
{
	struct child *child = child_start(answers_in_the_buffer, NULL);
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *b = allocate(p, 4096, NULL);

	buffer_write(b, "question");
	check_ok(share_publish(b, "letter", NULL));
	child_wait(child, "connected");
	child_go(child);
	child_wait(child, "answered");
	check(buffer_reads(b, "answer"));
	buffer_write(b, "thanks");
	child_go(child);
	child_finish(child);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

static void stores_into_read_only(struct child *self, void *data)
{
	share_client *c = child_connect("vandal");
	share_buffer *b;
	char *page;

	child_point(self, "connected");
	check_ok(share_lookup(c, "letter", SHARE_RDONLY, 0, NULL, &b));
	check_eq(share_mode(b), SHARE_RDONLY);
	check(buffer_reads(b, "question"));
	check_error(share_copy_from_host(b, 0, "x", 1, NULL), SHARE_EACCES);
	if (!is_host(data)) {
		check_ok(share_release(b, NULL));
		share_disconnect(c);
		return;
	}
	/* what is in the way is the mapping, not the library; and it cannot be made writable */
	page = (char *)((uintptr_t)share_ptr(b) & ~(uintptr_t)4095);
	check(mprotect(page, 4096, PROT_READ | PROT_WRITE) < 0);
	signal(SIGSEGV, SIG_DFL); /* sanitizers have a handler of their own */
	*(volatile char *)share_ptr(b) = 'x';
}

ConformanceTest(nothing_can_be_stored_into_a_read_only_buffer)
{
	struct child *child = child_start(stores_into_read_only, (void *)(uintptr_t)kind);
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *b = allocate(p, 4096, NULL);

	buffer_write(b, "question");
	check_ok(share_publish(b, "letter", NULL));
	child_wait(child, "connected");
	child_go(child);
	if (is_host(kind)) {
		int status = child_status(child);

		check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	} else {
		child_finish(child);
	}
	check(buffer_reads(b, "question"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(one_process_may_hold_a_buffer_for_reading_and_for_writing)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *b = allocate(p, 4096, NULL), *ro, *rw;

	check_ok(share_publish(b, "letter", NULL));
	check_ok(share_lookup(c, "letter", SHARE_RDONLY, 0, NULL, &ro));
	check_ok(share_lookup(c, "letter", SHARE_RDWR, 0, NULL, &rw));
	check_eq(share_id(ro), share_id(b));
	check(share_ptr(rw) == share_ptr(b));
	/* where nothing can be mapped read-only, it is the same mapping */
	check((share_ptr(ro) == share_ptr(b)) ==
	      (strcmp(kind, "mempool") == 0 || strcmp(kind, "legacy") == 0));
	buffer_write(rw, "seen");
	check(buffer_reads(ro, "seen"));
	check_error(share_copy_from_host(ro, 0, "x", 1, NULL), SHARE_EACCES);
	settle(c, s.leases == 1 && s.buffers == 1);
	check_ok(share_release(b, NULL));
	check_ok(share_release(rw, NULL));
	check(buffer_reads(ro, "seen"));
	check_ok(share_unpublish(c, "letter"));
	check_ok(share_release(ro, NULL));
	settle(c, s.leases == 0 && s.buffers == 0);
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(a_handle_lives_until_its_last_reference_is_released)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *b = allocate(p, 4096, NULL);

	buffer_write(b, "here");
	for (int i = 0; i < 3; i++)
		check(share_retain(b) == b);
	for (int i = 0; i < 3; i++) {
		check_ok(share_release(b, NULL));
		check(buffer_reads(b, "here"));
	}
	settle(c, s.leases == 1);
	check_ok(share_release(b, NULL));
	settle(c, s.leases == 0);
	check(share_retain(NULL) == NULL);
	share_pool_close(p);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Identifiers                                                                                 */

static int compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

ConformanceTest(an_identifier_is_never_used_again)
{
	static uint64_t ids[5000];
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);

	for (int i = 0; i < 5000; i++) {
		share_buffer *b = allocate(p, 512, NULL);

		ids[i] = share_id(b);
		check_ok(share_release(b, NULL));
	}
	qsort(ids, 5000, sizeof(ids[0]), compare);
	for (int i = 1; i < 5000; i++)
		check(ids[i - 1] != ids[i]);
	share_pool_close(p);
	share_disconnect(c);
}

/* What no handle of the library can do. */
ConformanceTest(stale_released_and_foreign_identifiers_are_refused)
{
	struct wire_message release = {.type = WIRE_RELEASE}, get = {.type = WIRE_METADATA_GET},
			    publish = {.type = WIRE_PUBLISH};
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *foreign = allocate(p, 4096, NULL);
	struct raw r;
	uint64_t own;

	raw_open(&r, "raw");
	own = raw_alloc(&r, raw_pool(&r, "test"), 4096);
	get.metadata_get.buffer = share_id(foreign);
	raw_ask_error(&r, &get, SHARE_ESTALE);
	publish.publish.buffer = share_id(foreign);
	publish.publish.name = raw_text("mine");
	raw_ask_error(&r, &publish, SHARE_ESTALE);
	release.release.buffer = share_id(foreign);
	release.release.count = 1;
	raw_ask_error(&r, &release, SHARE_ESTALE);

	release.release.buffer = own;
	release.release.count = 2;
	raw_ask_error(&r, &release, SHARE_EINVAL);
	release.release.count = 1;
	raw_ask(&r, &release, WIRE_DONE);
	raw_ask_error(&r, &release, SHARE_ESTALE);
	get.metadata_get.buffer = own;
	raw_ask_error(&r, &get, SHARE_ESTALE);
	get.metadata_get.buffer = own + (UINT64_C(1) << 32);
	raw_ask_error(&r, &get, SHARE_ESTALE);
	get.metadata_get.buffer = UINT64_MAX;
	raw_ask_error(&r, &get, SHARE_ESTALE);

	buffer_fill(foreign, 1);
	settle(c, s.buffers == 1 && s.leases == 1);
	check_ok(share_release(foreign, NULL));
	raw_request(&r, &(struct wire_message){.type = WIRE_BYE});
	raw_close(&r);
	share_pool_close(p);
	share_disconnect(c);
}
