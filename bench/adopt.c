/* SPDX-License-Identifier: MIT */

/*
 * Data that a program has already in a file in memory, and another process is to read. It is
 * adopted and published, and the other process looks it up; or, as without that, it is copied into
 * a buffer of a pool, and that is published and looked up. The other process reads one byte of each
 * page. A sample begins with the data at hand and ends when the other process has read it.
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

#define NAME       "adopt"
#define PAGE       4096
#define KIB        UINT64_C(1024)
#define MIB        (1024 * KIB)
#define TIMEOUT_MS 60000 /* only so that a bug does not hang */

static const uint64_t sizes[] = {4 * KIB, MIB, 1024 * MIB};

struct owner {
	share_client *client;
	share_pool *adopted, *host;
	struct other other;
};

/* ------------------------------------------------------------------------------------------- */
/* The other process                                                                           */

static void read_one(share_client *c)
{
	const volatile unsigned char *bytes;
	share_buffer *b;

	must(share_lookup(c, NAME, SHARE_RDONLY, TIMEOUT_MS, NULL, &b), "share_lookup");
	bytes = share_ptr(b);
	for (uint64_t i = 0; i < share_size(b); i += PAGE)
		if (bytes[i] != (unsigned char)share_size(b) + 1) {
			fprintf(stderr, "share-bench: the buffer has something else in it\n");
			exit(1);
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
	must(share_reclaim(b, TIMEOUT_MS, NULL), "share_reclaim");
	must(share_release(b, NULL), "share_release");
}

static double adopt(const struct owner *o, void *data, uint64_t size)
{
	double start = now_us(), took;
	share_buffer *b;

	must(share_adopt(o->adopted, data, size, NULL, &b), "share_adopt");
	hand_over(o, b);
	took = now_us() - start;
	end(o, b);
	return took;
}

static double copy(const struct owner *o, void *data, uint64_t size)
{
	double start = now_us(), took;
	share_buffer *b;

	must(share_alloc(o->host, size, NULL, &b), "share_alloc");
	memcpy(share_ptr(b), data, size);
	hand_over(o, b);
	took = now_us() - start;
	end(o, b);
	return took;
}

static void measure(const struct run *run, const struct owner *o, uint64_t size)
{
	bool large = size >= 1024 * MIB;
	int rounds = large ? 3 : 11, n = large ? 3 : run->quick ? 20 : 200;
	int fd = memfd_create("data", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct series adopted = {0}, copied = {0};
	struct figure f = {.unit = "us", .target = NONE};
	char name[64];
	void *data;

	must_system(fd >= 0 && ftruncate(fd, (off_t)size) == 0, "make a file in memory");
	must_system(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0, "seal it");
	data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must_system(data != MAP_FAILED, "map it");
	memset(data, (unsigned char)size + 1, size);
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
	snprintf(name, sizeof(name), "adopt.host.%s",
		 large         ? "1GiB"
		 : size >= MIB ? "1MiB"
			       : "4KiB");
	f.name = name;
	f.what = "adopt, publish, look up and read; floor: a copy into a pool instead";
	series_report(&adopted, &copied, &f, NONE);
	series_done(&adopted);
	series_done(&copied);
	munmap(data, size);
	close(fd);
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

void bench_adopt(const struct run *run)
{
	struct owner o;

	other_start(&o.other, serve, &o);
	must(share_connect("embedded", &o.client), "share_connect");
	other_tell_address(&o.other, o.client);
	o.adopted = make_pool(o.client, "adopted");
	o.host = make_pool(o.client, "host");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		measure(run, &o, sizes[i]);
	other_end(&o.other);
	share_pool_close(o.host);
	share_pool_close(o.adopted);
	share_disconnect(o.client);
}
