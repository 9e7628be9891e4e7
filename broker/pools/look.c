/* SPDX-License-Identifier: MIT */

/* When the broker looks again at what is gated in its pools. */

#include <errno.h>

#include <event2/event.h>

#include "broker/broker.h"
#include "broker/memory/memory.h"
#include "broker/pools/inside.h"
#include "broker/pools/pools.h"

#define LOOK_AGAIN_MAX_MS 320
#define LOOK_AT           4096 /* gated blocks in a turn */

/* How many blocks of each pool a turn of the loop looks at: LOOK_AT or so in all pools together,
 * however many are gated, but at least one in each pool. */
static uint32_t look_limit(const struct memory *m)
{
	const struct pool *p;
	uint32_t n = 1;

	LIST_FOREACH (p, &m->pools, link)
		n += p->gated.n > 0;
	return LOOK_AT / n + 1;
}

static void on_look_again(evutil_socket_t fd, short what, void *data)
{
	struct broker *b = data;
	struct memory *m = b->memory;
	uint32_t limit = look_limit(m);
	struct pool *p, *next;
	bool any = false;

	(void)fd, (void)what;
	if (m->look_delay_ms < LOOK_AGAIN_MAX_MS)
		m->look_delay_ms *= 2;
	m->on_look(b);
	for (p = LIST_FIRST(&m->pools); p; p = next) {
		next = LIST_NEXT(p, link); /* only @p can end */
		any |= pool_look_again(b, p, limit);
	}
	if (any)
		memory_look_soon(b);
	else if (!event_pending(m->look_again, EV_TIMEOUT, NULL))
		m->look_delay_ms = LOOK_AGAIN_MS;
}

int pools_init(struct broker *b)
{
	b->memory->look_delay_ms = LOOK_AGAIN_MS;
	b->memory->look_again = event_new(b->base, -1, 0, on_look_again, b);
	return b->memory->look_again ? 0 : -ENOMEM;
}

void pools_deinit(struct broker *b)
{
	broker_free_event(b->memory->look_again);
}
