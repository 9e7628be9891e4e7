/* SPDX-License-Identifier: MIT */

/*
 * Tells the last one who has a buffer that this is so. If a lease was granted once and is all there
 * is, with no name, no token and nothing of a channel's beside it, it can become two only through
 * its holder. So the answer stays true until the holder hands the buffer out again. It comes as one
 * more grant, which says what the others have left running, as to anybody who gets the buffer for
 * writing.
 */

#include <stddef.h>
#include <stdlib.h>

#include <share/share.h>

#include "base/text.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/grant.h"
#include "broker/buffer/inside.h"
#include "broker/buffer/lease.h"
#include "broker/client/client.h"
#include "broker/memory/pool.h"
#include "broker/reply/deferred.h"
#include "broker/reply/request.h"

/* The requests that wait for one buffer. The buffer itself only has room for whether there are
 * any. */
struct reclaims {
	struct table_link by_buffer;
	struct deferred_list list;
	struct buffer *buffer;
};

static uint64_t hash_of(const struct buffer *buffer)
{
	return table_mix(buffer_index(buffer));
}

static uint64_t hash(const struct table_link *link)
{
	return hash_of(((const struct reclaims *)(const void *)link)->buffer);
}

static bool is_of(const struct table_link *link, const void *buffer)
{
	return ((const struct reclaims *)(const void *)link)->buffer == buffer;
}

static struct table *table_of(const struct buffer *buffer)
{
	return &buffer_pool(buffer)->broker->buffers->reclaims;
}

static struct reclaims *reclaims_of(const struct buffer *buffer)
{
	return (struct reclaims *)(void *)table_find(table_of(buffer), hash_of(buffer), is_of,
						     buffer);
}

void reclaims_init(struct table *t)
{
	table_init(t, hash);
}

static void free_if_empty(struct reclaims *all)
{
	if (!TAILQ_EMPTY(&all->list))
		return;
	table_remove(table_of(all->buffer), &all->by_buffer);
	all->buffer->is_awaited = false;
	free(all);
}

static void left(struct broker *b, struct deferred_list *list)
{
	(void)b;
	free_if_empty((void *)((char *)list - offsetof(struct reclaims, list)));
}

static int fail_late(const struct wire_message *request, struct failure *failure)
{
	(void)request;
	return failure_set(failure, SHARE_ETIMEDOUT,
			   "others still had the buffer when the time was over");
}

static const struct wait_kind for_sole_lease = {fail_late, left};

static bool is_sole(const struct lease *lease)
{
	return lease->count == 1 && lease->buffer->refs == 1;
}

static int answer(struct broker *b, const struct lease *lease, uint32_t serial,
		  struct failure *failure)
{
	struct grant g = {.buffer = lease->buffer, .mode = lease->mode};

	return grant_send(b, lease_client(lease), serial, &g, failure);
}

void reclaim_look(struct broker *b, struct buffer *buffer)
{
	const struct lease *lease = LIST_FIRST(&buffer->leases);
	struct reclaims *all;

	/* what waits is the holder's, as a wait ends with the lease */
	if (!lease || !is_sole(lease))
		return;
	all = reclaims_of(buffer);
	deferred_wake_later(b, &all->list);
	free_if_empty(all);
}

void reclaim_give_up(struct buffer *buffer, const struct client *client)
{
	deferred_fail_client(&reclaims_of(buffer)->list, client, SHARE_ESTALE,
			     "the buffer was given back meanwhile");
}

static bool say_who_has_it(struct request *r, const struct lease *lease)
{
	const struct buffer *buffer = lease->buffer;
	uint32_t handles = lease->count - 1, others = (uint32_t)buffer->n_leases - 1,
		 rest = buffer->refs - (uint32_t)buffer->n_leases;

	return request_fail(r, SHARE_EBUSY,
			    "the buffer has other holders: %u handle%s of this client, %u other "
			    "client%s, %u name%s, token%s and messages",
			    handles, text_plural(handles), others, text_plural(others), rest,
			    text_plural(rest), text_plural(rest));
}

static bool wait_for_others(struct request *r, struct buffer *buffer)
{
	struct reclaims *all = buffer->is_awaited ? reclaims_of(buffer) : NULL;

	if (!all) {
		all = malloc(sizeof(*all));
		if (!all)
			return request_fail_memory(r);
		TAILQ_INIT(&all->list);
		all->buffer = buffer;
		table_insert(table_of(buffer), &all->by_buffer);
		buffer->is_awaited = true;
	}
	if (request_wait(r, &all->list, &for_sole_lease, r->m->reclaim.timeout))
		return true;
	free_if_empty(all);
	return false;
}

bool handle_reclaim(struct request *r)
{
	const struct wire_reclaim *m = &r->m->reclaim;
	struct lease *lease;
	struct failure failure;

	if (m->timeout < -1)
		return request_fail(r, SHARE_EINVAL, "unknown time limit %d", m->timeout);
	lease = request_lease(r, m->buffer);
	if (!lease)
		return false;
	if (!is_sole(lease))
		return m->timeout == 0 ? say_who_has_it(r, lease)
				       : wait_for_others(r, lease->buffer);
	return answer(r->broker, lease, r->m->serial, &failure) == 0 ||
	       request_fail_with(r, &failure);
}
