/* SPDX-License-Identifier: MIT */

/*
 * What it costs to allocate and free GPU memory, through the broker and without one. The memory
 * exists before: there is a segment, so neither side asks the system for memory but cuMemAlloc(),
 * which always does.
 *
 * The floors are the two ways of a process that shares with nobody: cuMemAlloc() and cuMemFree(),
 * and the stream-ordered allocator with a pool that keeps its memory. There is no work on the
 * streams, so nobody waits.
 */

#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/driver/driver.h"

#define KIB UINT64_C(1024)

static const char *const kinds[] = {"vmm", "mempool"};

static const struct size {
	uint64_t bytes;
	const char *name;
} sizes[] = {{4 * KIB, "4KiB"}, {2 * KIB * KIB, "2MiB"}, {64 * KIB * KIB, "64MiB"}};

static void ours(share_pool *pool, uint64_t size)
{
	share_buffer *b;

	must(share_alloc(pool, size, NULL, &b), "share_alloc");
	must(share_release(b, NULL), "share_release");
}

static void stream_ordered(share_pool *pool, uint64_t size)
{
	void *p = driver_pool_alloc(size, NULL);

	(void)pool;
	must(p ? 0 : SHARE_ENOMEM, "cuMemAllocFromPoolAsync");
	driver_pool_free(p, NULL);
}

static void synchronous(share_pool *pool, uint64_t size)
{
	void *p = driver_alloc(size);

	(void)pool;
	must(p ? 0 : SHARE_ENOMEM, "cuMemAlloc");
	driver_free(p);
}

static void play(void (*pair)(share_pool *pool, uint64_t size), share_pool *pool, uint64_t size,
		 int n, struct series *s)
{
	for (int i = -n / 10; i < n; i++) {
		double start = now_us();

		pair(pool, size);
		if (i >= 0)
			samples_add(&s->round, now_us() - start);
	}
	series_end_round(s);
}

static void measure(const struct run *run, const char *kind, share_pool *pool,
		    const struct size *size)
{
	int rounds = run->quick ? 3 : 11, n = run->quick ? 50 : 500;
	struct series value = {0}, async = {0}, sync = {0};
	struct figure f = {.unit = "us", .target = NONE};
	char name[64];

	for (int i = 0; i < rounds; i++) {
		play(stream_ordered, pool, size->bytes, n, &async);
		play(synchronous, pool, size->bytes, n, &sync);
		play(ours, pool, size->bytes, n, &value);
	}
	f.name = name;
	snprintf(name, sizeof(name), "gpu-alloc.%s.%s.async", kind, size->name);
	f.what = "share_alloc + share_release; floor: cuMemAllocFromPoolAsync + cuMemFreeAsync";
	series_report(&value, &async, &f, NONE);
	snprintf(name, sizeof(name), "gpu-alloc.%s.%s.sync", kind, size->name);
	f.what = "the same; floor: cuMemAlloc + cuMemFree";
	series_report(&value, &sync, &f, NONE);
	series_deinit(&value);
	series_deinit(&async);
	series_deinit(&sync);
}

static void measure_kind(const struct run *run, share_client *c, const char *kind)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_buffer *keeper;
	share_pool *pool;
	int r;

	options.kind = kind;
	options.device = driver_device();
	r = share_pool_create(c, kind, &options, &pool);
	if (r == SHARE_ENODEV || r == SHARE_ENOTSUP) {
		fprintf(stderr, "share-bench: gpu-alloc.%s: SKIPPED: %s\n", kind,
			share_error_detail());
		return;
	}
	must(r, "share_pool_create");
	/* While a buffer of the largest size exists beside them, the segments stay. */
	must(share_alloc(pool, sizes[2].bytes, NULL, &keeper), "share_alloc");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		measure(run, kind, pool, &sizes[i]);
	must(share_release(keeper, NULL), "share_release");
	share_pool_close(pool);
}

void bench_gpu_alloc(const struct run *run)
{
	char why[DRIVER_WHY];
	share_client *c;

	if (!driver_start(NULL, why)) {
		fprintf(stderr, "share-bench: gpu-alloc: SKIPPED: %s\n", why);
		return;
	}
	must(share_connect("embedded", &c), "share_connect");
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
		measure_kind(run, c, kinds[k]);
	share_disconnect(c);
}
