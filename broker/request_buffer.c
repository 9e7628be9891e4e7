/* SPDX-License-Identifier: MIT */

/* Requests about buffers that one has: release, metadata. */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/buffer.h"
#include "broker/client.h"
#include "broker/json_check.h"
#include "broker/request.h"
#include "broker/text.h"

#define METADATA_MAX_DEPTH 64

void handle_release(struct request *r)
{
	const struct wire_release *m = &r->m->release;
	struct lease *lease = request_lease(r, m->buffer);
	struct fence fence;
	char also[96];

	if (!lease)
		return;
	if (m->count > lease->count || (m->count == 0 && m->timeline == 0)) {
		request_fail(r, SHARE_EINVAL, "this client holds %u reference%s on it, not %u",
			     lease->count, text_plural(lease->count), m->count);
		return;
	}
	if (!request_fence(r, m->timeline, m->value, &fence))
		return;
	lease->buffer->pending = fence_set_prune(lease->buffer->pending);
	/* it keeps what it holds, as its work goes on */
	if (!fence_set_may_add(lease->buffer->pending, &fence)) {
		fence_done(&fence);
		snprintf(also, sizeof(also),
			 " (%d on one buffer) for unfinished work on what it gives back",
			 FENCE_SET_OF_ONE_MAX);
		request_fail_quota(r, LIMIT_FENCES, also);
		return;
	}
	lease_return(r->broker, lease, m->count, &fence);
	request_done(r);
}

/* What the client sent, checked and copied; NULL when answered. */
static struct metadata *parse_metadata(struct request *r, const struct wire_bytes *json,
				       struct metadata *old)
{
	struct metadata *metadata;
	struct json_fault fault;

	if (!json_check(json->data, json->size, METADATA_MAX_DEPTH, &fault)) {
		request_fail(r, SHARE_EINVAL,
			     "metadata is not a JSON object or array, nested no deeper than %d: "
			     "line %u, column %u: %s",
			     METADATA_MAX_DEPTH, fault.line, fault.column, fault.text);
		return NULL;
	}
	switch (metadata_new(r->client->account, json->data, json->size, old, &metadata)) {
	case METADATA_QUOTA:
		request_fail_quota(r, LIMIT_METADATA, "");
		return NULL;
	case -ENOMEM:
		request_fail_memory(r);
		return NULL;
	}
	return metadata;
}

void handle_metadata_set(struct request *r)
{
	const struct wire_bytes *json = &r->m->metadata_set.json;
	struct lease *lease = request_lease(r, r->m->metadata_set.buffer);
	struct metadata *metadata = NULL;

	if (!lease)
		return;
	if (lease->mode != SHARE_RDWR) {
		request_fail(r, SHARE_EACCES, "this client holds the buffer read-only");
		return;
	}
	if (json->size) {
		metadata = parse_metadata(r, json, lease->buffer->metadata);
		if (!metadata)
			return;
	}
	buffer_set_metadata(lease->buffer, metadata);
	request_done(r);
}

void handle_metadata_get(struct request *r)
{
	struct lease *lease = request_lease(r, r->m->metadata_get.buffer);
	struct wire_message m = {.type = WIRE_METADATA};
	const struct metadata *metadata;

	if (!lease)
		return;
	metadata = lease->buffer->metadata;
	if (metadata)
		m.metadata.json = (struct wire_bytes){metadata->bytes, metadata->size};
	request_reply(r, &m, NULL, 0);
}
