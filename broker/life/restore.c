/* SPDX-License-Identifier: MIT */

/*
 * What a broker does that comes after another one. The journal says what there was, the keeper has
 * the descriptors, and each room makes its own part again, in the order of what refers to what. The
 * deaths of clients meanwhile are noticed afterwards, by the same descriptors as ever.
 */

#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <share/share.h>

#include "base/beat.h"
#include "base/clock.h"
#include "base/text.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/records.h"
#include "broker/buffer/scrub.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/conversation.h"
#include "broker/client/records.h"
#include "broker/device/device.h"
#include "broker/device/ipc_event.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/keeper/keeper.h"
#include "broker/life/inside.h"
#include "broker/log/log.h"
#include "broker/membership/membership.h"
#include "broker/memory/records.h"
#include "broker/names/names.h"
#include "broker/order/records.h"
#include "broker/pools/pool_records.h"
#include "broker/request/dispatch.h"

/* So many brokers may crash over a packet; the next one does not try it. */
#define ATTEMPTS_MAX 2

/* Takes over the agents before any of them is asked for anything. */
static int agents_go_on(struct broker *b)
{
	struct device *d;
	int r = 0;

	LIST_FOREACH (d, &b->devices->list, link) {
		if (r == 0)
			r = events_tell_known(d);
		if (r == 0)
			r = segments_tell_known(b, d);
	}
	return r;
}

static const struct room {
	const char *what;
	int (*restore)(struct broker *b);
	const struct object_kind *kind; /* `restore` NULL: all that there is to restore */
} rooms[] = {
    {"numbers", ids_restore, NULL},         {"devices", devices_restore, NULL},
    {"timelines", timelines_restore, NULL}, {"clients", NULL, &client_kind},
    {"events", events_restore, NULL},       {"pools", memory_restore, NULL},
    {"agents", agents_go_on, NULL},         {"buffers", buffers_restore, NULL},
    {"scrubs", NULL, &scrub_kind},          {"names", names_restore, NULL},
    {"channels", channels_restore, NULL},   {"answers", NULL, &queued_kind},
    {"requests", NULL, &waiting_kind},
};

int restore_all(struct broker *b)
{
	uint64_t begun = clock_ms();
	int r = 0;

	accounts_without_limits(b->accounts, true);
	for (size_t i = 0; r == 0 && i < sizeof(rooms) / sizeof(rooms[0]); i++) {
		beat();
		r = rooms[i].restore ? rooms[i].restore(b)
				     : objects_restore(b->journal, rooms[i].kind, b);
		if (r < 0)
			log_error("the journal's %s cannot be made again: %s", rooms[i].what,
				  strerror(-r));
	}
	if (r == 0)
		buffers_restored(b);
	if (r == 0)
		r = timelines_restored(b);
	accounts_without_limits(b->accounts, false);
	if (r < 0)
		return r;
	names_restored(b);
	pools_restored(b);
	/* gives back the memory of what was read, beside what was made of it */
	malloc_trim(0);
	log_info("taken over in %" PRIu64 " ms: %u client%s, %zu buffer%s", clock_ms() - begun,
		 b->clients->n, text_plural(b->clients->n), slab_live(&b->buffers->slab),
		 text_plural(slab_live(&b->buffers->slab)));
	return 0;
}

static bool has_crashed(const struct keeper *k)
{
	return k && (k->hung || (k->signal != 0 && k->signal != SIGKILL));
}

/* Handles the packet that the dead broker had received. If that broker was killed, the packet
 * has nothing to do with it. */
static void handle_unhandled(struct broker *b)
{
	struct inbox *inbox = journal_inbox(b->journal);
	size_t size = journal_take_unhandled(b->journal);
	struct client *c = size ? clients_find(b->clients, inbox->client) : NULL;
	struct fd_list none = {.n = 0};
	char why[128];

	if (!c || !c->connection)
		return;
	if (has_crashed(b->keeper) && ++inbox->attempts >= ATTEMPTS_MAX) {
		snprintf(why, sizeof(why), "%d brokers have crashed over this request",
			 ATTEMPTS_MAX);
		client_hang_up(c, SHARE_EPROTO, why);
		return;
	}
	request_handle(c, inbox->packet, size, &none);
}

int restore_requests(struct broker *b)
{
	int r;

	b->life->asks_again = true;
	r = unanswered_ask_again(b);
	if (r < 0)
		return r;
	broker_commit(b);
	handle_unhandled(b);
	broker_commit(b);
	b->life->asks_again = false;
	return 0;
}
