/* SPDX-License-Identifier: MIT */

/*
 * Segments are sent to clients that have no buffer in them yet, so that what comes later needs
 * nobody: a message of a channel, or the first look-up in a pool. Nobody is waited for: only so
 * much is sent as a socket takes of what its owner has not read.
 */

#include <errno.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/conversation.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/pool_object.h"
#include "broker/pools/inside.h"
#include "broker/pools/open_pools.h"
#include "broker/pools/supply.h"
#include "broker/reply/request.h"

void segment_sent(struct segment *s, struct client *client, bool writable)
{
	struct possession *has = client_possession(client, s->index);

	if (!(has->what & (SEGMENT_READABLE | SEGMENT_WRITABLE)))
		s->importers++;
	has->what |= writable ? SEGMENT_WRITABLE : SEGMENT_READABLE;
	possession_note(client, s->index);
}

int segment_grant(struct segment *s, struct client *client, bool writable, struct wire_message *out,
		  int *fd)
{
	uint8_t needs = writable ? SEGMENT_WRITABLE : SEGMENT_READABLE;
	int r = segment_is_for(s, client) ? client_reserve_possession(client, s->index) : -EACCES;

	if (r < 0)
		return r;
	*fd = client_possession(client, s->index)->what & needs ? -1
								: segment_descriptor(s, writable);
	out->type = WIRE_GRANT;
	out->grant = (struct wire_grant){
	    .segment = segment_id(s),
	    .segment_size = s->memory.recipe.size,
	    .pool = s->pool->id,
	    .mode = writable ? SHARE_RDWR : SHARE_RDONLY,
	    .kind = kind_of_segment(s)->id,
	    .flags = *fd >= 0 ? WIRE_GRANT_SEGMENT : 0u,
	};
	if (*fd >= 0)
		out->grant.recipe =
		    (struct wire_bytes){segment_recipe(s, client), sizeof(struct memory_recipe)};
	return 0;
}

int segment_supply(struct segment *s, struct client *client, bool writable)
{
	struct wire_message grant = {.serial = 0};
	int fd, r = segment_grant(s, client, writable, &grant, &fd);

	if (r == -EDQUOT || r == -EACCES || (r == 0 && fd < 0))
		return 0;
	if (r < 0)
		return r;
	if (!client_offer(client, &grant, &fd, 1))
		return -EAGAIN;
	segment_sent(s, client, writable);
	return 0;
}

int pool_supply(struct pool *p, struct client *client, bool writable)
{
	struct segment *s;
	int r = 0;

	LIST_FOREACH (s, &p->extent.segments, link) {
		if (s->state == SEGMENT_ACTIVE)
			r = segment_supply(s, client, writable);
		if (r < 0)
			break;
	}
	return r;
}

bool handle_pool_segments(struct request *r)
{
	const struct wire_pool_segments *m = &r->m->pool_segments;
	const struct open_pool *open = request_open_pool(r, m->pool);

	if (!open)
		return false;
	if (m->mode != SHARE_RDONLY && m->mode != SHARE_RDWR)
		return request_fail(r, SHARE_EINVAL, "unknown mode %u", m->mode);
	if (!request_pool_right(r, open->pool, access_right_of(m->mode)))
		return false;
	if (pool_supply(open->pool, r->client, m->mode == SHARE_RDWR) == -ENOMEM)
		return request_fail_memory(r);
	return request_done(r); /* -EAGAIN: some says that there may be more */
}

bool handle_segment_retired(struct request *r)
{
	struct segment *s = segment_find(r->broker, r->m->segment_retired.segment);

	if (s && segment_retired(r->broker, s, r->client))
		return true;
	client_hang_up(r->client, SHARE_EPROTO,
		       "SEGMENT_RETIRED for a segment it was not asked to unmap");
	return false;
}
