/* SPDX-License-Identifier: MIT */

/*
 * How much memory of a device the broker itself takes: how much free memory the device loses when
 * there is a broker with its agent and a pool with one segment, without the segment.
 *
 * The floor is one CUDA context: how much free memory the device loses when a process creates one
 * and does nothing with it. A kind should cost a small part of that (vmm, whose agent has no
 * context) or about as much (mempool). This process has created its own context and imported each
 * kind once before anything is measured, so these do not count.
 *
 * The device tells its free memory for all processes together, so nobody else may use the device.
 */

#include <stdio.h>
#include <time.h>

#include "bench/bench.h"
#include "bench/driver/driver.h"

#define MIB          (1024.0 * 1024)
#define VMM_TARGET   4.0 /* MiB */
#define SETTLE_TICKS 15  /* ticks of 20 ms without a change */
#define SETTLE_MAX   500

static const char *const kinds[] = {"vmm", "mempool"};

/* Waits until the free memory does not change any more, since a process that has ended gives its
 * memory back a moment later. */
static double settled_free(void)
{
	const struct timespec tick = {.tv_nsec = 20000000};
	uint64_t last = driver_free_memory(), now;
	int same = 0;

	for (int i = 0; i < SETTLE_MAX && same < SETTLE_TICKS; i++) {
		nanosleep(&tick, NULL);
		now = driver_free_memory();
		same = now == last ? same + 1 : 0;
		last = now;
	}
	return (double)last / MIB;
}

/* ------------------------------------------------------------------------------------------- */
/* The floor's process: makes a context when told to, and ends when told to                    */

static void make_context(void *data)
{
	const struct other *self = data;
	char device[64], why[DRIVER_WHY];

	if (!other_is_asked(self, device, sizeof(device)) || !driver_start(device, why))
		return;
	other_done(self);
	other_is_asked(self, device, sizeof(device));
}

static double context_cost(const struct other *x)
{
	double before = settled_free(), after;
	char device[64];

	snprintf(device, sizeof(device), "%s", driver_device());
	other_tell(x, device, sizeof(device));
	other_wait(x);
	after = settled_free();
	return before - after;
}

/* ------------------------------------------------------------------------------------------- */

/* Starts a broker, with a pool and a segment. Returns how much free memory the device has lost,
 * without the segment; NONE if this kind is not possible here. */
static double cost(const char *kind)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	double before = settled_free(), after = NONE;
	share_client *c;
	share_buffer *b;
	share_pool *p;
	int r;

	must(share_connect("embedded", &c), "share_connect");
	options.kind = kind;
	options.device = driver_device();
	r = share_pool_create(c, "device-memory", &options, &p);
	if (r == SHARE_ENODEV || r == SHARE_ENOTSUP) {
		fprintf(stderr, "share-bench: device-memory.%s: SKIPPED: %s\n", kind,
			share_error_detail());
	} else {
		must(r, "share_pool_create");
		must(share_alloc(p, 4096, NULL, &b), "share_alloc");
		must(share_buffer_get_info(b, &info), "share_buffer_get_info");
		after = settled_free() + (double)info.segment_size / MIB;
		must(share_release(b, NULL), "share_release");
		share_pool_close(p);
	}
	share_disconnect(c);
	return before - after;
}

static void report(const char *kind, double value, double floor, bool few)
{
	struct figure f = {.unit = "MiB", .value = value, .floor = floor, .target = NONE};
	char name[64];

	snprintf(name, sizeof(name), "device-memory.%s", kind);
	f.name = name;
	if (few) { /* the target is a number of MiB, and not a ratio to the floor */
		f.what = "device memory of broker and agent, segments not counted";
		f.target = VMM_TARGET;
		f.floor = NONE;
	} else {
		f.what = "the same; floor: a bare context of another process";
		f.target = 1.05;
	}
	figure_report(&f);
}

void bench_device_memory(const struct run *run)
{
	char why[DRIVER_WHY];
	struct other other;
	double floor, value;

	(void)run; /* once is enough, as the value does not vary */
	other_start(&other, make_context, &other);
	if (!driver_start(NULL, why)) {
		fprintf(stderr, "share-bench: device-memory: SKIPPED: %s\n", why);
		other_end(&other);
		return;
	}
	floor = context_cost(&other);
	other_end(&other);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		cost(kinds[k]); /* what importing needs in this process is there afterwards */
		value = cost(kinds[k]);
		if (!isnan(value))
			report(kinds[k], value, floor, k == 0);
	}
}
