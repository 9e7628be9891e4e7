/* SPDX-License-Identifier: MIT */

/*
 * What it costs to allocate and release a block that the process keeps in its magazine. This pair
 * of calls is the most frequent one, and it needs no other process. The floor of host memory is
 * malloc() and free() of the same size. The floor of GPU memory is the stream-ordered allocator of
 * a process that shares with nobody, on the same stream.
 *
 * One pair is too short to be timed, so each sample is the mean of many.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/driver/driver.h"

#define KIB         UINT64_C(1024)
#define HOST_TARGET 3.0 /* times malloc() and free() */
#define GPU_TARGET  0.5 /* times the stream-ordered allocator */
#define AT_ONCE     100

static const struct size {
	uint64_t bytes;
	const char *name;
} sizes[] = {{512, "512B"}, {4 * KIB, "4KiB"}, {64 * KIB, "64KiB"}, {1024 * KIB, "1MiB"}};

struct bench {
	share_client *client;
	share_pool *pool;
	const char *kind;
	void *stream;
};

typedef void (*pair_function)(struct bench *b, uint64_t size);

static void ours(struct bench *b, uint64_t size)
{
	share_buffer *p;

	must(share_alloc(b->pool, size, b->stream, &p), "share_alloc");
	must(share_release(p, b->stream), "share_release");
}

static void by_malloc(struct bench *b, uint64_t size)
{
	void *volatile p = malloc(size); /* volatile, so that the compiler keeps the pair */

	(void)b;
	must_system(p, "malloc");
	free(p);
}

static void by_driver(struct bench *b, uint64_t size)
{
	void *p = driver_pool_alloc(size, b->stream);

	must(p ? 0 : SHARE_ENOMEM, "cuMemAllocFromPoolAsync");
	driver_pool_free(p, b->stream);
}

/* Times AT_ONCE pairs. After each such batch it waits for the stream, outside the measured time:
 * the driver's queues have room for about a thousand calls, and its pools for a limited amount that
 * is not freed yet. */
static double play_some(struct bench *b, pair_function pair, uint64_t size)
{
	double start = now_us(), took;

	for (int i = 0; i < AT_ONCE; i++)
		pair(b, size);
	took = now_us() - start;
	if (b->stream)
		driver_stream_synchronize(b->stream);
	return took;
}

static void play(struct bench *b, pair_function pair, uint64_t size, int n, struct series *s)
{
	double took = 0;

	play_some(b, pair, size);
	for (int i = 0; i < n; i += AT_ONCE)
		took += play_some(b, pair, size);
	samples_add(&s->round, took * 1e3 / n);
	series_end_round(s);
}

static void measure(const struct run *run, struct bench *b, const struct size *size,
		    pair_function floor_pair)
{
	int rounds = run->quick ? 5 : 31, n = run->quick ? 2000 : 20000;
	struct series value = {0}, floor = {0};
	struct figure f = {.unit = "ns"};
	char name[64];

	for (int i = 0; i < rounds; i++) {
		play(b, floor_pair, size->bytes, n, &floor);
		play(b, ours, size->bytes, n, &value);
	}
	snprintf(name, sizeof(name), "alloc-magazine.%s.%s", b->kind, size->name);
	f.name = name;
	if (floor_pair == by_malloc) {
		f.what = "alloc + release; floor: malloc + free";
		f.target = HOST_TARGET;
	} else {
		f.what = "alloc + release; floor: cuMemAllocFromPoolAsync + cuMemFreeAsync";
		f.target = GPU_TARGET;
	}
	series_report_median(&value, &floor, &f);
	series_deinit(&value);
	series_deinit(&floor);
}

static void measure_kind(const struct run *run, struct bench *b, pair_function floor_pair)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	int r;

	options.kind = b->kind;
	options.device = strcmp(b->kind, "host") == 0 ? NULL : driver_device();
	r = share_pool_create(b->client, b->kind, &options, &b->pool);
	if (r == SHARE_ENODEV || r == SHARE_ENOTSUP) {
		fprintf(stderr, "share-bench: alloc-magazine.%s: SKIPPED: %s\n", b->kind,
			share_error_detail());
		return;
	}
	must(r, "share_pool_create");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		measure(run, b, &sizes[i], floor_pair);
	share_pool_close(b->pool);
}

static void measure_device(const struct run *run, struct bench *b)
{
	static const char *const kinds[] = {"vmm", "mempool"};
	char why[DRIVER_WHY];

	if (!driver_start(NULL, why)) {
		fprintf(stderr, "share-bench: alloc-magazine on a GPU: SKIPPED: %s\n", why);
		return;
	}
	b->stream = driver_stream_create();
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		b->kind = kinds[k];
		measure_kind(run, b, by_driver);
	}
	driver_stream_synchronize(b->stream);
	driver_stream_destroy(b->stream);
}

void bench_alloc_magazine(const struct run *run)
{
	struct bench b = {.kind = "host"};

	must(share_connect("embedded", &b.client), "share_connect");
	measure_kind(run, &b, by_malloc);
	measure_device(run, &b);
	share_disconnect(b.client);
}
