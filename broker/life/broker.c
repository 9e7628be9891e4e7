/* SPDX-License-Identifier: MIT */

/* The daemon as a whole: what is made at start, what runs, and what is taken down in which order.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/beat.h"
#include "base/clock.h"
#include "base/mutation.h"
#include "base/system/descriptor.h"
#include "base/system/process.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/scrub.h"
#include "broker/channel/channel.h"
#include "broker/client/clients.h"
#include "broker/client/listener.h"
#include "broker/device/device.h"
#include "broker/journal/journal.h"
#include "broker/keeper/keeper.h"
#include "broker/keeper/kept.h"
#include "broker/life/configure.h"
#include "broker/life/inside.h"
#include "broker/log/log.h"
#include "broker/membership/membership.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/prefault.h"
#include "broker/monitor/monitor.h"
#include "broker/names/names.h"
#include "broker/order/order.h"
#include "broker/pools/pools.h"

#define FDS_AHEAD_MAX   128
#define DESCRIPTORS_MAX (UINT32_C(1) << 30) /* where the system sets no limit */

/* An eighth of the descriptors is for the broker itself: agents, and what waits to be sent or
 * closed. Users share the others (broker/accounts/account.h). Segments of the configuration's pools
 * are charged to nobody, and have at most half of all. */
static void share_descriptors(struct broker *b)
{
	struct rlimit limit;

	b->n_descriptors = DESCRIPTORS_MAX;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < b->n_descriptors)
		b->n_descriptors = limit.rlim_cur;
	b->n_own_descriptors = b->n_descriptors / 8;
	b->clients->max_closing = b->n_descriptors / 16;
	/* with so many in flight, of all clients together, nobody would get any more */
	b->clients->max_fds_ahead = FDS_AHEAD_MAX;
	if (b->clients->max_fds_ahead > b->n_descriptors / 64)
		b->clients->max_fds_ahead = b->n_descriptors / 64;
}

/* The broker and what its rooms have, made together. */
struct house {
	struct broker broker;
	struct clients clients;
	struct devices devices;
	struct order order;
	struct memory memory;
	struct buffers buffers;
	struct names names;
	struct channels channels;
	struct monitors monitors;
	struct life life;
};

static struct broker *make_house(void)
{
	struct house *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->broker.clients = &h->clients;
	h->broker.devices = &h->devices;
	h->broker.order = &h->order;
	h->broker.memory = &h->memory;
	h->broker.buffers = &h->buffers;
	h->broker.names = &h->names;
	h->broker.channels = &h->channels;
	h->broker.monitors = &h->monitors;
	h->broker.life = &h->life;
	return &h->broker;
}

static int make_accounts(struct broker *b)
{
	int r = accounts_new(b->config, &b->accounts);

	if (r < 0)
		return r;
	accounts_limit_fds(b->accounts, b->n_descriptors);
	broker_share_memory(b);
	accounts_share(b->accounts, LIMIT_DESCRIPTORS, b->n_descriptors - b->n_own_descriptors);
	return 0;
}

static int open_journal(struct broker *b, const struct keeper *keeper)
{
	_cleanup_fd_ int own = keeper ? -1 : memfd_create("share-journal", MFD_CLOEXEC);
	char why[256];
	int r;

	if (keeper && keeper->rehearses)
		r = journal_copy(keeper->journal, &b->journal, why, sizeof(why));
	else
		r = journal_new(keeper ? keeper->journal : own, &b->journal, why, sizeof(why));
	if (r < 0)
		log_error("cannot %s the journal: %s", r == -EBADMSG ? "trust" : "open", why);
	b->generation = keeper ? keeper->generation : 1;
	return r;
}

/* Leaves what the journal has to say to the next broker. */
static void let_another_one_try(const struct keeper *keeper)
{
	if (keeper && keeper->generation > 1)
		kept_end(KEEPER_TRY_AGAIN);
}

/* Looks at everything that has a timer. All timers only make the broker look whether there is
 * something to do, so they may come at any time. */
static void look_at_all(struct broker *b)
{
	struct pool *p;

	event_active(b->memory->look_again, EV_TIMEOUT, 0);
	event_active(b->order->gpu_watch, EV_TIMEOUT, 0);
	event_active(b->channels->work, EV_TIMEOUT, 0);
	LIST_FOREACH (p, &b->memory->pools, link)
		event_active(p->waiting.timer, EV_TIMEOUT, 0);
	devices_look_at_agents(b);
	clients_catch_up(b);
	if (b->listener)
		listener_resume(b->listener);
}

int broker_new(struct config *config, const struct keeper *keeper, struct broker **out)
{
	struct broker *b = make_house();
	int r;

	if (!b) {
		log_error("cannot start: %s", strerror(ENOMEM));
		let_another_one_try(keeper);
		return -ENOMEM;
	}
	b->config = config;
	b->keeper = keeper;
	b->life->uid = geteuid();
	TAILQ_INIT(&b->life->upgrades);
	b->life->unpaid.memory = process_open_memory();
	b->started_ms = clock_ms();
	share_descriptors(b);
	r = open_journal(b, keeper);
	b->base = event_base_new();
	if (r == 0)
		r = b->base ? order_init(b) : -ENOMEM;
	memory_init(b);
	if (r == 0)
		r = pools_init(b);
	buffers_init(b);
	channels_init(b);
	names_init(b);
	if (r == 0)
		r = loop_init(b, look_at_all);
	if (r == 0)
		broker_hangs_after(b, config->hang_ms);
	if (r == 0)
		r = prefault_new(b, &b->memory->prefault);
	if (r == 0)
		r = clients_init(b, &broker_rooms);
	if (r == 0)
		r = channels_start(b);
	if (r == 0)
		r = reload_new(b, &b->life->reload);
	if (r == 0)
		r = devices_init(b);
	if (r == 0)
		r = make_accounts(b);
	if (r == 0)
		r = journal_is_old(b->journal) ? restore_all(b) : configure_pools(b);
	if (r == 0)
		kept_sweep();
	if (r < 0) {
		log_error("cannot start: %s", strerror(-r));
		/* Half of the broker may be there, which nobody can take apart, so another one
		 * tries. When the journal itself cannot be trusted, no other one can do better. */
		if (b->journal || r != -EBADMSG)
			let_another_one_try(keeper);
		broker_free(b);
		return r;
	}
	*out = b;
	return 0;
}

static void on_keeper(evutil_socket_t fd, short what, void *data)
{
	(void)fd, (void)what, (void)data;
	kept_hear();
}

static int watch_keeper(struct broker *b)
{
	if (kept_socket() < 0)
		return 0;
	b->life->of_keeper =
	    event_new(b->base, kept_socket(), EV_READ | EV_PERSIST, on_keeper, NULL);
	return b->life->of_keeper && event_add(b->life->of_keeper, NULL) == 0 ? 0 : -ENOMEM;
}

static int serve(struct broker *b)
{
	int r;

	/* the pools of the configuration are there from here on, whatever happens to this broker */
	broker_commit(b);
	kept_serves();
	do {
		r = event_base_loop(b->base, EVLOOP_ONCE);
		beat();
		broker_commit(b);
		upgrade_if_asked(b);
	} while (r == 0 && !event_base_got_break(b->base));
	return r < 0 ? -EIO : 0;
}

int broker_run(struct broker *b, int listen_fd, int lifeline_fd, int drain_ms)
{
	/* there is no socket if a broker before was told to end, and has given up the socket of a
	 * service manager */
	int r = listen_fd < 0 ? 0 : listener_new(b, listen_fd, &b->listener);

	if (r == 0)
		r = ending_new(b, lifeline_fd, drain_ms, &b->life->ending);
	if (r == 0)
		r = watch_keeper(b);
	/* the program of the broker before may not know the layout of what is committed from here
	 * on */
	if (r == 0 && journal_raise_layout(b->journal) && !MUTATION(way_back_stays))
		kept_serves();
	if (r == 0 && journal_is_old(b->journal))
		r = restore_requests(b);
	if (r < 0 && b->generation > 1) {
		log_error("cannot serve: %s", strerror(-r));
		kept_end(KEEPER_TRY_AGAIN);
	}
	if (r == 0)
		r = serve(b);
	if (r < 0)
		log_error("cannot serve: %s", strerror(-r));
	channels_wake(b);
	ending_free(b->life->ending);
	b->life->ending = NULL;
	return r;
}

void broker_free(struct broker *b)
{
	struct pool *p;

	if (!b)
		return;
	b->has_ended = true;
	listener_free(b->listener);
	devices_stop(b);
	scrubs_end(b);
	clients_end(b);
	reload_free(b->life->reload);
	channels_end(b);
	names_end(b);
	while ((p = LIST_FIRST(&b->memory->pools)))
		pool_destroy(b, p);
	devices_free(b);
	channels_deinit(b);
	names_deinit(b);
	buffers_deinit(b);
	memory_deinit(b);
	pools_deinit(b);
	order_deinit(b);
	accounts_free(b->accounts);
	broker_free_event(b->life->of_keeper);
	loop_deinit(b);
	clients_deinit(b);
	/* if the broker is killed now, the next one ends as well, and finds nothing that it cannot
	 * take over */
	if (b->journal)
		journal_commit(b->journal);
	kept_flush(kept_waiting());
	journal_free(b->journal);
	if (b->base)
		event_base_free(b->base);
	fd_close(b->life->unpaid.memory);
	free(b); /* and the rooms */
}
