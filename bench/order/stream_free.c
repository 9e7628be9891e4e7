/* SPDX-License-Identifier: MIT */

/*
 * Allocating and releasing while the GPU works. A stream stands at a gate, so everything that is
 * enqueued on it is unfinished; each block that is released there is allocated again at once, for
 * the same stream. The floor is the stream-ordered allocator of a process that shares with nobody,
 * on the same stream in the same state.
 *
 * Also the longest time that any call took while a kernel runs for 200 ms. A call that waited for
 * the kernel would take most of that time. A second stream looks up what the first one publishes,
 * so its work comes after the kernel too. Here the median says nothing: the one slow call in a
 * thousand is what stops a program.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/driver/driver.h"
#include "bench/order/fence.h"

#define KIB        UINT64_C(1024)
#define NAME       "stream-free"
#define WORK_MS    200
#define TARGET_US  10000.0 /* "never blocks", on a host that others use too */
#define PER_KERNEL 40      /* rounds of calls; the driver queues about a thousand */

static const char *const kinds[] = {"vmm", "mempool"};

static const struct size {
	uint64_t bytes;
	const char *name;
} sizes[] = {{4 * KIB, "4KiB"}, {2 * KIB * KIB, "2MiB"}};

struct bench {
	share_client *client;
	share_pool *pool;
	const char *kind;
	void *stream, *other;
	struct driver_page page;
	uint64_t gate; /* the value of cell 0 that opens the gate */
};

static void close_gate(struct bench *b)
{
	driver_wait_value(b->stream, &b->page, 0, ++b->gate);
}

static void open_gate(struct bench *b)
{
	atomic_store(&b->page.cells[0].value, b->gate);
}

static void must_be_busy(const struct bench *b)
{
	if (driver_stream_is_busy(b->stream))
		return;
	fprintf(stderr, "share-bench: the stream was done before its work was\n");
	exit(1);
}

/* ------------------------------------------------------------------------------------------- */
/* Pairs                                                                                       */

static void ours(struct bench *b, uint64_t size)
{
	share_buffer *p;

	must(share_alloc(b->pool, size, b->stream, &p), "share_alloc");
	must(share_release(p, b->stream), "share_release");
}

static void floors(struct bench *b, uint64_t size)
{
	void *p = driver_pool_alloc(size, b->stream);

	must(p ? 0 : SHARE_ENOMEM, "cuMemAllocFromPoolAsync");
	driver_pool_free(p, b->stream);
}

static void play(struct bench *b, void (*pair)(struct bench *b, uint64_t size), uint64_t size,
		 int n, struct series *s)
{
	pair(b, size);
	close_gate(b);
	for (int i = -n / 10; i < n; i++) {
		double start = now_us();

		pair(b, size);
		if (i >= 0)
			samples_add(&s->round, now_us() - start);
	}
	must_be_busy(b);
	open_gate(b);
	driver_stream_synchronize(b->stream);
	series_end_round(s);
}

static void measure_pairs(const struct run *run, struct bench *b, const struct size *size)
{
	int rounds = run->quick ? 3 : 21, n = run->quick ? 50 : 200;
	struct series value = {0}, floor = {0};
	struct figure f = {.unit = "us", .target = NONE};
	char name[64];

	for (int i = 0; i < rounds; i++) {
		play(b, floors, size->bytes, n, &floor);
		play(b, ours, size->bytes, n, &value);
	}
	snprintf(name, sizeof(name), "stream-free.%s.%s", b->kind, size->name);
	f.name = name;
	f.what =
	    "alloc + release on a busy stream; floor: cuMemAllocFromPoolAsync + cuMemFreeAsync";
	series_report(&value, &floor, &f, NONE);
	series_deinit(&value);
	series_deinit(&floor);
}

/* ------------------------------------------------------------------------------------------- */
/* The longest                                                                                 */

enum call { ALLOC, PUBLISH, LOOKUP, RELEASE, CALLS };

static const char *const call_names[CALLS] = {"alloc", "publish", "lookup", "release"};

struct longest {
	double us[CALLS];
	unsigned n;
	bool kernel; /* work is a kernel, and not a closed gate */
};

static void took(struct longest *l, enum call call, double *since)
{
	double now = now_us();

	if (now - *since > l->us[call])
		l->us[call] = now - *since;
	*since = now;
}

/* Makes each call once, but two releases: one by the stream that works, and one by the stream that
 * comes after it. */
static void call_all(struct bench *b, struct longest *l)
{
	share_buffer *made, *found;
	double since = now_us();

	must(share_alloc(b->pool, 2 * KIB * KIB, b->stream, &made), "share_alloc");
	took(l, ALLOC, &since);
	driver_fill(share_ptr(made), l->n, share_size(made), b->stream);
	since = now_us();
	must(share_publish(made, NAME, b->stream), "share_publish");
	took(l, PUBLISH, &since);
	must(share_lookup(b->client, NAME, SHARE_RDONLY, HANGS_MS, b->other, &found),
	     "share_lookup");
	took(l, LOOKUP, &since);
	must(share_release(made, b->stream), "share_release");
	took(l, RELEASE, &since);
	must(share_release(found, b->other), "share_release");
	took(l, RELEASE, &since);
	l->n++;
}

static void *open_when_over(void *data)
{
	pause_us(WORK_MS * 1000L);
	open_gate(data);
	return NULL;
}

/* Makes calls while one kernel runs; if there can be none, while the gate is closed for as long. */
static void call_during_work(struct bench *b, struct longest *l)
{
	char why[DRIVER_WHY];
	pthread_t thread;

	l->kernel = driver_spin(b->stream, WORK_MS, why);
	if (!l->kernel) {
		close_gate(b);
		must_system(pthread_create(&thread, NULL, open_when_over, b) == 0,
			    "pthread_create");
	}
	for (int i = 0; i < PER_KERNEL && driver_stream_is_busy(b->stream); i++)
		call_all(b, l);
	if (!l->kernel)
		pthread_join(thread, NULL);
	driver_stream_synchronize(b->stream);
	driver_stream_synchronize(b->other);
}

static void report_longest(const struct bench *b, const struct longest *l)
{
	struct figure f = {.unit = "us", .floor = NONE, .target = TARGET_US};
	char name[64], what[128];

	for (enum call k = 0; k < CALLS; k++) {
		snprintf(name, sizeof(name), "stream-free.%s.longest.%s", b->kind, call_names[k]);
		snprintf(what, sizeof(what), "longest of %u share_%s while %s",
			 k == RELEASE ? 2 * l->n : l->n, call_names[k],
			 l->kernel ? "kernels of 200 ms run" : "a stream stands still for 200 ms");
		f.name = name;
		f.what = what;
		f.value = l->us[k];
		figure_report(&f);
	}
}

static void measure_longest(const struct run *run, struct bench *b)
{
	int kernels = run->quick ? 2 : 25;
	struct longest warm = {.n = 0}, l = {.n = 0};
	char why[DRIVER_WHY];

	/* Compiles the kernel now, so that this is not measured. */
	if (!driver_spin(b->stream, 0, why))
		fprintf(stderr, "share-bench: stream-free: a gate in place of a kernel: %s\n", why);
	driver_stream_synchronize(b->stream);
	call_all(b, &warm); /* maps and registers what is needed only once */
	driver_stream_synchronize(b->other);
	/* work may be over by the time that this process gets to its first call */
	for (int i = 0; i < kernels || l.n == 0; i++)
		call_during_work(b, &l);
	must(share_unpublish(b->client, NAME), "share_unpublish");
	report_longest(b, &l);
}

/* ------------------------------------------------------------------------------------------- */

static void skip_kind(const struct bench *b, const char *why)
{
	fprintf(stderr, "share-bench: stream-free.%s: SKIPPED: %s\n", b->kind, why);
}

static void measure_kind(const struct run *run, struct bench *b)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_buffer *keeper;
	int r;

	options.kind = b->kind;
	options.device = driver_device();
	r = share_pool_create(b->client, b->kind, &options, &b->pool);
	if (r == SHARE_ENODEV || r == SHARE_ENOTSUP) {
		skip_kind(b, share_error_detail());
		return;
	}
	must(r, "share_pool_create");
	/* While this buffer exists, the segment stays. */
	must(share_alloc(b->pool, 4 * KIB, b->stream, &keeper), "share_alloc");
	if (fence_gpu_signals(b->client, b->stream)) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			measure_pairs(run, b, &sizes[i]);
		measure_longest(run, b);
	} else { /* the host would wait at a gate that it has to open itself */
		skip_kind(b, NOT_BY_GPU);
	}
	must(share_release(keeper, b->stream), "share_release");
	share_pool_close(b->pool);
}

void bench_stream_free(const struct run *run)
{
	struct bench b = {.gate = 0};
	char why[DRIVER_WHY];

	if (!driver_start(NULL, why) || !driver_page_open(&b.page, why)) {
		fprintf(stderr, "share-bench: stream-free: SKIPPED: %s\n", why);
		return;
	}
	must(share_connect("embedded", &b.client), "share_connect");
	b.stream = driver_stream_create();
	b.other = driver_stream_create();
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		b.kind = kinds[k];
		measure_kind(run, &b);
	}
	share_disconnect(b.client);
	driver_stream_destroy(b.stream);
	driver_stream_destroy(b.other);
	driver_page_close(&b.page);
}
