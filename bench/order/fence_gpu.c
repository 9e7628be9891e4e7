/* SPDX-License-Identifier: MIT */

/*
 * What fences cost on the streams of a GPU, compared with the driver's own stream memory
 * operations.
 *
 * Signals and waits are enqueued, so what is measured is the host's time of one call; the GPU
 * finishes the work between the samples. The page of the floor is made and mapped as a timeline
 * page is. A wait is for a fence of another process that is not reached, on a stream on which
 * nothing else waits.
 *
 * A GPU wakes nobody, so a CPU that waits for it has to look. The stream stands at a gate, and what
 * is measured is the time from opening the gate until the CPU has seen the value behind it. Either
 * the CPU begins to look at that moment (.gpu), or it has waited for 5 ms and looks less often by
 * then (.gpu.late). The floor is a loop that does nothing but look.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/driver/driver.h"
#include "bench/order/fence.h"

#define SETTLE_US 200  /* so that what was enqueued gets to the gate */
#define LATE_US   5000 /* after which a late gate opens */
#define AT_ONCE   100  /* signals enqueued before waiting; the driver queues about a thousand */
#define LOADS     1000

enum cell { GATE, RAW, FLOOR_WAIT };

struct gpu {
	share_client *client;
	const struct fence_peer *peer;
	void *stream;
	struct driver_page page;
	uint64_t gates, raws, waits; /* the last value of each cell */
};

static uint64_t count_waits(const struct gpu *g)
{
	share_fence_stats stats = SHARE_FENCE_STATS_INIT;

	must(share_fence_get_stats(g->client, &stats), "share_fence_get_stats");
	return stats.waits;
}

static share_fence record(const struct gpu *g)
{
	share_fence f;

	must(share_fence_record(g->client, 0, g->stream, &f), "share_fence_record");
	return f;
}

static void finish(struct gpu *g, struct series *s)
{
	driver_stream_synchronize(g->stream);
	series_end_round(s);
}

/* ------------------------------------------------------------------------------------------- */
/* Signals                                                                                     */

static void signal_ours(struct gpu *g)
{
	record(g);
}

static void signal_floor(struct gpu *g)
{
	driver_write_value(g->stream, &g->page, RAW, ++g->raws);
}

static void play_signals(struct gpu *g, void (*signal)(struct gpu *g), int n, struct series *s)
{
	for (int i = -n / 10; i < n; i++) {
		double start = now_us(), end;

		signal(g);
		end = now_us();
		if (i >= 0)
			samples_add(&s->round, end - start);
		if (i % AT_ONCE == 0)
			driver_stream_synchronize(g->stream);
	}
	finish(g, s);
}

static void measure_signals(const struct run *run, struct gpu *g)
{
	int rounds = run->quick ? 3 : 11, n = run->quick ? 200 : 2000;
	struct series ours = {0}, floors = {0};
	struct figure f = {.name = "fence.signal", .unit = "us", .target = NONE};

	for (int i = 0; i < rounds; i++) {
		play_signals(g, signal_floor, n, &floors);
		play_signals(g, signal_ours, n, &ours);
	}
	f.what = "share_fence_record on a GPU stream; floor: cuStreamWriteValue64";
	series_report(&ours, &floors, &f, NONE);
	series_deinit(&ours);
	series_deinit(&floors);
}

/* ------------------------------------------------------------------------------------------- */
/* Waits                                                                                       */

static double wait_ours(struct gpu *g)
{
	share_fence f = fence_peer_close_gate(g->peer);
	double start = now_us(), end;

	must(share_fence_wait(g->client, &f, 0, g->stream), "share_fence_wait");
	end = now_us();
	fence_peer_open_gate(g->peer);
	driver_stream_synchronize(g->stream);
	return end - start;
}

/* Asks the peer too, as wait_ours() does, so that both calls find this processor in the same
 * state. */
static double wait_floor(struct gpu *g)
{
	double start, end;

	fence_peer_close_gate(g->peer);
	start = now_us();
	driver_wait_value(g->stream, &g->page, FLOOR_WAIT, ++g->waits);
	end = now_us();
	fence_peer_open_gate(g->peer);
	atomic_store(&g->page.cells[FLOOR_WAIT].value, g->waits);
	driver_stream_synchronize(g->stream);
	return end - start;
}

static void measure_waits(const struct run *run, struct gpu *g)
{
	int rounds = run->quick ? 3 : 11, n = run->quick ? 20 : 200;
	struct series ours = {0}, floors = {0};
	struct figure f = {.name = "fence.wait", .unit = "us", .target = NONE};
	uint64_t before;

	wait_ours(g); /* the first wait registers the peer's page */
	before = count_waits(g);
	for (int i = 0; i < rounds; i++) {
		for (int k = 0; k < n; k++) {
			samples_add(&floors.round, wait_floor(g));
			samples_add(&ours.round, wait_ours(g));
		}
		series_end_round(&ours);
		series_end_round(&floors);
	}
	if (count_waits(g) - before != (uint64_t)rounds * (uint64_t)n) {
		fprintf(stderr, "share-bench: fence.wait: not every wait was enqueued\n");
		exit(1);
	}
	f.what = "share_fence_wait for a peer's fence, not reached; floor: cuStreamWaitValue64";
	series_report(&ours, &floors, &f, NONE);
	series_deinit(&ours);
	series_deinit(&floors);
}

static double time_reached(struct gpu *g, const share_fence *f)
{
	double start = now_us();

	for (int i = 0; i < LOADS; i++)
		must(share_fence_wait(g->client, f, 0, g->stream), "share_fence_wait");
	return (now_us() - start) * 1000 / LOADS;
}

static double time_loads(struct gpu *g)
{
	volatile uint64_t seen = 0;
	double start = now_us();

	for (int i = 0; i < LOADS; i++)
		seen = atomic_load_explicit(&g->page.readonly[RAW].value, memory_order_acquire);
	(void)seen;
	return (now_us() - start) * 1000 / LOADS;
}

static void measure_reached(const struct run *run, struct gpu *g)
{
	int rounds = run->quick ? 3 : 11, n = run->quick ? 5 : 50;
	struct series ours = {0}, floors = {0};
	struct figure f = {.name = "fence.wait.reached", .unit = "ns", .target = NONE};
	share_fence fence = fence_peer_close_gate(g->peer);
	uint64_t before = count_waits(g);

	fence_peer_open_gate(g->peer);
	for (int i = 0; i < rounds; i++) {
		for (int k = 0; k < n; k++) {
			samples_add(&floors.round, time_loads(g));
			samples_add(&ours.round, time_reached(g, &fence));
		}
		series_end_round(&ours);
		series_end_round(&floors);
	}
	if (count_waits(g) != before) {
		fprintf(stderr, "share-bench: fence.wait.reached: a wait was enqueued\n");
		exit(1);
	}
	f.what = "the same, reached: nothing is enqueued; floor: one load";
	series_report_median(&ours, &floors, &f);
	series_deinit(&ours);
	series_deinit(&floors);
}

/* ------------------------------------------------------------------------------------------- */
/* A CPU that waits for the GPU                                                                */

struct opening {
	struct gpu *gpu;
	double at; /* the time by now_us() */
};

static void open_gate(struct opening *o)
{
	o->at = now_us();
	atomic_store(&o->gpu->page.cells[GATE].value, o->gpu->gates);
}

static void *open_late(void *data)
{
	pause_us(LATE_US);
	open_gate(data);
	return NULL;
}

static void look_for_fence(const struct gpu *g, const share_fence *f)
{
	must(share_fence_synchronize(g->client, f, HANGS_MS), "share_fence_synchronize");
}

static void look_for_value(const struct gpu *g)
{
	while (atomic_load_explicit(&g->page.cells[RAW].value, memory_order_acquire) != g->raws)
		;
}

static double time_wake(struct gpu *g, bool ours, bool late)
{
	struct opening o = {.gpu = g};
	share_fence f = {0, 0};
	pthread_t thread;
	double end;

	driver_wait_value(g->stream, &g->page, GATE, ++g->gates);
	if (ours)
		f = record(g);
	else
		driver_write_value(g->stream, &g->page, RAW, ++g->raws);
	pause_us(SETTLE_US);
	if (late)
		must_system(pthread_create(&thread, NULL, open_late, &o) == 0, "pthread_create");
	else
		open_gate(&o);
	if (ours)
		look_for_fence(g, &f);
	else
		look_for_value(g);
	end = now_us();
	if (late)
		pthread_join(thread, NULL);
	driver_stream_synchronize(g->stream);
	return end - o.at;
}

static void measure_wakes(const struct run *run, struct gpu *g, bool late)
{
	int rounds = run->quick ? 3 : 11, n = run->quick ? 10 : 100;
	struct series ours = {0}, floors = {0};
	struct figure f = {.unit = "us", .target = NONE};

	for (int i = 0; i < rounds; i++) {
		for (int k = 0; k < n; k++) {
			samples_add(&floors.round, time_wake(g, false, late));
			samples_add(&ours.round, time_wake(g, true, late));
		}
		series_end_round(&ours);
		series_end_round(&floors);
	}
	f.name = late ? "fence.wake.gpu.late" : "fence.wake.gpu";
	f.what = late ? "the same after 5 ms of waiting; floor: the same loop"
		      : "share_fence_synchronize sees what a GPU writes; floor: a loop of loads";
	series_report(&ours, &floors, &f, NONE);
	series_deinit(&ours);
	series_deinit(&floors);
}

/* ------------------------------------------------------------------------------------------- */

static void skip_gpu(const char *why)
{
	fprintf(stderr, "share-bench: fence on a GPU: SKIPPED: %s\n", why);
}

bool fence_gpu_signals(share_client *c, void *stream)
{
	share_fence_stats stats = SHARE_FENCE_STATS_INIT;
	share_fence f;

	must(share_fence_record(c, 0, stream, &f), "share_fence_record");
	must(share_fence_get_stats(c, &stats), "share_fence_get_stats");
	return stats.signals > 0;
}

static void measure(const struct run *run, struct gpu *g)
{
	char why[DRIVER_WHY];

	if (!fence_gpu_signals(g->client, g->stream)) {
		skip_gpu(NOT_BY_GPU);
		return;
	}
	if (!driver_page_open(&g->page, why)) {
		skip_gpu(why);
		return;
	}
	measure_signals(run, g);
	fence_peer_start_chain(g->peer);
	measure_waits(run, g);
	measure_reached(run, g);
	measure_wakes(run, g, false);
	measure_wakes(run, g, true);
	driver_page_close(&g->page);
}

void fence_gpu(const struct run *run, share_client *c, const struct fence_peer *peer)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	struct gpu g = {.client = c, .peer = peer};
	char why[DRIVER_WHY];
	share_buffer *b;
	share_pool *pool;

	if (!driver_start(NULL, why)) {
		skip_gpu(why);
		return;
	}
	g.stream = driver_stream_create();
	options.device = driver_device();
	must(share_pool_create(c, "fence", &options, &pool), "share_pool_create");
	/* The library looks for the streams of a GPU only if the client uses memory of one. */
	must(share_alloc(pool, 4096, g.stream, &b), "share_alloc");
	measure(run, &g);
	must(share_release(b, g.stream), "share_release");
	share_pool_close(pool);
	driver_stream_destroy(g.stream);
}
