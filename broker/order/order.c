/* SPDX-License-Identifier: MIT */

/*
 * Which timeline pages had owners that have died, which the journal has in a ring; and how far the
 * GPUs of clients get that live.
 */

#include "broker/order/order.h"

#include <errno.h>

#include <event2/event.h>

#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/journal/journal.h"
#include "broker/log/log.h"
#include "broker/order/fence.h"
#include "broker/order/records.h"

#define N_DIED_PAGES (sizeof(((struct died_pages *)0)->pages) / sizeof(uint64_t))

static int find_died(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct broker *b = data;

	(void)bytes, (void)size;
	if (b->order->died)
		return -EBADMSG;
	b->order->died = journal_in_place(b->journal, record);
	return 0;
}

/* No checksum guards it. Each page in it has been one; which of them had owners that died is
 * trusted, as nothing else says so. */
int order_check_died(const struct order *o)
{
	const struct died_pages *d = o->died;

	/* a broker that was killed between the two steps has written a page, and has not counted
	 * it */
	for (size_t i = 0; i < N_DIED_PAGES; i++)
		if (d->pages[i] > o->last_page || (i < d->n && d->pages[i] == 0) ||
		    (i > d->n && d->pages[i] != 0))
			return -EBADMSG;
	return d->forgotten > o->last_page ? -EBADMSG : 0;
}

void order_page_died(struct order *o, uint64_t page)
{
	struct died_pages *d = o->died;
	uint64_t *slot = &d->pages[d->n % N_DIED_PAGES];

	if (*slot > d->forgotten)
		d->forgotten = *slot;
	*slot = page;
	d->n++;
}

enum page_owner order_page_owner(const struct order *o, uint64_t page)
{
	const struct died_pages *d = o->died;
	size_t n = d->n < N_DIED_PAGES ? (size_t)d->n : N_DIED_PAGES;

	for (size_t i = 0; i < n; i++)
		if (d->pages[i] == page)
			return OWNER_DIED;
	return page == 0 || page > o->last_page || page <= d->forgotten ? OWNER_UNKNOWN
									: OWNER_FINISHED;
}

/* ------------------------------------------------------------------------------------------- */

/* How often we look how far the GPUs of clients have got: what was done before a process died stays
 * done. */
#define GPU_LOOK_MS 200

static void on_gpu_watch(evutil_socket_t fd, short what, void *data)
{
	struct broker *b = data;
	bool again = false;

	(void)fd, (void)what;
	for (uint32_t i = 0; i < b->clients->n_slots; i++) {
		struct client *c = b->clients->by_slot[i];

		if (c && c->order->timelines && c->state >= CLIENT_READY)
			again |= timelines_look(c->order->timelines);
	}
	if (again)
		broker_set_timer(b, b->order->gpu_watch, GPU_LOOK_MS);
}

void order_watch_gpus(struct broker *b)
{
	if (!event_pending(b->order->gpu_watch, EV_TIMEOUT, NULL))
		broker_set_timer(b, b->order->gpu_watch, GPU_LOOK_MS);
}

/* ------------------------------------------------------------------------------------------- */

int order_init(struct broker *b)
{
	b->order->gpu_watch = event_new(b->base, -1, 0, on_gpu_watch, b);
	if (!b->order->gpu_watch)
		return -ENOMEM;
	if (!journal_is_old(b->journal)) {
		b->order->died = journal_place(b->journal, RECORD_DIED_PAGES,
					       &b->order->died_record, sizeof(*b->order->died));
		return b->order->died ? 0 : -ENOMEM;
	}
	if (journal_read(b->journal, RECORD_DIED_PAGES, sizeof(*b->order->died), find_died, b) <
		0 ||
	    !b->order->died) {
		log_error("the journal does not say once which pages' owners have died");
		return -EBADMSG;
	}
	return 0;
}

void order_deinit(struct broker *b)
{
	broker_free_event(b->order->gpu_watch);
	restored_deinit(&b->order->restored.pages);
	restored_deinit(&b->order->restored.by_client);
}
