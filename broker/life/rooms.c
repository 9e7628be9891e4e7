/* SPDX-License-Identifier: MIT */

/*
 * What a client has in each room of the broker, and in which order it is released. Clients are
 * below those rooms and know none of them: this file tells them.
 */

#include <errno.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/buffer/scrub.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/device/ipc_event.h"
#include "broker/life/inside.h"
#include "broker/membership/membership.h"
#include "broker/memory/client_memory.h"
#include "broker/monitor/monitor.h"
#include "broker/names/names.h"
#include "broker/order/order.h"
#include "broker/pools/open_pools.h"
#include "broker/reply/deferred.h"
#include "broker/request/dispatch.h"

/* What a client has in all rooms is one allocation, so that only one can fail. */
struct possessions {
	struct client_order order; /* the first: see end() */
	struct client_memory memory;
	struct client_buffers buffers;
	struct client_names names;
};

static int begin(struct client *c)
{
	struct possessions *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	c->order = &p->order;
	c->memory = &p->memory;
	c->buffers = &p->buffers;
	c->names = &p->names;
	TAILQ_INIT(&c->buffers->leases);
	TAILQ_INIT(&c->names->tokens);
	return 0;
}

static void end(struct client *c)
{
	if (!c->order)
		return;
	client_memory_deinit(c);
	client_order_deinit(c);
	free((struct possessions *)(void *)c->order);
	c->order = NULL;
}

static bool may_use_memory(const struct client *c)
{
	return !TAILQ_EMPTY(&c->buffers->leases) || !LIST_EMPTY(&c->events) ||
	       client_has_segments(c);
}

/* Tells clients that have asked for it what happens to this one (broker/monitor). */
static void tell(const struct client *c, const char *action)
{
	const struct holdings *had = c->connection ? &c->holds : &c->logged.held;

	if (monitors_any(c->broker))
		monitors_tell(c->broker, &(struct notice){.action = action,
							  .client = c,
							  .count = had->leases,
							  .size = had->bytes});
}

static void changed_state(const struct client *c)
{
	if (c->state == CLIENT_READY)
		tell(c, "connect");
	else if (c->state == CLIENT_QUARANTINED)
		tell(c, "quarantine");
	else if (c->state == CLIENT_ENDING)
		tell(c, monitors_word_for_end(c));
}

/* The last step: says that all that a client held was released. */
static bool tell_of_reclaim(struct client *c, int *budget)
{
	(void)budget;
	if (!c->requests.goodbye)
		tell(c, "reclaim");
	return true;
}

/* It hears nothing any more, whatever its process still does. */
static void leave(struct client *c)
{
	members_leave(c);
	client_give_up(c);
}

/* First goes what the client waits for, and what it gave to others. */
static client_step *const at_hang_up[] = {
    client_drop_deferred,
    client_abandon_scrubs,
    client_drop_monitor,
    client_drop_watches,
    client_unpublish,
    client_revoke_tokens,
    NULL,
};

/* Then goes the rest. What is in flight in channels must be known before its leases go. */
static client_step *const at_death[] = {
    members_end,
    client_return_leases,
    client_return_events,
    client_close_pools,
    client_forget,
    tell_of_reclaim,
    NULL,
};

const struct client_rooms broker_rooms = {
    .begin = begin,
    .end = end,
    .handle = request_handle,
    .restore = client_order_restore,
    .ask_again = request_ask_again,
    .handle_again = request_handle_again,
    .on_waker = deferred_on_waker,
    .caught_up = client_hear_of_changes,
    .changed_state = changed_state,
    .may_use_memory = may_use_memory,
    .share_a_pool = clients_share_a_pool,
    .leave = leave,
    .die = client_end_timelines,
    .at_hang_up = at_hang_up,
    .at_death = at_death,
};
