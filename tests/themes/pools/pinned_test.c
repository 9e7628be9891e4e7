/* SPDX-License-Identifier: MIT */

/*
 * Memory of kind pinned: host memory that belongs to a device as far as order goes, and that the
 * CPU reaches at the same address.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <share/admin.h>

#include "tests/harness/fixture.h"
#include "tests/harness/memory.h"
#include "tests/support/kinds.h"

#define MIB  (UINT64_C(1) << 20)
#define UNIT (2 * MIB)
#define SIZE 100000

static const char config[] = "{\"create_pools\": [\"*\"], \"pools\": []}";

static void start_on(const char *machine)
{
	skip_unless_standin();
	kinds_start_on(machine, config);
}

static void start(void)
{
	start_on("memory=67108864");
}

static void start_without(void)
{
	start_on("numa=0");
}

static void start_with_two(void)
{
	start_on("devices=2,peers=0");
}

static void stop(void)
{
	fixture_uses_devices();
	fixture_stop();
}

TestSuite(pinned, .timeout = 120);
#define Pinned(sentence, start) Test(pinned, sentence, .init = start, .fini = stop)

static share_pool *make_pool(share_client *c, uint64_t limit)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *p;

	options.kind = "pinned";
	options.limit = limit;
	options.segment_size = UNIT;
	check_ok(share_pool_create(c, "test", &options, &p));
	return p;
}

/* Its CPU sees what that of the first process has stored, stores itself, and what it may only read
 * it cannot store to. */
static void uses_its_cpu(struct child *self, void *data)
{
	share_client *c = child_connect("other process");
	share_buffer *ro, *rw;
	int ends[2];

	(void)data;
	child_point(self, "connected");
	check_ok(share_lookup(c, "letter", SHARE_RDONLY, 0, NULL, &ro));
	check(strcmp(share_ptr(ro), "question") == 0);
	check(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
	check(read(ends[0], share_ptr(ro), 1) == -1 && errno == EFAULT);
	check_ok(share_lookup(c, "letter", SHARE_RDWR, 0, NULL, &rw));
	strcpy(share_ptr(rw), "answer");
	check(buffer_reads(ro, "answer"));
	check_ok(share_release(ro, NULL));
	check_ok(share_release(rw, NULL));
	share_disconnect(c);
	close(ends[0]);
	close(ends[1]);
}

Pinned(the_cpu_of_every_process_reaches_it_where_the_device_does, start)
{
	struct child *child = child_start(uses_its_cpu, NULL);
	share_client *c = connect_as("test");
	share_pool *p = make_pool(c, 8 * MIB);
	share_buffer *b = allocate(p, SIZE, NULL);

	strcpy(share_ptr(b), "question");
	check(buffer_reads(b, "question"));
	check_ok(share_publish(b, "letter", NULL));
	child_wait(child, "connected");
	child_go(child);
	child_finish(child);
	check(strcmp(share_ptr(b), "answer") == 0);
	/* what the device does the CPU sees once the stream is done */
	buffer_fill(b, 0x5a);
	check_eq(((unsigned char *)share_ptr(b))[SIZE - 1], 0x5a);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* The device has 64 MiB, which a pool of its own memory can have beside. */
Pinned(it_takes_no_memory_of_the_device, start)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *c = connect_as("test");
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_pool *p = make_pool(c, 128 * MIB), *own;
	share_buffer *b[48], *all;

	check_ok(share_pool_get_info(p, &info));
	check_eq(info.limit, 128 * MIB);
	check(info.device != NULL);
	for (int i = 0; i < 48; i++)
		b[i] = allocate(p, UNIT, NULL);
	options.kind = "vmm";
	options.segment_size = UNIT;
	check_ok(share_pool_create(c, "own", &options, &own));
	all = allocate(own, 64 * MIB, NULL);
	check_ok(share_release(all, NULL));
	share_pool_close(own);
	for (int i = 0; i < 48; i++)
		check_ok(share_release(b[i], NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Pinned(memory_of_a_pool_cannot_be_adopted, start)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_client *c = connect_as("test");
	share_pool *p = make_pool(c, 8 * MIB), *adopts;
	share_buffer *b = allocate(p, SIZE, NULL), *none = NULL;

	options.kind = "adopted";
	check_ok(share_pool_create(c, "adopts", &options, &adopts));
	check_error(share_adopt(adopts, share_ptr(b), 4096, NULL, &none), SHARE_EEXIST);
	check_detail("is of a buffer already");
	share_pool_close(adopts);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* Neither device reaches the other one's memory. */
Pinned(it_is_reached_by_devices_without_peer_access, start_with_two)
{
	share_client *c = connect_as("test");
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_pool *p = make_pool(c, 8 * MIB), *far;
	share_buffer *b = allocate(p, SIZE, NULL), *to;
	char other[64];

	check_ok(share_pool_get_info(p, &info));
	snprintf(other, sizeof(other), "%s", info.device);
	other[strlen(other) - 1] = '1'; /* "standin-device-1" */
	options.kind = "vmm";
	options.device = other;
	options.limit = 8 * MIB;
	options.segment_size = UNIT;
	check_ok(share_pool_create(c, "far", &options, &far));
	to = allocate(far, SIZE, NULL);
	memset(share_ptr(b), 0x33, SIZE);
	check_ok(share_copy(to, 0, b, 0, SIZE, NULL));
	buffer_expect(to, 0x33);
	check_ok(share_release(b, NULL));
	check_ok(share_release(to, NULL));
	share_pool_close(p);
	share_pool_close(far);
	share_disconnect(c);
}

Pinned(where_the_driver_has_no_such_memory_a_pool_is_refused_and_why, start_without)
{
	share_client *c = connect_as("test");
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *p = NULL;

	options.kind = "pinned";
	check_error(share_pool_create(c, "test", &options, &p), SHARE_ENOTSUP);
	check_detail("the driver does not say that it reaches memory of a NUMA node of the host");
	check(p == NULL);
	share_disconnect(c);
}
