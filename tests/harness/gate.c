/* SPDX-License-Identifier: MIT */

/* Work whose end the test decides. */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/harness/check.h"
#include "tests/harness/gate.h"

struct work {
	struct gate *gate;
	void *memory;
	int value;
	size_t size;
	int done;
};

struct gate *gate_new(void)
{
	struct gate *g =
	    mmap(NULL, sizeof(*g), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(g != MAP_FAILED);
	return g;
}

void gate_free(struct gate *g)
{
	munmap(g, sizeof(*g));
}

void gate_open(struct gate *g)
{
	g->open = 1;
}

static void hold(void *data)
{
	struct gate *g = data;

	g->started++;
	while (!g->open)
		nanosleep(&(struct timespec){0, 500000}, NULL);
}

void gate_hold(struct gate *g, share_host_stream *s)
{
	check_ok(share_host_stream_launch(s, hold, g));
}

void expect_filled(const void *memory, int value, size_t size)
{
	const unsigned char *bytes = memory;

	for (size_t i = 0; i < size; i++)
		if (bytes[i] != (unsigned char)value) {
			check_failed(__FILE__, __LINE__, "byte %zu is %d, not %d", i, bytes[i],
				     value);
			return;
		}
}

static void fill(void *data)
{
	struct work *w = data;

	memset(w->memory, w->value, w->size);
	w->gate->done++;
	free(w);
}

static void expect(void *data)
{
	struct work *w = data;

	check(w->gate->done >= w->done);
	expect_filled(w->memory, w->value, w->size);
	free(w);
}

static void launch(share_host_stream *s, void (*function)(void *data), struct work work)
{
	struct work *w = malloc(sizeof(*w));

	check(w);
	*w = work;
	check_ok(share_host_stream_launch(s, function, w));
}

void gate_fill(struct gate *g, share_host_stream *s, void *memory, int value, size_t size)
{
	launch(s, fill, (struct work){g, memory, value, size, 0});
}

void gate_expect(struct gate *g, share_host_stream *s, const void *memory, int value, size_t size,
		 int done)
{
	launch(s, expect, (struct work){g, (void *)(uintptr_t)memory, value, size, done});
}
