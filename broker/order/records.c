/* SPDX-License-Identifier: MIT */

/*
 * The records of timelines, which fence.c writes, and how a broker that comes after another one
 * finds them by the numbers of their pages, until all that has fences has been read.
 */

#include <errno.h>
#include <string.h>

#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/journal/journal.h"
#include "broker/journal/record.h"
#include "broker/log/log.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "broker/order/records.h"

struct fence_record fence_to_record(const struct fence *f)
{
	if (!f->timelines)
		return (struct fence_record){0};
	return (struct fence_record){f->timelines->id, f->value, f->slot, 0};
}

/* No checksum guards what is written in place. Each page has a number of its own, its descriptor is
 * nobody else's and of its size, and its client says what it is. How far GPUs are believed to be is
 * taken as it is: any value may be in it, as it came out of a page that its owner alone wrote. */
static int read_timelines(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct broker *b = data;
	struct order *o = b->order;
	struct timelines *t;
	uint64_t id = ((struct timelines_record *)journal_in_place(b->journal, record))->id;
	int r;

	(void)bytes, (void)size;
	if (id == 0 || id > o->last_page)
		return -EBADMSG;
	r = timelines_again(b->journal, record, b->accounts, &t);
	if (r == 0)
		r = restored_add(&o->restored.pages, id, t);
	if (r == 0)
		r = restored_add(&o->restored.by_client, t->in_place->client, t);
	return r;
}

int timelines_restore(struct broker *b)
{
	struct order *o = b->order;
	int r = order_check_died(o);

	if (r == 0)
		r = journal_read(b->journal, RECORD_TIMELINES, sizeof(struct timelines_record),
				 read_timelines, b);
	if (r == 0)
		r = restored_ready(&o->restored.pages);
	/* some may be nobody's, as their clients never were ready */
	restored_ready(&o->restored.by_client);
	return r;
}

struct timelines *timelines_find(struct broker *b, uint64_t page)
{
	return restored_find(&b->order->restored.pages, page);
}

int timelines_restored(struct broker *b)
{
	struct order *o = b->order;
	int r = 0;

	for (size_t i = 0; i < o->restored.pages.n; i++) {
		struct timelines *t = o->restored.pages.all[i].object;

		/* a client that was not ready has nothing that has fences */
		if (t->refs > 1 && !t->dead && t->pidfd < 0)
			r = -EBADMSG;
		timelines_unref(t);
	}
	restored_deinit(&o->restored.pages);
	restored_deinit(&o->restored.by_client);
	if (r < 0)
		log_error("the journal's fences make no sense: %s", strerror(-r));
	return r;
}

int client_order_restore(struct client *c)
{
	struct timelines *t = restored_find(&c->broker->order->restored.by_client, c->id);

	if (!t || (t->dead ? c->state != CLIENT_ENDING : !t->page))
		return -EBADMSG;
	t->client = c->slot;
	t->pidfd = t->dead ? -1 : c->peer.pidfd;
	c->order->timelines = timelines_ref(t);
	return 0;
}

/* Makes a fence of its record. Of a page that is gone all was reached, or its memory would not have
 * been given up. */
struct fence fence_of_record(struct broker *b, const struct fence_record *r)
{
	struct timelines *t = r->page ? timelines_find(b, r->page) : NULL;

	if (!t || r->slot == 0 || r->slot >= TIMELINE_SLOTS)
		return (struct fence){0};
	return (struct fence){timelines_ref(t), r->value, r->slot};
}

void record_fence(struct record *r, struct fence *f)
{
	struct fence_record one = fence_to_record(f);

	record_bytes(r, &one, sizeof(one), sizeof(uint64_t));
	if (record_reads(r))
		*f = fence_of_record(r->broker, &one);
}
