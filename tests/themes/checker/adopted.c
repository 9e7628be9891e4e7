/* SPDX-License-Identifier: MIT */

/*
 * Buffers that are memory which a worker had before, from any unit of it on. The worker gives it
 * back to the system, or to the driver, when the library says that nobody has it any more.
 */

#include <stdlib.h>
#include <unistd.h>

#include "tests/themes/checker/worker.h"

#define UNIT 512

struct lent {
	const struct engine *engine;
	struct own own;
};

static void unmake(void *data)
{
	struct lent *l = data;

	l->engine->unmake(&l->own);
	free(l);
}

static struct lent *make(const struct engine *engine, uint64_t size)
{
	struct lent *l = malloc(sizeof(*l));

	if (!l)
		abort();
	l->engine = engine;
	engine->make(size, &l->own);
	return l;
}

int adopt_some(struct worker *w, unsigned stream, share_buffer **out)
{
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	uint64_t size = any_size(w);
	struct lent *l = make(w->engine, size);
	int r;

	options.memory =
	    (char *)l->own.address + dice_roll(&w->dice, (l->own.size - size) / UNIT + 1) * UNIT;
	options.done = unmake;
	options.data = l;
	r = share_alloc_with(w->adopted, size, &options, w->streams[stream], out);
	if (l->own.fd >= 0)
		close(l->own.fd);
	if (r != 0)
		unmake(l);
	return r;
}
