/* SPDX-License-Identifier: MIT */

/* What keeps the broker's loop going, and whether it is to end. */

#include <errno.h>

#include <event2/event.h>

#include "broker/broker.h"
#include "broker/client/clients.h"
#include "broker/keeper/kept.h"
#include "broker/life/inside.h"

/* A timer that is set already can be set to another time without memory. */
static const struct timeval never = {365 * 24 * 3600, 0};
static const struct timeval soon = {0, 20000};

void broker_set_timer(struct broker *b, struct event *timer, uint64_t ms)
{
	const struct timeval delay = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};

	if (event_add(timer, &delay) < 0)
		event_add(b->catch_up, &soon);
	if (b->clients && ms == 0)
		turns_leave_work(&b->clients->turns);
}

void broker_free_event(struct event *event)
{
	if (event)
		event_free(event);
}

static void on_catch_up(evutil_socket_t fd, short what, void *data)
{
	struct broker *b = data;

	(void)fd, (void)what;
	event_add(b->catch_up, &never);
	event_active(b->life->alive, EV_TIMEOUT, 0);
	b->life->look_at_all(b);
}

/* Sets its timer again, and does nothing else: the loop goes round, which the keeper sees, even
 * when there is nothing to do. */
static void on_alive(evutil_socket_t fd, short what, void *data)
{
	struct broker *b = data;

	(void)fd, (void)what;
	broker_set_timer(b, b->life->alive, kept_look_ms());
}

bool broker_is_ending(const struct broker *b)
{
	return b->life->drains_until_ms > 0;
}

void broker_hangs_after(struct broker *b, unsigned ms)
{
	kept_hang_after(ms);
	event_active(b->life->alive, EV_TIMEOUT, 0);
}

int loop_init(struct broker *b, void (*look_at_all)(struct broker *b))
{
	b->life->look_at_all = look_at_all;
	b->catch_up = event_new(b->base, -1, EV_PERSIST, on_catch_up, b);
	b->life->alive = event_new(b->base, -1, 0, on_alive, b);
	if (!b->catch_up || !b->life->alive || event_add(b->catch_up, &never) < 0)
		return -ENOMEM;
	return 0;
}

void loop_deinit(struct broker *b)
{
	broker_free_event(b->catch_up);
	broker_free_event(b->life->alive);
}
