/* SPDX-License-Identifier: MIT */

/*
 * Memory of a GPU that a program has made itself becomes a buffer like any other: others map the
 * allocation in which it lies, and its owner goes on using it where it is. It stays when its owner
 * dies. What others cannot have is refused in words, with nothing lost.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/channel.h>

#include "memory/cuda/driver.h"
#include "tests/harness/descriptors.h"
#include "tests/harness/fixture.h"
#include "tests/harness/memory.h"
#include "tests/support/channel_work.h"
#include "tests/support/gpu_memory.h"
#include "tests/support/gpu_work.h"

#define MIB   (UINT64_C(1) << 20)
#define PIECE (2 * MIB)
#define SIZE  (4 * MIB)
#define PART  (UINT64_C(64) << 10)

enum { FIRST }; /* gates */

static share_pool *pool;

static share_pool *adopting(share_client *c)
{
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;
	share_pool *p;

	o.kind = "adopted";
	o.limit = 16 * MIB;
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

TestSuite(gpu_adopt, .init = start, .fini = stop, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */

static char *made(uint64_t size)
{
	return gpu_memory_make(0, size, size, true);
}

static void unmake(void *memory, uint64_t size)
{
	gpu_memory_free(memory, size, size);
}

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

/* What was released on a stream is a buffer, and has its room, until the stream has come that far.
 */
static share_buffer *adopted_again(char *memory, uint64_t size)
{
	share_buffer *b = NULL;

	until(share_adopt(pool, memory, size, NULL, &b) == 0);
	return b;
}

static share_buffer_info info_of(share_buffer *b)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;

	check_ok(share_buffer_get_info(b, &info));
	return info;
}

static void publish(share_buffer *b)
{
	check_ok(share_publish(b, "data", NULL));
}

static share_buffer *found_by(share_client *c, int mode)
{
	share_buffer *b = NULL;

	check_ok(share_lookup(c, "data", mode, 0, NULL, &b));
	return b;
}

/* ------------------------------------------------------------------------------------------- */

static void reads_and_writes(struct child *self, void *data)
{
	share_client *c = child_connect("other");
	share_buffer *b;

	(void)data;
	child_point(self, "ready");
	b = found_by(c, SHARE_RDWR);
	buffer_expect(b, 0x11);
	buffer_fill(b, 0x22);
	check_ok(share_release(b, NULL));
	child_point(self, "written");
	share_disconnect(c);
}

Test(gpu_adopt, memory_that_is_there_becomes_a_buffer_without_a_copy)
{
	struct child *other = child_start(reads_and_writes, NULL);
	share_buffer_info info;
	share_buffer *b;
	char *memory;

	child_wait(other, "ready");
	gpu_use();
	memory = made(SIZE);
	b = adopted(memory, SIZE);
	info = info_of(b);
	check(strcmp(info.kind, "vmm") == 0);
	check_eq(info.ordinal, 0);
	check(strncmp(info.device, "GPU-", 4) == 0 || strncmp(info.device, "MIG-", 4) == 0);
	check_eq(info.segment_size, SIZE);
	check_eq(info.offset, 0);
	buffer_fill(b, 0x11);
	publish(b);
	child_go(other);
	child_wait(other, "written");
	buffer_expect(b, 0x22);
	child_go(other);
	child_finish(other);
	check_ok(share_unpublish(gpu_client, "data"));
	check_ok(share_release(b, NULL));
	unmake(memory, SIZE);
}

/* As a framework has it, whose tensors lie in larger allocations. What lies around it is mapped by
 * others as well, and left alone. */
Test(gpu_adopt, it_may_be_a_part_of_an_allocation)
{
	struct child *other = child_start(reads_and_writes, NULL);
	share_buffer *whole, *part;
	char *memory;

	child_wait(other, "ready");
	gpu_use();
	memory = made(SIZE);
	whole = adopted(memory, SIZE);
	buffer_fill(whole, 0x77);
	check_ok(share_release(whole, NULL));
	part = adopted_again(memory + 3 * PART, PART - 3);
	check_eq(info_of(part).segment_size, SIZE);
	check_eq(info_of(part).offset, 3 * PART);
	buffer_fill(part, 0x11);
	publish(part);
	child_go(other);
	child_wait(other, "written");
	buffer_expect(part, 0x22);
	child_go(other);
	child_finish(other);
	check_ok(share_unpublish(gpu_client, "data"));
	check_ok(share_release(part, NULL));
	part = adopted_again(memory, 3 * PART);
	buffer_expect(part, 0x77);
	check_ok(share_release(part, NULL));
	part = adopted_again(memory + 4 * PART, SIZE - 4 * PART);
	buffer_expect(part, 0x77);
	check_ok(share_release(part, NULL));
	unmake(memory, SIZE);
}

Test(gpu_adopt, two_parts_of_an_allocation_are_two_buffers)
{
	share_client *other = connect_as("other");
	share_buffer *b[2], *found;
	char *memory;

	gpu_use();
	memory = made(SIZE);
	for (int i = 0; i < 2; i++) {
		b[i] = adopted(memory + i * PART, PART);
		buffer_fill(b[i], 0x30 + i);
	}
	for (int i = 0; i < 2; i++) {
		publish(b[i]);
		found = found_by(other, SHARE_RDWR);
		check(share_ptr(found) == memory + i * PART); /* in one process it is where it is */
		buffer_expect(found, 0x30 + i);
		check_ok(share_release(found, NULL));
	}
	check_ok(share_unpublish(gpu_client, "data"));
	for (int i = 0; i < 2; i++)
		check_ok(share_release(b[i], NULL));
	share_disconnect(other);
	unmake(memory, SIZE);
}

static void lends_and_dies(struct child *self, void *data)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_client *c = child_connect("owner");
	share_buffer *b;

	(void)data;
	options.flags = SHARE_PUBLISH_PERSISTENT;
	gpu_use();
	b = adopted_by(adopting(c), made(SIZE), SIZE);
	buffer_fill(b, 0x44);
	check_ok(share_publish_with(b, "data", &options, NULL, NULL));
	gpu_wait(NULL);
	found_by(c, SHARE_RDONLY); /* by which the broker knows that the work was done */
	child_point(self, "published");
}

/* Who maps it first when the owner is dead finds it as it was. */
Test(gpu_adopt, the_memory_outlives_its_owner)
{
	struct child *owner = child_start(lends_and_dies, NULL);
	share_buffer *b;

	child_wait(owner, "published");
	child_kill(owner);
	settle(gpu_client, s.clients == 1);
	gpu_use();
	b = found_by(gpu_client, SHARE_RDWR);
	buffer_expect(b, 0x44);
	buffer_fill(b, 0x55);
	buffer_expect(b, 0x55);
	check_ok(share_unpublish(gpu_client, "data"));
	check_ok(share_release(b, NULL));
}

static void has_it(struct child *self, void *data)
{
	share_client *c = child_connect("other");
	share_buffer *b;

	(void)data;
	child_point(self, "ready");
	b = found_by(c, SHARE_RDONLY);
	child_point(self, "found");
	buffer_expect(b, 0x66);
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

static void counts(void *data)
{
	++*(int *)data;
}

Test(gpu_adopt, the_owner_is_told_when_nobody_else_has_it)
{
	struct child *other = child_start(has_it, NULL);
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	int told = 0;
	share_buffer *b;
	char *memory;

	child_wait(other, "ready");
	gpu_use();
	memory = made(SIZE);
	options.memory = memory;
	options.done = counts;
	options.data = &told;
	check_ok(share_alloc_with(pool, SIZE, &options, NULL, &b));
	buffer_fill(b, 0x66);
	publish(b);
	child_go(other);
	child_wait(other, "found");
	check_ok(share_unpublish(gpu_client, "data"));
	check_error(share_reclaim(b, 0, NULL), SHARE_EBUSY);
	child_go(other);
	check_ok(share_reclaim(b, HARNESS_LIMIT_MS, NULL));
	child_finish(other);
	check_eq(told, 0);
	check_ok(share_release(b, NULL));
	until((share_ping(gpu_client), told == 1));
	unmake(memory, SIZE);
}

/* The owner may free what others still have: it is theirs. */
Test(gpu_adopt, others_keep_what_the_owner_frees)
{
	struct child *other = child_start(has_it, NULL);
	share_buffer *b;
	char *memory;

	child_wait(other, "ready");
	gpu_use();
	memory = made(SIZE);
	b = adopted(memory, SIZE);
	buffer_fill(b, 0x66);
	publish(b);
	child_go(other);
	child_wait(other, "found");
	check_ok(share_unpublish(gpu_client, "data"));
	check_ok(share_release(b, NULL));
	unmake(memory, SIZE);
	child_go(other);
	child_finish(other);
}

static void receives_three(struct child *self, void *data)
{
	share_client *c = child_connect("consumer");
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *rx;

	(void)data;
	o.pool = "adopted";
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, &o, &rx));
	child_point(self, "ready");
	for (int i = 0; i < 3; i++) {
		share_message m = SHARE_MESSAGE_INIT;

		check_ok(share_recv(rx, HARNESS_LIMIT_MS, NULL, &m));
		check_ok(m.error);
		buffer_expect(m.buffer, 0x70 + i);
		check_ok(share_ack(&m, NULL));
	}
	share_channel_close(rx);
	share_disconnect(c);
}

Test(gpu_adopt, messages_carry_it)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	struct child *consumer = child_start(receives_three, NULL);
	share_channel *tx;
	share_buffer *b;
	char *memory;

	child_wait(consumer, "ready");
	gpu_use();
	o.pool = "adopted";
	check_ok(share_channel_open(gpu_client, "channel", SHARE_PRODUCER, &o, &tx));
	memory = made(SIZE);
	child_go(consumer);
	for (int i = 0; i < 3; i++) {
		b = adopted(memory + i * PART, PART);
		buffer_fill(b, 0x70 + i);
		check_ok(share_give(tx, b, NULL, 0, NULL));
	}
	child_finish(consumer);
	share_channel_close(tx);
	settle(gpu_client, s.buffers == 0);
	unmake(memory, SIZE);
}

static void acknowledges_behind_work_that_never_ends(struct child *self, void *data)
{
	share_client *c = child_connect("consumer");
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *rx;
	void *stream;

	(void)data;
	gpu_use();
	stream = gpu_stream();
	o.pool = "adopted";
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, &o, &rx));
	child_point(self, "ready");
	check_ok(share_recv(rx, HARNESS_LIMIT_MS, stream, &m));
	gpu_hold(stream, FIRST);
	check_ok(share_ack(&m, stream));
	child_point(self, "acknowledged");
}

/* Its fence is not reached when the channel is closed, and nobody allocates or releases later. */
Test(gpu_adopt, what_a_consumer_had_comes_back_once_it_has_died)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	struct child *consumer = child_start(acknowledges_behind_work_that_never_ends, NULL);
	share_channel *tx;
	char *memory;

	child_wait(consumer, "ready");
	gpu_use();
	o.pool = "adopted";
	check_ok(share_channel_open(gpu_client, "channel", SHARE_PRODUCER, &o, &tx));
	memory = made(PIECE);
	child_go(consumer);
	check_ok(share_give(tx, adopted(memory, PIECE), NULL, 0, NULL));
	child_wait(consumer, "acknowledged");
	share_channel_close(tx);
	settle(gpu_client, s.buffers == 1);
	child_kill(consumer);
	settle(gpu_client, s.buffers == 0);
	unmake(memory, PIECE);
}

/* What the owner has enqueued on the memory comes before what others do. */
Test(gpu_adopt, a_stream_orders_its_hand_over)
{
	share_client *other = connect_as("other");
	struct gpu_reading *reading;
	share_buffer *b, *found;
	void *mine, *theirs;
	char *memory;

	gpu_use();
	mine = gpu_stream();
	theirs = gpu_stream();
	memory = made(PIECE);
	check_ok(share_adopt(pool, memory, PIECE, mine, &b));
	gpu_fill(mine, b, 1);
	gpu_hold(mine, FIRST);
	gpu_fill(mine, b, 2);
	check_ok(share_publish(b, "data", mine));
	check_ok(share_lookup(other, "data", SHARE_RDWR, 0, theirs, &found));
	check_eq(gpu_ordered(found), SHARE_ORDERED_ON_STREAM);
	reading = gpu_read(theirs, found);
	gpu_expect_held(theirs, FIRST);
	gpu_open(FIRST);
	gpu_wait(theirs);
	gpu_expect(reading, 2);
	check_ok(share_release(found, theirs));
	check_ok(share_unpublish(gpu_client, "data"));
	check_ok(share_release(b, mine));
	gpu_wait(mine);
	share_disconnect(other);
	gpu_stream_destroy(mine);
	gpu_stream_destroy(theirs);
	unmake(memory, PIECE);
}

/* By plain CUDA: the allocation, and where the buffer is in it. */
Test(gpu_adopt, a_recipe_leads_to_it)
{
	share_recipe recipe = SHARE_RECIPE_INIT;
	share_buffer *b;
	char *memory;

	gpu_use();
	memory = made(SIZE);
	b = adopted(memory + PART, PART);
	check_ok(share_get_recipe(b, &recipe));
	check(strcmp(recipe.kind, "vmm") == 0);
	check_eq(recipe.segment_size, SIZE);
	check_eq(recipe.offset, PART);
	check(strcmp(recipe.device, info_of(b).device) == 0);
	close(recipe.fd);
	check_ok(share_release(b, NULL));
	unmake(memory, SIZE);
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

Test(gpu_adopt, what_is_not_of_one_allocation_is_refused)
{
	char *memory;

	gpu_use();
	memory = gpu_memory_make(0, SIZE, PIECE, true);
	expect_refused(memory, PIECE + 1, SHARE_EINVAL, "does not lie in one allocation");
	expect_refused(memory + PIECE - 512, 513, SHARE_EINVAL, "512 bytes are of one");
	expect_refused(memory + PIECE, SIZE, SHARE_EINVAL, "does not lie in one allocation");
	expect_refused(memory, INT64_MAX, SHARE_EINVAL, "no memory has");
	expect_refused(memory, 0, SHARE_EINVAL, "no memory has");
	check_ok(share_release(adopted(memory + PIECE, PIECE), NULL));
	gpu_memory_free(memory, SIZE, PIECE);
}

Test(gpu_adopt, what_begins_between_two_units_is_refused)
{
	char *memory;

	gpu_use();
	memory = made(PIECE);
	expect_refused(memory + 513, 512, SHARE_EINVAL, "begins at a multiple of 512");
	check_ok(share_release(adopted(memory + 512, 513), NULL));
	unmake(memory, PIECE);
}

Test(gpu_adopt, what_was_freed_is_refused)
{
	char *memory;

	gpu_use();
	memory = made(PIECE);
	unmake(memory, PIECE);
	expect_refused(memory, PIECE, SHARE_EINVAL, "");
}

Test(gpu_adopt, what_was_made_for_nobody_else_is_refused)
{
	char *memory;

	gpu_use();
	memory = gpu_memory_make(0, PIECE, PIECE, false);
	expect_refused(memory, PIECE, SHARE_ENOTSUP, "without CU_MEM_HANDLE_TYPE_POSIX_FILE");
	unmake(memory, PIECE);
}

static CUmemoryPool make_memory_pool(void)
{
	const CUmemPoolProps properties = {
	    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUmemoryPool p;

	GPU_CALL(PFN_cuMemPoolCreate_v11020, cuMemPoolCreate, &p, &properties);
	return p;
}

Test(gpu_adopt, other_memory_of_the_driver_is_refused)
{
	CUdeviceptr pooled, managed;
	CUmemoryPool p;

	gpu_use();
	p = make_memory_pool();
	GPU_CALL(PFN_cuMemAllocFromPoolAsync_v11020, cuMemAllocFromPoolAsync, &pooled, PIECE, p,
		 NULL);
	GPU_CALL(PFN_cuMemAllocManaged_v6000, cuMemAllocManaged, &managed, PIECE,
		 CU_MEM_ATTACH_GLOBAL);
	expect_refused((void *)(uintptr_t)pooled, PIECE, SHARE_ENOTSUP, "of a memory pool");
	expect_refused((void *)(uintptr_t)managed, PIECE, SHARE_ENOTSUP, "is managed");
	GPU_CALL(PFN_cuMemFree_v3020, cuMemFree_v2, managed);
	GPU_CALL(PFN_cuMemFreeAsync_v11020, cuMemFreeAsync, pooled, NULL);
	gpu_wait(NULL);
	GPU_CALL(PFN_cuMemPoolDestroy_v11020, cuMemPoolDestroy, p);
}

Test(gpu_adopt, memory_of_the_host_is_no_memory_of_a_device)
{
	char *memory = malloc(PIECE);

	gpu_use();
	check(memory != NULL);
	expect_refused(memory, PIECE, SHARE_EINVAL, "is this process's own");
	free(memory);
}

Test(gpu_adopt, what_is_a_buffer_already_is_refused)
{
	share_buffer *b, *of_pool;
	char *memory;

	gpu_use();
	memory = made(PIECE);
	b = adopted(memory, PIECE);
	expect_refused(memory, PIECE, SHARE_EEXIST, "was adopted already");
	expect_refused(memory + PART, PART, SHARE_EEXIST, "was adopted already");
	check_ok(share_release(b, NULL));
	check_ok(share_release(adopted_again(memory, PIECE), NULL));
	of_pool = gpu_allocate(gpu_client, NULL);
	expect_refused(share_ptr(of_pool), PART, SHARE_EEXIST, "of a buffer already");
	check_ok(share_release(of_pool, NULL));
	unmake(memory, PIECE);
}

/* All of an allocation is kept, whatever part of it is a buffer. */
Test(gpu_adopt, limits_are_for_it_as_well)
{
	share_buffer *all[4], *none = NULL;
	char *memory, *large;

	gpu_use();
	large = made(32 * MIB);
	memory = made(SIZE);
	expect_refused(large, PART, SHARE_ENOMEM, "can never hold");
	for (int i = 0; i < 4; i++)
		all[i] = adopted(memory + i * PART, PART);
	check_error(share_adopt(pool, memory + 4 * PART, PART, NULL, &none), SHARE_ENOMEM);
	check_eq(used_of(gpu_client, "bytes"),
		 4 * PART); /* the limit of the pool counts the rest */
	for (int i = 0; i < 4; i++)
		check_ok(share_release(all[i], NULL));
	check_ok(share_release(adopted_again(memory + 4 * PART, PART), NULL));
	unmake(memory, SIZE);
	unmake(large, 32 * MIB);
}

Test(gpu_adopt, nothing_is_allocated_beside_it)
{
	share_buffer *b, *none = NULL;
	char *memory;

	gpu_use();
	memory = made(SIZE);
	b = adopted(memory + PART, PART);
	check_error(share_alloc(pool, PART, NULL, &none), SHARE_ENOTSUP);
	check_ok(share_release(b, NULL));
	unmake(memory, SIZE);
}

/* It goes on with the broker that comes after one that was killed. */
Test(gpu_adopt, it_survives_its_broker)
{
	struct child *other = child_start(has_it, NULL);
	share_buffer *b;
	char *memory;

	child_wait(other, "ready");
	gpu_use();
	memory = made(SIZE);
	b = adopted(memory + PART, PART);
	buffer_fill(b, 0x66);
	publish(b);
	broker_kill_serving();
	check_ok(share_ping(gpu_client));
	child_go(other);
	child_wait(other, "found");
	check_ok(share_unpublish(gpu_client, "data"));
	check_ok(share_release(b, NULL));
	child_go(other);
	child_finish(other);
	settle(gpu_client, s.buffers == 0 && s.segments == 0);
	unmake(memory, SIZE);
}
