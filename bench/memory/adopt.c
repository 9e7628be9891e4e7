/* SPDX-License-Identifier: MIT */

/*
 * Data that a program has already in a file in memory, or in memory of a GPU, and another process
 * is to read. It is adopted and published, and the other process looks it up; or, as without that,
 * it is copied into a buffer of a pool, and that is published and looked up. The other process
 * reads one byte of each page; of a GPU's memory the last byte alone. A sample begins with the data
 * at hand and ends when the other process has read it.
 *
 * The pool keeps what is released, and so the copy goes into memory that this process has mapped
 * already, as in a program that does this again and again. What is adopted is a new segment each
 * time, and the other process maps it.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/driver/driver.h"

#define NAME "adopt"
#define PAGE 4096
#define KIB  UINT64_C(1024)
#define MIB  (1024 * KIB)
#define UNIT (2 * MIB) /* of a GPU's memory */

static const uint64_t sizes[] = {4 * KIB, MIB, 1024 * MIB};

struct owner {
	share_client *client;
	share_pool *adopted, *pool; /* of the kind that data is copied into */
	bool on_gpu;
	struct other other;
};

/* ------------------------------------------------------------------------------------------- */
/* The other process                                                                           */

static void expect(const share_buffer *b, unsigned char byte)
{
	if (byte == (unsigned char)share_size(b) + 1)
		return;
	fprintf(stderr, "share-bench: the buffer has something else in it\n");
	exit(1);
}

static void read_one(share_client *c)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	const volatile unsigned char *bytes;
	unsigned char last;
	share_buffer *b;

	must(share_lookup(c, NAME, SHARE_RDONLY, HANGS_MS, NULL, &b), "share_lookup");
	must(share_buffer_get_info(b, &info), "share_buffer_get_info");
	if (info.ordinal >= 0) {
		must(share_copy_to_host(b, share_size(b) - 1, &last, 1, NULL), "read it");
		expect(b, last);
	} else {
		bytes = share_ptr(b);
		for (uint64_t i = 0; i < share_size(b); i += PAGE)
			expect(b, bytes[i]);
	}
	must(share_release(b, NULL), "share_release");
}

static void serve(void *data)
{
	const struct owner *o = data;
	share_client *c = other_connect(&o->other);
	char turn;

	while (other_is_asked(&o->other, &turn, 1)) {
		read_one(c);
		other_done(&o->other);
	}
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */

static void hand_over(const struct owner *o, share_buffer *b)
{
	must(share_publish(b, NAME, NULL), "share_publish");
	other_done(&o->other);
	other_wait(&o->other);
}

static void end(const struct owner *o, share_buffer *b)
{
	must(share_unpublish(o->client, NAME), "share_unpublish");
	must(share_reclaim(b, HANGS_MS, NULL), "share_reclaim");
	must(share_release(b, NULL), "share_release");
}

static void tell(void *data)
{
	*(bool *)data = true;
}

/* The next sample adopts the same memory, which takes that nobody has it any more: neither a
 * process nor a stream. */
static double adopt(const struct owner *o, void *data, uint64_t size)
{
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	double start = now_us(), took;
	bool is_over = false;
	share_buffer *b;

	options.memory = data;
	options.done = tell;
	options.data = &is_over;
	must(share_alloc_with(o->adopted, size, &options, NULL, &b), "share_adopt");
	hand_over(o, b);
	took = now_us() - start;
	end(o, b);
	while (!is_over)
		must(share_ping(o->client), "share_ping");
	return took;
}

static double copy(const struct owner *o, void *data, uint64_t size)
{
	double start = now_us(), took;
	share_buffer *b;

	must(share_alloc(o->pool, size, NULL, &b), "share_alloc");
	if (o->on_gpu)
		driver_copy(share_ptr(b), data, size);
	else
		memcpy(share_ptr(b), data, size);
	hand_over(o, b);
	took = now_us() - start;
	end(o, b);
	return took;
}

static void measure(const struct run *run, const struct owner *o, void *data, uint64_t size)
{
	bool large = size >= 1024 * MIB;
	int rounds = large ? 3 : 11, n = large ? 3 : run->quick ? 20 : 200;
	struct series adopted = {0}, copied = {0};
	struct figure f = {.unit = "us", .target = NONE};
	char name[64];

	adopt(o, data, size); /* to warm up */
	copy(o, data, size);
	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < n; i++) {
			samples_add(&adopted.round, adopt(o, data, size));
			samples_add(&copied.round, copy(o, data, size));
		}
		series_end_round(&adopted);
		series_end_round(&copied);
	}
	snprintf(name, sizeof(name), "adopt.%s.%s", o->on_gpu ? "vmm" : "host",
		 large         ? "1GiB"
		 : size >= MIB ? "1MiB"
			       : "4KiB");
	f.name = name;
	f.what = "adopt, publish, look up and read; floor: a copy into a pool instead";
	series_report(&adopted, &copied, &f, NONE);
	series_deinit(&adopted);
	series_deinit(&copied);
}

static void measure_file(const struct run *run, const struct owner *o, uint64_t size)
{
	int fd = memfd_create("data", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *data;

	must_system(fd >= 0 && ftruncate(fd, (off_t)size) == 0, "make a file in memory");
	must_system(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0, "seal it");
	data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must_system(data != MAP_FAILED, "map it");
	memset(data, (unsigned char)size + 1, size);
	measure(run, o, data, size);
	munmap(data, size);
	close(fd);
}

static void measure_gpu(const struct run *run, const struct owner *o, uint64_t size)
{
	uint64_t whole = (size + UNIT - 1) / UNIT * UNIT;
	uint32_t word = 0x01010101u * (unsigned char)(size + 1);
	void *data = driver_free_memory() / 3 > whole ? driver_vmm_alloc(whole) : NULL;

	if (!data) /* with the copy, and what the device needs itself */
		return;
	driver_fill(data, word, size, NULL);
	driver_stream_synchronize(NULL);
	measure(run, o, data, size);
	driver_vmm_free(data, whole);
}

static share_pool *make_pool(share_client *c, const char *kind)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *p;

	options.kind = kind;
	options.limit = 2048 * MIB;
	must(share_pool_create(c, kind, &options, &p), "share_pool_create");
	return p;
}

/* The first device that there is, if there is one. */
static void measure_on_gpu(const struct run *run, struct owner *o)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	char why[DRIVER_WHY];
	int r;

	options.kind = "vmm";
	options.limit = 2048 * MIB;
	r = share_pool_create(o->client, "vmm", &options, &o->pool);
	if (r != 0) {
		printf("# adopt.vmm: %s\n", share_error_detail());
		return;
	}
	o->on_gpu = true;
	if (driver_start(NULL, why))
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			measure_gpu(run, o, sizes[i]);
	else
		printf("# adopt.vmm: %s\n", why);
	share_pool_close(o->pool);
}

void bench_adopt(const struct run *run)
{
	struct owner o = {.on_gpu = false};

	other_start(&o.other, serve, &o);
	must(share_connect("embedded", &o.client), "share_connect");
	other_tell_address(&o.other, o.client);
	o.adopted = make_pool(o.client, "adopted");
	o.pool = make_pool(o.client, "host");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		measure_file(run, &o, sizes[i]);
	share_pool_close(o.pool);
	measure_on_gpu(run, &o);
	other_end(&o.other);
	share_pool_close(o.adopted);
	share_disconnect(o.client);
}
