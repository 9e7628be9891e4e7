/* SPDX-License-Identifier: MIT */

/* Requests about tokens. */

#include <share/share.h>

#include "broker/buffer/buffer.h"
#include "broker/buffer/grant.h"
#include "broker/buffer/lease.h"
#include "broker/client/client.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/monitor/monitor.h"
#include "broker/names/inside.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "broker/reply/request.h"

/* Tells those who answer for the token's user, as reports show tokens to nobody else. */
static void tell_of_export(const struct request *r, const struct buffer *buffer)
{
	const struct access_object what = pool_object(buffer_pool(buffer));

	monitors_tell(r->broker, &(struct notice){.action = "export",
						  .what = &what,
						  .is_private = true,
						  .client = r->client,
						  .buffer = buffer_id(buffer),
						  .size = buffer->size});
}

bool handle_export(struct request *r)
{
	const struct wire_export *m = &r->m->export;
	struct wire_message reply = {.type = WIRE_TOKEN};
	struct token_terms terms;
	struct fence fence;
	struct lease *lease;
	struct failure failure;
	struct token *t;
	int e;

	if (m->mode != SHARE_RDONLY && m->mode != SHARE_RDWR)
		return request_fail(r, SHARE_EINVAL, "unknown mode %u", m->mode);
	lease = request_lease(r, m->buffer);
	if (!lease)
		return false;
	if ((lease->mode & m->mode) != m->mode)
		return request_fail(r, SHARE_EACCES, "this client holds the buffer read-only");
	if (!request_set_size(r, lease, m->size) ||
	    !request_fence(r, m->timeline, m->value, &fence))
		return false;
	terms = (struct token_terms){
	    .buffer = lease->buffer,
	    .mode = m->mode,
	    .uses = m->uses,
	    .timeout_ms = m->timeout,
	    .fence = &fence,
	    .tensor = m->tensor,
	};
	e = token_new(r->broker, r->client, &terms, &t, &failure);
	fence_deinit(&fence);
	if (e != 0)
		return request_fail_with(r, &failure);
	if (monitors_any(r->broker))
		tell_of_export(r, t->buffer);
	reply.token.token = (struct wire_bytes){t->bytes, TOKEN_SIZE};
	return request_reply(r, &reply, NULL, 0);
}

/* Finds the token, if its buffer is in a pool that this user may use, or if it is this client's to
 * end. NULL when answered. */
static struct token *find_token(struct request *r, const struct wire_bytes *bytes)
{
	const char *how = NULL;
	struct token *t = NULL;
	struct failure failure;
	struct pool *p;

	if (bytes->size == TOKEN_SIZE)
		t = token_find(r->broker, bytes->data);
	if (t && token_right_is_lost(t)) {
		token_free(r->broker, t, TOKEN_RIGHT_LOST);
		t = NULL;
	}
	p = t ? buffer_pool(t->buffer) : NULL;
	if (t && !token_is_for(t, r->client) && !pool_may(p, r->client, RIGHT_READ)) {
		pool_refuse(p, r->client, RIGHT_READ, &failure);
		request_hide(r, "a token does not replace access: %s", failure.text);
		t = NULL;
	}
	if (!t && bytes->size == TOKEN_SIZE)
		how = token_how_it_ended(r->client, bytes->data);
	if (!t)
		request_fail(r, SHARE_ENOENT, "there is no such token%s: %s",
			     how ? " any more" : "",
			     how ? how
				 : "it was used up, revoked, has timed out, its maker is gone, or "
				   "this user may not use its pool");
	return t;
}

bool handle_import(struct request *r)
{
	const struct wire_import *m = &r->m->import;
	struct token *t = find_token(r, &m->token);
	struct grant g = {0};
	enum access_right right;
	struct pool *p;
	struct failure failure;
	int e;

	if (!t)
		return false;
	g.buffer = t->buffer;
	g.mode = m->mode ? m->mode : t->mode;
	g.hand_over = &t->fence;
	g.tensor = t->tensor;
	p = buffer_pool(t->buffer);
	if (g.mode != SHARE_RDONLY && g.mode != SHARE_RDWR)
		return request_fail(r, SHARE_EINVAL, "unknown mode %u", m->mode);
	if ((g.mode & t->mode) != g.mode)
		return request_fail(r, SHARE_EACCES, "the token is for reading only");
	right = access_right_of(g.mode);
	if (!pool_may(p, r->client, right)) {
		e = pool_refuse(p, r->client, right, &failure);
		return request_fail(r, e, "a token does not replace access: %s", failure.text);
	}
	e = grant_send(r->broker, r->client, r->m->serial, &g, &failure);
	if (e != 0)
		return request_fail_with(r, &failure);
	if (monitors_any(r->broker))
		buffer_tell(r->broker, t->buffer, "import", r->client, 0);
	token_used(r->broker, t);
	return true;
}

bool handle_revoke(struct request *r)
{
	struct token *t = find_token(r, &r->m->revoke.token);

	if (!t)
		return false;
	if (!token_is_for(t, r->client))
		return request_fail(r, SHARE_EACCES, "uid %u made this token",
				    (unsigned)t->was.uid);
	token_free(r->broker, t, TOKEN_REVOKED);
	return request_done(r);
}
