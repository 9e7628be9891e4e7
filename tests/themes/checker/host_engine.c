/* SPDX-License-Identifier: MIT */

/*
 * Work on host memory: functions on host streams, and on the calling thread, which is a stream like
 * any other. Words are atomic, as a wrong one is what this program is out for, and no undefined
 * behaviour.
 */

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/themes/checker/worker.h"

static int start(struct worker *w)
{
	for (unsigned i = 0; i < w->n_streams; i++) {
		share_host_stream *s;
		int r = share_host_stream_create(w->client, &s);

		if (r != 0)
			unexpected(w, "share_host_stream_create", r);
		w->streams[i] = s;
	}
	w->streams[w->n_streams++] = NULL;
	return 0;
}

static void stop(struct worker *w)
{
	for (unsigned i = 0; i < w->n_streams; i++)
		share_host_stream_destroy(w->streams[i]);
}

static void end(struct worker *w)
{
	(void)w;
}

static void fill_half(const struct job *j, unsigned half)
{
	uint64_t n = j->size / PARTS / sizeof(uint32_t), first = half * PARTS / 2;
	_Atomic uint32_t *at = (_Atomic uint32_t *)j->memory + first * n;

	for (uint64_t part = first; part < first + PARTS / 2; part++) {
		uint32_t word = mark_word(&j->mark, part);

		for (uint64_t i = 0; i < n; i++, at++)
			atomic_store_explicit(at, word, memory_order_relaxed);
	}
}

static void read_half(struct job *j, unsigned half)
{
	uint64_t first = half * PARTS / 2;

	job_compare(j, (char *)j->memory + j->size / PARTS * first, first, first + PARTS / 2);
}

static void run(void *data)
{
	struct job *j = data;

	for (unsigned half = 0; half < 2; half++) {
		job_pause(j, half);
		if (j->reads)
			read_half(j, half);
		else
			fill_half(j, half);
	}
	atomic_store(&j->done, true);
}

static void launch(struct worker *w, struct job *j)
{
	share_host_stream *s = w->streams[j->stream];
	int r;

	if (!s) {
		run(j);
		return;
	}
	r = share_host_stream_launch(s, run, j);
	if (r != 0)
		unexpected(w, "share_host_stream_launch", r);
}

static void synchronize(struct worker *w, unsigned stream)
{
	share_host_stream *s = w->streams[stream];
	int r = s ? share_host_stream_synchronize(s) : 0;

	if (r != 0)
		unexpected(w, "share_host_stream_synchronize", r);
}

/* What is wrong about the end of such memory is a SIGSEGV. */
static void make(uint64_t size, struct own *out)
{
	int fd = memfd_create("checker", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		abort();
	*out = (struct own){mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), size, fd};
	if (out->address == MAP_FAILED)
		abort();
}

static void unmake(const struct own *own)
{
	munmap(own->address, own->size);
}

const struct engine host_engine = {
    .start = start,
    .stop = stop,
    .end = end,
    .fill = launch,
    .read = launch,
    .synchronize = synchronize,
    .make = make,
    .unmake = unmake,
};
