/* SPDX-License-Identifier: MIT */

/* Requests about names. */

#include <share/share.h>

#include "base/text.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/client/client.h"
#include "broker/memory/pool_object.h"
#include "broker/names/name.h"
#include "broker/names/watch.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "broker/reply/deferred.h"
#include "broker/reply/request.h"

static bool is_mode(uint32_t mode)
{
	return mode == SHARE_RDONLY || mode == SHARE_RDWR;
}

bool handle_publish(struct request *r)
{
	const struct wire_publish *m = &r->m->publish;
	struct wire_message reply = {.type = WIRE_PUBLISHED};
	struct publication p = {
	    .client = r->client,
	    .name = m->name.data,
	    .size = m->name.size,
	    .flags = m->flags,
	    .mode = m->mode ? m->mode : SHARE_RDWR,
	    .expected = m->expected,
	    .tensor = m->tensor,
	};
	struct fence fence;
	struct lease *lease;
	struct failure failure;
	int e;

	if (!request_name(r, &m->name))
		return false;
	if (!request_may_name(r, RIGHT_PUBLISH, &m->name))
		return request_fail_foreign_name(r, SHARE_EACCES, "publish", &m->name);
	if (m->flags & ~(uint32_t)(SHARE_PUBLISH_PERSISTENT | SHARE_PUBLISH_EXCLUSIVE) ||
	    !is_mode(p.mode))
		return request_fail(r, SHARE_EINVAL, "flags 0x%x or mode %u are unknown", m->flags,
				    m->mode);
	lease = request_lease(r, m->buffer);
	if (!lease)
		return false;
	/* the right to read may have been taken away since the client got the buffer */
	if (!request_pool_right(r, buffer_pool(lease->buffer), RIGHT_READ) ||
	    !request_set_size(r, lease, m->size))
		return false;
	/* nobody gives what he does not have */
	p.mode &= lease->mode;
	p.buffer = lease->buffer;
	if (!request_fence(r, m->timeline, m->value, &fence))
		return false;
	p.fence = &fence;
	e = name_publish(r->broker, &p, &reply.published.version, &failure);
	fence_deinit(&fence);
	return e == 0 ? request_reply(r, &reply, NULL, 0) : request_fail_with(r, &failure);
}

bool handle_unpublish(struct request *r)
{
	return request_name(r, &r->m->unpublish.name) && name_unpublish_by(r);
}

bool handle_lookup(struct request *r)
{
	const struct wire_lookup *m = &r->m->lookup;

	if (!request_name(r, &m->name))
		return false;
	if (!is_mode(m->mode) || m->timeout < -1)
		return request_fail(r, SHARE_EINVAL, "unknown mode %u or time limit %d", m->mode,
				    m->timeout);
	return name_look_up(r);
}

bool handle_cancel(struct request *r)
{
	deferred_cancel(r->client, r->m->cancel.lookup);
	return true;
}

bool handle_watch(struct request *r)
{
	const struct wire_bytes *prefix = &r->m->watch.prefix;
	struct wire_message m = {.type = WIRE_WATCHING};
	struct failure failure;
	struct watch *w;

	if (!text_is_utf8(prefix->data, prefix->size))
		return request_fail(r, SHARE_EINVAL, "the prefix is not UTF-8");
	if (watch_new(r->broker, r->client, prefix->data, prefix->size, &w, &failure) != 0)
		return request_fail_with(r, &failure);
	m.watching.watch = w->id;
	return request_reply(r, &m, NULL, 0);
}

bool handle_unwatch(struct request *r)
{
	struct watch *w = watch_find(r->client, r->m->unwatch.watch);

	if (!w)
		return request_fail(r, SHARE_ESTALE, "this client has no such watch");
	watch_free(r->broker, w);
	return request_done(r);
}
