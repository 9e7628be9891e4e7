/* SPDX-License-Identifier: MIT */

/*
 * Requests about buffers that a client has: release, metadata, recipe. Metadata is kept as it
 * comes: whoever reads it looks whether it is JSON, as the library does.
 */

#include <inttypes.h>

#include <share/share.h>

#include "base/text.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/client/client.h"
#include "broker/memory/segment.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "broker/reply/request.h"

struct lease *request_lease(struct request *r, uint64_t id)
{
	struct buffer *buffer = buffer_find(r->broker, id);
	struct lease *lease = buffer ? lease_find(r->broker, r->client, buffer) : NULL;

	if (!lease)
		request_fail(
		    r, SHARE_ESTALE,
		    "this client has no lease on a buffer %llx; on a message's it gets one "
		    "by share_retain(), when it acknowledges the message",
		    (unsigned long long)id);
	return lease;
}

bool request_set_size(struct request *r, const struct lease *lease, uint64_t size)
{
	if (buffer_set_size(lease->buffer, size, lease->mode == SHARE_RDWR))
		return true;
	return request_fail(r, SHARE_EINVAL, "the buffer has no room for %" PRIu64 " byte%s", size,
			    text_plural(size));
}

bool handle_release(struct request *r)
{
	const struct wire_release *m = &r->m->release;
	struct lease *lease = request_lease(r, m->buffer);
	struct fence fence;
	char also[96];

	if (!lease)
		return false;
	if (m->count > lease->count || (m->count == 0 && m->timeline == 0))
		return request_fail(r, SHARE_EINVAL,
				    "this client holds %u reference%s on it, not %u", lease->count,
				    text_plural(lease->count), m->count);
	if (!request_fence(r, m->timeline, m->value, &fence))
		return false;
	lease->buffer->pending = fence_set_prune(lease->buffer->pending);
	/* the client keeps what it holds, as its work goes on */
	if (!fence_set_may_add(lease->buffer->pending, &fence, m->count == lease->count)) {
		fence_deinit(&fence);
		snprintf(also, sizeof(also),
			 " (%d on one buffer) for unfinished work on what it gives back",
			 FENCE_SET_OF_ONE_MAX);
		return request_fail_quota(r, LIMIT_FENCES, also);
	}
	lease_return(r->broker, lease, m->count, &fence);
	return request_done(r);
}

bool handle_metadata_set(struct request *r)
{
	const struct wire_metadata_set *m = &r->m->metadata_set;
	struct lease *lease = request_lease(r, m->buffer);
	struct metadata *metadata;
	struct failure failure;

	if (!lease)
		return false;
	if (lease->mode != SHARE_RDWR)
		return request_fail(r, SHARE_EACCES, "this client holds the buffer read-only");
	if (metadata_new(r->client->account, m->json.data, m->json.size, lease->buffer->metadata,
			 &metadata, &failure) != 0)
		return request_fail_with(r, &failure);
	buffer_set_metadata(lease->buffer, metadata);
	return request_done(r);
}

bool request_tell_metadata(struct request *r, const struct buffer *buffer)
{
	const struct metadata *metadata = buffer->metadata;
	struct wire_message m = {.type = WIRE_METADATA};

	if (metadata)
		m.metadata.json = (struct wire_bytes){metadata->bytes, metadata->size};
	return request_reply(r, &m, NULL, 0);
}

bool handle_metadata_get(struct request *r)
{
	struct lease *lease = request_lease(r, r->m->metadata_get.buffer);

	return lease && request_tell_metadata(r, lease->buffer);
}

/* Says what the memory is and where, for a client that maps it by plain CUDA. */
bool handle_recipe_get(struct request *r)
{
	struct lease *lease = request_lease(r, r->m->recipe_get.buffer);
	struct wire_message m = {.type = WIRE_RECIPE};
	struct failure failure;
	struct segment *s;
	int fd;

	if (!lease)
		return false;
	s = buffer_segment(lease->buffer);
	if (segment_is_lost(s)) {
		segment_refuse(s, r->client, &failure);
		return request_fail_with(r, &failure);
	}
	fd = segment_descriptor(s, lease->mode == SHARE_RDWR);
	m.recipe = (struct wire_recipe){
	    .offset = block_offset(lease->buffer->block),
	    .kind = kind_of_segment(s)->id,
	    .mode = lease->mode,
	    .recipe = {&s->memory.recipe, sizeof(s->memory.recipe)},
	};
	return request_reply(r, &m, &fd, 1);
}
