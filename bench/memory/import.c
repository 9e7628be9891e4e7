/* SPDX-License-Identifier: MIT */

/*
 * What it costs to get a buffer that another process made: the first time, when its segment has to
 * be mapped (on a GPU, imported), and later, when the segment is mapped and only the broker is
 * asked; and the first time in a pool that was mapped ahead, and what that costs.
 *
 * Another process owns the memory, since importing in the process that exported it is a different
 * case. Each sample of a first import uses a new connection, because the segment is unmapped with
 * the connection before it. The driver and its context exist already: their cost, which each
 * process has once, is not measured on either side.
 *
 * The floor is the oldest way: cuIpcOpenMemHandle() of memory that the other process has from
 * cuMemAlloc(). The handle is at hand, and no other process is asked. It has no owner, no list of
 * holders and no read-only access.
 */

#include <stdio.h>

#include "bench/bench.h"
#include "bench/driver/driver.h"

#define POOL "import"
#define NAME "import/buffer"
#define KIB  UINT64_C(1024)

static const char *const kinds[] = {"host", "vmm", "mempool"};
static const uint64_t sizes[] = {2 * KIB * KIB, 64 * KIB *KIB, KIB *KIB *KIB};

/* What the owner is told to make. When it has been measured, any packet tells the owner to free
 * it. */
struct order {
	char kind[16];
	uint64_t size;
};

struct answer {
	char why[512]; /* why it could not be made; "" if it could */
	char device[64];
	struct driver_handle handle; /* if the memory is on a device */
};

/* ------------------------------------------------------------------------------------------- */
/* The owner's process                                                                         */

static bool possible(int r, struct answer *a)
{
	if (r != SHARE_ENODEV && r != SHARE_ENOTSUP && r != SHARE_ENOMEM) {
		must(r, "making what is to be imported");
		return true;
	}
	snprintf(a->why, sizeof(a->why), "%s", share_error_detail());
	return false;
}

/* Makes memory on the same device, which the floor opens. */
static void *make_floor(const share_pool_info *info, uint64_t size, struct answer *a)
{
	char why[DRIVER_WHY];
	void *p;

	if (!info->device)
		return NULL;
	snprintf(a->device, sizeof(a->device), "%s", info->device);
	if (!driver_start(info->device, why)) {
		snprintf(a->why, sizeof(a->why), "%s", why);
		return NULL;
	}
	p = driver_alloc(size);
	if (p)
		a->handle = driver_export(p);
	else
		snprintf(a->why, sizeof(a->why), "the device has no room for the floor as well");
	return p;
}

static void make_and_wait(share_client *c, const struct order *o, const struct other *other)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	struct answer a = {.why = ""};
	share_pool *pool = NULL;
	share_buffer *b = NULL;
	void *floor = NULL;

	options.kind = o->kind;
	options.segment_size = o->size;
	options.limit = 2 * o->size;
	options.release_threshold = SHARE_KEEP_NONE;
	if (possible(share_pool_create(c, POOL, &options, &pool), &a) &&
	    possible(share_alloc(pool, o->size, NULL, &b), &a)) {
		must(share_pool_get_info(pool, &info), "share_pool_get_info");
		must(share_publish(b, NAME, NULL), "share_publish");
		floor = make_floor(&info, o->size, &a);
	}
	other_tell(other, &a, sizeof(a));
	other_wait(other);
	if (floor)
		driver_free(floor);
	if (b) {
		must(share_unpublish(c, NAME), "share_unpublish");
		must(share_release(b, NULL), "share_release");
	}
	share_pool_close(pool);
	other_done(other);
}

static void own(void *data)
{
	const struct other *other = data;
	share_client *c = other_connect(other);
	struct order o;

	while (other_is_asked(other, &o, sizeof(o)))
		make_and_wait(c, &o, other);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */

struct import {
	struct series first, later, ahead, first_ahead, floor;
};

static double look_up(share_client *c, share_buffer **out)
{
	double start = now_us();

	must(share_lookup(c, NAME, SHARE_RDWR, 0, NULL, out), "share_lookup");
	return now_us() - start;
}

/* In a pool that is mapped ahead. */
static void sample_ahead(const char *address, struct import *i, bool counts)
{
	double first, ahead;
	share_buffer *b;
	share_client *c;
	share_pool *p;

	must(share_connect(address, &c), "share_connect");
	must(share_pool_open(c, POOL, &p), "share_pool_open");
	ahead = now_us();
	must(share_pool_map_ahead(p, SHARE_RDWR), "share_pool_map_ahead");
	ahead = now_us() - ahead;
	first = look_up(c, &b);
	must(share_release(b, NULL), "share_release");
	share_pool_close(p);
	share_disconnect(c);
	if (!counts)
		return;
	samples_add(&i->ahead.round, ahead);
	samples_add(&i->first_ahead.round, first);
}

static void sample(const char *address, const struct answer *a, struct import *i, bool counts)
{
	double first, later, floor = 0;
	share_buffer *b, *again;
	share_client *c;
	void *p;

	must(share_connect(address, &c), "share_connect");
	first = look_up(c, &b);
	later = look_up(c, &again);
	must(share_release(again, NULL), "share_release");
	must(share_release(b, NULL), "share_release");
	share_disconnect(c);
	if (*a->device) {
		floor = now_us();
		p = driver_import(&a->handle);
		floor = now_us() - floor;
		driver_close(p);
	}
	if (!counts)
		return;
	samples_add(&i->first.round, first);
	samples_add(&i->later.round, later);
	samples_add(&i->floor.round, floor);
}

static void report(const char *kind, uint64_t size, struct import *i, bool has_floor)
{
	struct figure f = {.unit = "us", .target = NONE};
	char name[64];

	snprintf(name, sizeof(name), "import.%s.%uMiB.first", kind, (unsigned)(size / KIB / KIB));
	f.name = name;
	f.what = has_floor ? "share_lookup that imports the segment; floor: cuIpcOpenMemHandle"
			   : "share_lookup that maps the segment";
	series_report(&i->first, has_floor ? &i->floor : NULL, &f, NONE);
	snprintf(name, sizeof(name), "import.%s.%uMiB.later", kind, (unsigned)(size / KIB / KIB));
	f.what = "share_lookup when the segment is there";
	series_report(&i->later, NULL, &f, NONE);
	snprintf(name, sizeof(name), "import.%s.%uMiB.ahead", kind, (unsigned)(size / KIB / KIB));
	f.what = "share_pool_map_ahead";
	series_report(&i->ahead, NULL, &f, NONE);
	snprintf(name, sizeof(name), "import.%s.%uMiB.first-ahead", kind,
		 (unsigned)(size / KIB / KIB));
	f.what = "the first share_lookup after that";
	series_report(&i->first_ahead, has_floor ? &i->floor : NULL, &f, NONE);
	series_deinit(&i->first);
	series_deinit(&i->later);
	series_deinit(&i->ahead);
	series_deinit(&i->first_ahead);
	series_deinit(&i->floor);
}

static void measure(const struct run *run, const char *address, const struct other *other,
		    const char *kind, uint64_t size)
{
	int rounds = run->quick ? 3 : 11, n = run->quick ? 3 : 20;
	struct order o = {.size = size};
	struct import i = {0};
	struct answer a;

	snprintf(o.kind, sizeof(o.kind), "%s", kind);
	other_tell(other, &o, sizeof(o));
	other_hear(other, &a, sizeof(a));
	if (!*a.why && *a.device)
		driver_start(a.device, a.why);
	if (*a.why) {
		fprintf(stderr, "share-bench: import.%s.%uMiB: SKIPPED: %s\n", kind,
			(unsigned)(size / KIB / KIB), a.why);
	} else {
		sample(address, &a, &i, false); /* to warm up */
		sample_ahead(address, &i, false);
		for (int round = 0; round < rounds; round++) {
			for (int k = 0; k < n; k++) {
				sample(address, &a, &i, true);
				sample_ahead(address, &i, true);
			}
			series_end_round(&i.first);
			series_end_round(&i.later);
			series_end_round(&i.ahead);
			series_end_round(&i.first_ahead);
			series_end_round(&i.floor);
		}
		report(kind, size, &i, *a.device);
	}
	other_done(other);
	other_wait(other); /* until it is gone */
}

void bench_import(const struct run *run)
{
	struct other other;
	share_client *c;

	other_start(&other, own, &other);
	must(share_connect("embedded", &c), "share_connect");
	other_tell_address(&other, c);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
			measure(run, share_address(c), &other, kinds[k], sizes[s]);
	other_end(&other);
	share_disconnect(c);
}
