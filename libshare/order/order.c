/* SPDX-License-Identifier: MIT */

/* What of a client is this room's: when it begins, and in which order it ends. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libshare/client/room.h"
#include "libshare/order/inside.h"
#include "libshare/order/parked.h"

/* The switch for those who cannot change the program. */
static bool wants_host_fences(void)
{
	const char *value = secure_getenv("SHARE_HOST_FENCES");

	return value && strcmp(value, "1") == 0;
}

static int begin(share_client *c, const share_connect_options *options)
{
	struct order *o = calloc(1, sizeof(*o));

	if (!o)
		return fail_system(-ENOMEM, "connecting");
	pthread_mutex_init(&o->lock, NULL);
	pthread_mutex_init(&o->late.lock, NULL);
	pthread_mutex_init(&o->gpu.lock, NULL);
	LIST_INIT(&o->streams);
	LIST_INIT(&o->peers);
	o->slots_used[0] = 1; /* 0 is no timeline */
	o->host_fences = options->flags & SHARE_CONNECT_HOST_FENCES || wants_host_fences();
	o->never_block = options->flags & SHARE_CONNECT_NEVER_BLOCK;
	c->order = o;
	return 0;
}

/* A page comes ahead; whoever needs one that is not here asks for it, so that nothing is lost
 * without memory for this one. */
static int hear(share_client *c, const struct wire_message *m, struct fd_list *fds)
{
	if (m->type != WIRE_TIMELINE_PAGE)
		return 0;
	peer_arrived(c, m->timeline_page.page, fd_list_take(fds, 0), fd_list_take(fds, 1));
	return 1;
}

static bool end_order(share_client *c)
{
	return !atomic_load(&c->order->never_ends) && gpu_stream_finish(c);
}

static void done(share_client *c)
{
	struct order *o = c->order;
	bool parked;

	if (!o)
		return;
	parked = parked_forget(c);
	peers_deinit(c, parked);
	gpu_late_deinit(c);
	gpu_order_deinit(c, parked);
	if (!parked)
		timeline_unmap(c->page);
	pthread_mutex_destroy(&o->lock);
	free(o);
	c->order = NULL;
}

static bool forget_dead(share_client *c)
{
	/* with a stream that stands still, the driver would wait for that */
	while (parked_count(-1) == 0 && peers_forget_dead(c))
		;
	return true;
}

const struct client_room order_room = {
    .begin = begin,
    .hear = hear,
    .do_chores = forget_dead,
    .end = end_order,
    .free = done,
};

void order_never_ends(share_client *c)
{
	atomic_store(&c->order->never_ends, true);
}

static uint64_t counted(atomic_uint_fast64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

void order_get_stats(share_client *c, share_fence_stats *out)
{
	struct stats *s = &c->order->stats;

	*out = (share_fence_stats){
	    .size = sizeof(*out),
	    .signals = counted(&s->signals),
	    .waits = counted(&s->waits),
	    .waits_saved = counted(&s->waits_saved),
	    .host_signals = counted(&s->host_signals),
	    .host_waits = counted(&s->host_waits),
	    .parked = parked_count(-1),
	};
}
