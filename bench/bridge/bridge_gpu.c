/* SPDX-License-Identifier: MIT */

/*
 * Memory of GPUs from broker to broker: from the first GPU to the last, which may be the same. It
 * is staged, against what UCX does with memory of the host and the same transport. Or, if the
 * environment asks UCX for transports of CUDA (UCX_TLS=tcp,cuda_copy,cuda_ipc, say), it goes as UCX
 * takes it, against what UCX does with memory of GPUs; ucx_perftest has its two sides on two GPUs
 * if there are two.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/bridge/bridge_pair.h"

#define BUFFERS_MAX 16

struct load {
	const char *name;
	uint64_t size;
	unsigned buffers, rounds, messages;
};

struct way {
	const char *name;   /* of the figures */
	const char *gpu;    /* --gpu of the bridges */
	const char *memory; /* of the floor */
};

static double perftest(const struct way *w, const struct load *l)
{
	if (w->memory) /* each takes seconds to start */
		return bridge_perftest(w->memory, "ucp_am_bw", l->size, l->messages, 0);
	return fmin(bridge_perftest(w->memory, "ucp_am_bw", l->size, l->messages, 0),
		    bridge_perftest(w->memory, "ucp_am_bw", l->size, l->messages, BRIDGE_ASLEEP));
}

static void measure(struct bridge_pair *p, const struct way *w, const struct load *l)
{
	struct samples own = {0}, cpu = {0}, floor = {0};
	share_buffer *buffers[BUFFERS_MAX];
	char name[64], what[128];
	double value, floor_us;

	for (unsigned i = 0; i < l->buffers; i++)
		must(share_alloc(p->here.pool, l->size, NULL, &buffers[i]), "share_alloc");
	for (unsigned r = 0; r < 2; r++) /* both versions of each name have memory */
		bridge_pair_send(p, l->name, buffers, l->buffers, r);
	for (unsigned r = 0; r < l->rounds; r++) {
		struct bridge_cost cost =
		    bridge_pair_send(p, l->name, buffers, l->buffers, 100 * (r + 1));
		double us = perftest(w, l);

		samples_add(&own, cost.us);
		samples_add(&cpu, cost.cpu_us);
		if (!isnan(us))
			samples_add(&floor, us);
	}
	for (unsigned i = 0; i < l->buffers; i++)
		must(share_release(buffers[i], NULL), "share_release");
	value = samples_median(&own);
	floor_us = floor.n > 0 ? samples_median(&floor) : NONE;
	snprintf(name, sizeof(name), "bridge-gpu.%s.%s", w->name, l->name);
	snprintf(what, sizeof(what), "a buffer, published to published: %.0f MiB/s; ucp_am_bw%s%s",
		 (double)l->size / (double)BRIDGE_MIB / value * 1e6, w->memory ? " -m " : "",
		 w->memory ? w->memory : "");
	figure_report(
	    &(struct figure){name, what, "us", value, floor_us, isnan(floor_us) ? NONE : 1 / 0.9});
	snprintf(name, sizeof(name), "bridge-gpu.%s.%s.cpu", w->name, l->name);
	figure_report(&(struct figure){name, "processor time for a KiB, both bridges", "ns",
				       samples_median(&cpu) * 1e3 / ((double)l->size / 1024), NONE,
				       NONE});
	samples_deinit(&own);
	samples_deinit(&cpu);
	samples_deinit(&floor);
}

static void measure_way(const struct run *run, const struct way *w)
{
	const struct load loads[] = {
	    {"4MiB", 4 * BRIDGE_MIB, 16, run->quick ? 3 : 15, run->quick ? 50 : 200},
	    {"64MiB", 64 * BRIDGE_MIB, 4, run->quick ? 2 : 5, run->quick ? 5 : 20},
	    {"1GiB", 1024 * BRIDGE_MIB, 1, run->quick ? 1 : 3, 3},
	};
	const struct bridge_setup setup = {
	    .kind = "vmm", .gpu = w->gpu, .room = 1536 * BRIDGE_MIB, .apart = true};
	struct bridge_pair p = {.arrived = 0};

	if (!bridge_pair_find(&p)) {
		fprintf(stderr,
			"bridge-gpu: SKIPPED: there is no share-bridge beside this program\n");
		return;
	}
	if (bridge_pair_open(&p, &setup) != 0) {
		fprintf(stderr, "bridge-gpu: SKIPPED: %s\n", share_error_detail());
		return;
	}
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++)
		measure(&p, w, &loads[i]);
	bridge_pair_close(&p);
}

void bench_bridge_gpu(const struct run *run)
{
	const struct way staged = {"staged", "staged", NULL}, cuda = {"cuda", "cuda", "cuda"};

	const char *transports = getenv("UCX_TLS");

	bridge_transport();
	if (!transports || !strstr(transports, "cuda"))
		measure_way(run, &staged);
	else if (bridge_perftest(cuda.memory, "ucp_am_bw", 4096, 10, 0) > 0)
		measure_way(run, &cuda);
	else
		fprintf(stderr,
			"bridge-gpu: SKIPPED: UCX has no transports of CUDA, or there is "
			"no ucx_perftest that knows of memory of GPUs\n");
}
