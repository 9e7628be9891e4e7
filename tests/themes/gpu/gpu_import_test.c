/* SPDX-License-Identifier: MIT */

/*
 * Importing memory of a device, over the stand-in driver: nothing is left of an attempt that fails
 * or that its process does not survive, each call that fails is named, and what one thread does
 * with the driver holds up no other.
 */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "tests/harness/fixture.h"
#include "tests/harness/memory.h"
#include "tests/support/gpu_owner.h"

TestSuite(gpu_import, .init = gpu_start, .fini = gpu_stop, .timeout = 120);

/* ------------------------------------------------------------------------------------------- */
/* Calls that fail, calls that kill                                                            */

static const struct step {
	const char *kind, *call;
} steps[] = {
    {"vmm", "cuInit"},
    {"vmm", "cuDeviceGetUuid"},
    {"vmm", "cuDevicePrimaryCtxRetain"},
    {"vmm", "cuCtxPushCurrent"},
    {"vmm", "cuMemImportFromShareableHandle"},
    {"vmm", "cuMemAddressReserve"},
    {"vmm", "cuMemMap"},
    {"vmm", "cuMemSetAccess"},
    {"vmm", "cuPointerGetAttribute"},
    {"mempool", "cuInit"},
    {"mempool", "cuDevicePrimaryCtxRetain"},
    {"mempool", "cuCtxPushCurrent"},
    {"mempool", "cuMemPoolImportFromShareableHandle"},
    {"mempool", "cuMemPoolImportPointer"},
    {"mempool", "cuPointerGetAttribute"},
};

/* What comes after the import. */
static const struct step later_steps[] = {
    {"vmm", "cuMemcpyDtoHAsync"},
    {"vmm", "cuStreamSynchronize"},
    {"vmm", "cuMemUnmap"},
    {"vmm", "cuMemAddressFree"},
    {"vmm", "cuDevicePrimaryCtxRelease"},
    {"mempool", "cuMemcpyDtoHAsync"},
    {"mempool", "cuMemFreeAsync"},
    {"mempool", "cuMemPoolDestroy"},
    {"mempool", "cuDevicePrimaryCtxRelease"},
};

#define N(array) (sizeof(array) / sizeof((array)[0]))

static void imports_in_vain(struct child *self, void *data)
{
	const struct step *step = data;
	share_client *c = child_connect("unlucky");
	share_buffer *b = NULL;
	char faults[128];
	uint64_t reserved;
	int r;

	(void)self;
	snprintf(faults, sizeof(faults), "%s fail CUDA_ERROR_UNKNOWN\n", step->call);
	driver_does(faults);
	r = look_up(c, &b);
	if (r != SHARE_EDEVICE && r != SHARE_ENODEV)
		check_failed(__FILE__, __LINE__, "%s fails, and the look-up says %d (%s)",
			     step->call, r, share_error_detail());
	check(b == NULL);
	check_detail(step->call);
	check_detail("CUDA_ERROR_UNKNOWN");
	/* the descriptor is kept, as the broker sends it once; another attempt leaves no more */
	check_eq(device_descriptors(), 1);
	reserved = reserved_bytes();
	check(look_up(c, &b) == r);
	check_eq(device_descriptors(), 1);
	check_eq(reserved_bytes(), reserved);
	driver_does("");
	expect_content(c);
	share_disconnect(c);
	check_eq(device_descriptors(), 0);
	check_eq(reserved_bytes(), reserved);
}

Test(gpu_import, each_call_that_fails_is_named_and_leaves_nothing_mapped)
{
	uint64_t before = gpu_free_memory();

	for (size_t i = 0; i < N(steps); i++) {
		struct child *owner = owner_start(steps[i].kind);

		child_finish(child_start(imports_in_vain, (void *)(uintptr_t)&steps[i]));
		settle(gpu_client, s.clients == 2 && s.leases == 1);
		owner_finish(owner);
		until(gpu_free_memory() == before);
	}
}

static void imports_and_dies(struct child *self, void *data)
{
	const struct step *step = data;
	share_client *c = child_connect("doomed");
	char faults[128];

	(void)self;
	snprintf(faults, sizeof(faults), "%s die\n", step->call);
	driver_does(faults);
	expect_content(c);
	share_disconnect(c);
	check_failed(__FILE__, __LINE__, "%s was never called", step->call);
}

static void expect_nothing_after_death_in(const struct step *step, uint64_t before)
{
	struct child *owner = owner_start(step->kind);

	child_reap(child_start(imports_and_dies, (void *)(uintptr_t)step));
	settle(gpu_client, s.clients == 2 && s.leases == 1);
	owner_finish(owner);
	until(gpu_free_memory() == before);
}

Test(gpu_import, who_dies_in_any_step_of_an_import_leaves_nothing_on_the_device)
{
	uint64_t before = gpu_free_memory();

	for (size_t i = 0; i < N(steps); i++)
		expect_nothing_after_death_in(&steps[i], before);
}

Test(gpu_import, who_dies_while_it_uses_or_unmaps_leaves_nothing_on_the_device)
{
	uint64_t before = gpu_free_memory();

	for (size_t i = 0; i < N(later_steps); i++)
		expect_nothing_after_death_in(&later_steps[i], before);
}

/* Who made the memory dies: those who have it keep it, and then it goes. */
static void outlives_owner(struct child *self, void *data)
{
	share_client *c = child_connect("heir");
	share_buffer *b;

	(void)data;
	check_ok(look_up(c, &b));
	child_point(self, "has it");
	check(buffer_reads(b, "content"));
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

Test(gpu_import, memory_outlives_who_allocated_it_and_then_goes_back)
{
	static const char *const kinds[] = {"vmm", "mempool"};
	uint64_t before = gpu_free_memory();

	for (size_t i = 0; i < N(kinds); i++) {
		struct child *owner = owner_start(kinds[i]);
		struct child *heir = child_start(outlives_owner, NULL);

		child_wait(heir, "has it");
		check(gpu_free_memory() < before);
		child_kill(owner);
		settle(gpu_client, s.clients == 2 && s.names == 0);
		child_go(heir);
		child_finish(heir);
		settle(gpu_client, s.clients == 1 && s.segments == 0);
		until(gpu_free_memory() == before);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* How often, and by whom                                                                      */

static void imports_twice(struct child *self, void *data)
{
	struct standin_calls *calls = count_calls();
	share_client *one = child_connect("one"), *two = child_connect("two");
	share_buffer *a, *b, *again;

	(void)self, (void)data;
	check_ok(look_up(one, &a));
	check_ok(look_up(two, &b));
	check_ok(look_up(two, &again));
	check(share_ptr(a) == share_ptr(b));
	check_eq(standin_called(calls, cuMemPoolImportPointer), 1);
	check_eq(standin_called(calls, cuMemPoolImportFromShareableHandle), 1);
	check_ok(share_release(a, NULL));
	share_disconnect(one);
	/* the first to go takes nothing away from the second */
	check(buffer_reads(b, "content"));
	check_ok(share_release(again, NULL));
	check_ok(share_release(b, NULL));
	share_disconnect(two);
	check_eq(device_descriptors(), 0);
}

Test(gpu_import, a_memory_pool_is_imported_once_however_many_clients_a_process_has)
{
	struct child *owner = owner_start("mempool");

	child_finish(child_start(imports_twice, NULL));
	owner_finish(owner);
}

static uint64_t all_calls(struct standin_calls *calls)
{
	uint64_t n = 0;

	for (int i = 0; i < STANDIN_FUNCTION_COUNT; i++)
		n += atomic_load(&calls->count[i]);
	return n;
}

static uint64_t all_imports(struct standin_calls *calls)
{
	return standin_called(calls, cuMemImportFromShareableHandle) +
	       standin_called(calls, cuMemPoolImportPointer) +
	       standin_called(calls, cuIpcOpenMemHandle_v2);
}

static void maps_ahead(struct child *self, void *data)
{
	struct standin_calls *calls = count_calls();
	share_client *c = child_connect("ahead");
	uint64_t imports = all_imports(calls), before, first, later;
	share_buffer *b, *again;
	share_pool *p;

	(void)self, (void)data;
	check_ok(share_pool_open(c, "test", &p));
	check_ok(share_pool_map_ahead(p, SHARE_RDWR));
	check_eq(all_imports(calls) - imports, 1);
	before = all_calls(calls);
	check_ok(look_up(c, &b));
	first = all_calls(calls) - before;
	check_ok(look_up(c, &again));
	later = all_calls(calls) - before - first;
	check_eq(first, later);
	check(buffer_reads(b, "content"));
	check_eq(all_imports(calls) - imports, 1);
	check_ok(share_release(again, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
	check_eq(device_descriptors(), 0);
}

Test(gpu_import, of_a_pool_that_was_mapped_ahead_the_first_look_up_calls_the_driver_as_any_other)
{
	static const char *const kinds[] = {"vmm", "mempool", "legacy"};

	for (size_t i = 0; i < N(kinds); i++) {
		struct child *owner = owner_start(kinds[i]);

		child_finish(child_start(maps_ahead, NULL));
		owner_finish(owner);
	}
}

static void maps_ahead_in_vain(struct child *self, void *data)
{
	const struct step *step = data;
	share_client *c = child_connect("unlucky");
	char faults[128];
	share_pool *p;
	int r;

	(void)self;
	snprintf(faults, sizeof(faults), "%s fail CUDA_ERROR_UNKNOWN\n", step->call);
	driver_does(faults);
	check_ok(share_pool_open(c, "test", &p));
	r = share_pool_map_ahead(p, SHARE_RDWR);
	check(r == SHARE_EDEVICE || r == SHARE_ENODEV);
	check_detail(step->call);
	check_eq(device_descriptors(), 1);
	driver_does("");
	check_ok(share_pool_map_ahead(p, SHARE_RDWR));
	expect_content(c);
	share_pool_close(p);
	share_disconnect(c);
	check_eq(device_descriptors(), 0);
}

Test(gpu_import, a_call_that_fails_while_a_pool_is_mapped_ahead_is_named_and_loses_nothing)
{
	for (size_t i = 0; i < N(steps); i++) {
		struct child *owner = owner_start(steps[i].kind);

		child_finish(child_start(maps_ahead_in_vain, (void *)(uintptr_t)&steps[i]));
		settle(gpu_client, s.clients == 2 && s.leases == 1);
		owner_finish(owner);
	}
}

#define THREADS 8

static void *looks_up(void *data)
{
	share_buffer *b;

	check_ok(share_lookup(data, "name", SHARE_RDONLY, 0, NULL, &b));
	check(buffer_reads(b, "content"));
	check_ok(share_release(b, NULL));
	return NULL;
}

static void imports_in_threads(struct child *self, void *data)
{
	struct standin_calls *calls = count_calls();
	share_client *c = child_connect("many");
	pthread_t threads[THREADS];

	(void)self, (void)data;
	for (int i = 0; i < THREADS; i++)
		check(pthread_create(&threads[i], NULL, looks_up, c) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	check_eq(standin_called(calls, cuMemImportFromShareableHandle), 1);
	share_disconnect(c);
}

Test(gpu_import, threads_that_need_a_segment_at_once_import_it_once)
{
	struct child *owner = owner_start("vmm");

	child_finish(child_start(imports_in_threads, NULL));
	owner_finish(owner);
}

static void *hangs(void *data)
{
	share_buffer *b;

	look_up(data, &b);
	check_failed(__FILE__, __LINE__, "the driver does not hang");
	return NULL;
}

static void goes_on_beside_a_hanging_driver(struct child *self, void *data)
{
	struct standin_calls *calls = count_calls();
	share_client *c = child_connect("beside");
	pthread_t thread;
	share_buffer *b;
	share_pool *p;

	(void)data;
	driver_does("cuMemMap hang\n");
	check(pthread_create(&thread, NULL, hangs, c) == 0);
	until(standin_called(calls, cuMemMap) == 1);
	/* one thread stands in the driver for ever; this one has a client to use */
	check_ok(share_ping(c));
	check_ok(share_pool_open(c, "default", &p));
	check_ok(share_alloc(p, 4096, NULL, &b));
	buffer_fill(b, 1);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	child_point(self, "went on");
}

Test(gpu_import, an_import_holds_up_no_other_thread_of_its_client)
{
	struct child *owner = owner_start("vmm"), *child;

	child = child_start(goes_on_beside_a_hanging_driver, NULL);
	child_wait(child, "went on");
	child_kill(child);
	settle(gpu_client, s.clients == 2 && s.leases == 1);
	owner_finish(owner);
}

static void comes_and_goes(struct child *self, void *data)
{
	int descriptors = 0;

	(void)self, (void)data;
	for (int i = 0; i < 12; i++) {
		share_client *c = child_connect("guest");

		expect_content(c);
		share_disconnect(c);
		check_eq(device_descriptors(), 0);
		if (i == 2)
			descriptors = descriptors_count(0);
	}
	check_eq(descriptors_count(0), descriptors);
}

Test(gpu_import, coming_and_going_costs_no_descriptors)
{
	static const char *const kinds[] = {"vmm", "mempool"};

	for (size_t i = 0; i < N(kinds); i++) {
		struct child *owner = owner_start(kinds[i]);

		child_finish(child_start(comes_and_goes, NULL));
		owner_finish(owner);
	}
}

/* A mapping goes when the broker asks for it, with whatever the client says next. */
static void rests(struct child *self, void *data)
{
	share_client *c = child_connect("resting");

	(void)data;
	expect_content(c);
	check(device_descriptors() > 0);
	child_point(self, "resting");
	check_ok(share_ping(c));
	check_eq(device_descriptors(), 0);
	child_point(self, "told");
	share_disconnect(c);
}

Test(gpu_import, memory_that_is_asked_back_is_unmapped_with_the_next_request)
{
	static const char *const kinds[] = {"vmm", "mempool"};
	uint64_t before = gpu_free_memory();

	for (size_t i = 0; i < N(kinds); i++) {
		struct child *owner = owner_start(kinds[i]), *child = child_start(rests, NULL);

		child_wait(child, "resting");
		child_go(owner);
		child_finish(owner);
		settle(gpu_client, s.buffers == 0 && s.segments == 1);
		check(gpu_free_memory() < before);
		child_go(child);
		child_wait(child, "told");
		settle(gpu_client, s.segments == 0);
		until(gpu_free_memory() == before);
		child_go(child);
		child_finish(child);
	}
}
