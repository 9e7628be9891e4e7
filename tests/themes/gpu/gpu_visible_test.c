/* SPDX-License-Identifier: MIT */

/*
 * Which device a process means, and what it can do there: devices are matched by UUID, whatever the
 * process sees of them and in whatever order, and a device can use the memory of another one where
 * the driver lets it.
 */

#include <stdio.h>
#include <stdlib.h>

#include "libshare/buffer/buffer.h"
#include "memory/cuda/driver.h"
#include "tests/harness/fixture.h"
#include "tests/harness/memory.h"
#include "tests/support/gpu_owner.h"

TestSuite(gpu_visible, .init = gpu_start, .fini = gpu_stop, .timeout = 120);

#define N(array) (sizeof(array) / sizeof((array)[0]))

static void sees_no_device(struct child *self, void *data)
{
	share_client *c;
	share_buffer *b = NULL;

	(void)self;
	setenv("CUDA_VISIBLE_DEVICES", data, 1);
	c = child_connect("blind");
	check_error(look_up(c, &b), SHARE_ENODEV);
	check(b == NULL);
	check_detail("CUDA_VISIBLE_DEVICES");
	share_disconnect(c);
}

Test(gpu_visible, a_device_that_is_hidden_is_missed_by_name)
{
	struct child *owner = owner_start("vmm");

	child_finish(child_start(sees_no_device, (void *)(uintptr_t) "1"));
	child_finish(child_start(sees_no_device, (void *)(uintptr_t) ""));
	owner_finish(owner);
}

static void sees_them_in_another_order(struct child *self, void *data)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	share_client *c;
	share_buffer *b;

	(void)self, (void)data;
	setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
	c = child_connect("other order");
	check_ok(look_up(c, &b));
	check_ok(share_buffer_get_info(b, &info));
	check_eq(info.ordinal, 1);
	check(buffer_reads(b, "content"));
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

Test(gpu_visible, devices_are_found_by_what_they_are_not_by_their_order)
{
	struct child *owner = owner_start("mempool");

	child_finish(child_start(sees_them_in_another_order, NULL));
	owner_finish(owner);
}

static void has_an_old_driver(struct child *self, void *data)
{
	share_client *c = child_connect("old");
	share_buffer *b = NULL;

	(void)self, (void)data;
	setenv("SHARE_STANDIN", "driver=11040", 1);
	check_error(look_up(c, &b), SHARE_ENODEV);
	check_detail("11.4");
	check_detail("12.0");
	share_disconnect(c);
}

Test(gpu_visible, a_driver_that_is_too_old_says_what_it_is_and_what_it_takes)
{
	struct child *owner = owner_start("vmm");

	child_finish(child_start(has_an_old_driver, NULL));
	owner_finish(owner);
}

/* The current context is of the second device, the memory of the first. */
static void works_on_the_other_device(struct child *self, void *data)
{
	struct failure failure;
	share_client *c = child_connect("neighbour");
	bool *peers = data;
	const struct cuda *cu;
	CUcontext context;
	CUdevice device;
	share_buffer *b = NULL;
	char options[256];

	(void)self;
	if (!*peers) {
		snprintf(options, sizeof(options), "%s,peers=0", getenv("SHARE_STANDIN"));
		setenv("SHARE_STANDIN", options, 1);
	}
	check_ok(cuda_get(&cu, &failure));
	check(cu->DeviceGet(&device, 1) == CUDA_SUCCESS);
	check(cu->DevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
	check(cu->CtxPushCurrent(context) == CUDA_SUCCESS);
	if (*peers) {
		expect_content(c);
	} else {
		check_error(look_up(c, &b), SHARE_ENOTSUP);
		check(b == NULL);
		check(share_error_detail()[0] != '\0');
		/* which is no verdict on the memory: without that context it works */
		check(cu->CtxPopCurrent(&context) == CUDA_SUCCESS);
		expect_content(c);
	}
	share_disconnect(c);
}

Test(gpu_visible, memory_of_one_device_is_used_from_another_where_they_are_peers)
{
	static const char *const kinds[] = {"vmm", "mempool"};
	bool peers = true, none = false;

	for (size_t i = 0; i < N(kinds); i++) {
		struct child *owner = owner_start(kinds[i]);

		child_finish(child_start(works_on_the_other_device, &peers));
		child_finish(child_start(works_on_the_other_device, &none));
		owner_finish(owner);
	}
}

static void use_device(const struct cuda *cu, int ordinal)
{
	CUcontext context;
	CUdevice device;

	check(cu->DeviceGet(&device, ordinal) == CUDA_SUCCESS);
	check(cu->DevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
	check(cu->CtxPushCurrent(context) == CUDA_SUCCESS);
}

/* The block that is kept was only ever used where its memory is. */
static void moves_to_the_other_device(struct child *self, void *data)
{
	static const uint64_t sizes[] = {5000, GPU_UNIT}; /* at hand, and in the list */
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	struct failure failure;
	const struct cuda *cu;
	CUcontext popped;
	share_client *c;
	share_buffer *b;
	share_pool *p;
	void *address;

	(void)self;
	setenv("SHARE_MAGAZINES", "1", 1);
	c = child_connect("mover");
	check_ok(cuda_get(&cu, &failure));
	options.kind = data;
	options.segment_size = GPU_UNIT;
	for (size_t i = 0; i < N(sizes); i++) {
		check_ok(share_pool_create(c, "kept", &options, &p));
		use_device(cu, 0);
		check_ok(share_alloc(p, sizes[i], NULL, &b));
		address = share_ptr(b);
		check_ok(share_copy_from_host(b, 0, "content", 8, NULL));
		check_ok(share_release(b, NULL));
		use_device(cu, 1);
		check_ok(share_alloc(p, sizes[i], NULL, &b));
		check(share_ptr(b) == address);
		check_ok(share_copy_from_host(b, 0, "content", 8, NULL));
		check(buffer_reads(b, "content"));
		check_ok(share_release(b, NULL));
		share_pool_close(p);
		check(cu->CtxPopCurrent(&popped) == CUDA_SUCCESS);
		check(cu->CtxPopCurrent(&popped) == CUDA_SUCCESS);
	}
	share_disconnect(c);
}

Test(gpu_visible, a_block_that_was_kept_can_be_used_from_another_device_than_before)
{
	child_finish(child_start(moves_to_the_other_device, (void *)(uintptr_t) "vmm"));
	child_finish(child_start(moves_to_the_other_device, (void *)(uintptr_t) "mempool"));
}

static void writes_past_the_library(struct child *self, void *data)
{
	struct failure failure;
	share_client *c = child_connect("vandal");
	share_buffer *b;

	(void)self, (void)data;
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b));
	check(memory_copy_from_host(buffer_of(b)->mapping, buffer_of(b)->offset, "vandal", 7, NULL,
				    &failure) < 0);
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

Test(gpu_visible, vmm_memory_for_reading_is_mapped_for_reading)
{
	struct child *owner = owner_start("vmm");

	child_finish(child_start(writes_past_the_library, NULL));
	owner_finish(owner);
}
