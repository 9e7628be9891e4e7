/* SPDX-License-Identifier: MIT */

/*
 * Memory that a client has already becomes a buffer. The descriptors are a stranger's: what they
 * are of is looked at before anything is done with them, and whatever is not taken is closed by
 * others (broker/client/closer.h).
 */

#include <errno.h>
#include <string.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/grant.h"
#include "broker/client/client.h"
#include "broker/client/conversation.h"
#include "broker/client/request.h"
#include "broker/memory/adopted.h"
#include "broker/memory/client_memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/pools.h"
#include "memory/adopt.h"

/* The pool, if memory may come into it so; NULL when answered. */
static struct pool *find_pool(struct request *r)
{
	struct open_pool *open = client_find_pool(r->client, r->m->adopt.pool);
	struct failure failure;
	struct pool *p = open ? open->pool : NULL;

	if (!p) {
		request_fail(r, SHARE_ESTALE, "this client does not have that pool open");
	} else if (p->destroyed) {
		request_fail(r, SHARE_ENOENT, "pool '%s' was destroyed", p->name);
	} else if (!pool_is_adopted(p)) {
		request_fail(r, SHARE_ENOTSUP,
			     "pool '%s' is of kind %s, and memory that is there already goes only "
			     "into pools of kind adopted",
			     p->name, pool_kind_name(p));
	} else if (!pool_may(p, r->client, RIGHT_WRITE)) {
		pool_refuse(p, r->client, RIGHT_WRITE, &failure);
		request_fail_with(r, &failure);
	} else {
		return p;
	}
	return NULL;
}

/* What came with the request, still in its list; it may be anything. False when answered. */
static bool look_at_memory(struct request *r, struct memory_segment *out)
{
	const struct wire_adopt *m = &r->m->adopt;
	struct failure failure;

	if (!r->client->brings && client_let_bring(r->client) < 0) {
		request_fail_memory(r);
		return false;
	}
	if (!r->fds || r->fds->n == 0) {
		request_fail(r, SHARE_EAGAIN, "the descriptors of the memory are still to come");
		return false;
	}
	if (r->fds->n != 2) {
		request_fail(r, SHARE_EINVAL, "memory has two descriptors");
		return false;
	}
	*out = (struct memory_segment){
	    .recipe = {.size = m->size}, .fd = r->fds->fds[0], .fd_readonly = r->fds->fds[1]};
	memcpy(out->recipe.pointer, &m->offset, sizeof(m->offset));
	memory_identify(&out->recipe);
	if (memory_adopted_check(out->fd, out->fd_readonly, &out->recipe, &failure) == 0)
		return true;
	request_fail_with(r, &failure);
	return false;
}

static void give(struct request *r, struct pool *p, struct block *block)
{
	struct grant g = {.mode = SHARE_RDWR, .is_new = true};
	struct failure failure;
	int e;

	e = buffer_new(r->broker, block, r->m->adopt.size, r->client->account, &g.buffer);
	if (e != 0) {
		pool_free_block(r->broker, p, block, NULL, NULL);
		if (e == SHARE_EQUOTA)
			request_fail_quota(r, LIMIT_BYTES, "");
		else
			request_fail_memory(r);
		return;
	}
	e = grant_send(r->broker, r->client, r->m->serial, &g, &failure);
	if (e != 0)
		request_fail_with(r, &failure);
	buffer_unref(r->broker, g.buffer);
}

void handle_adopt(struct request *r)
{
	struct pool *p = find_pool(r);
	struct memory_segment memory;
	struct failure failure;
	struct block *block;

	if (!p || !look_at_memory(r, &memory))
		return;
	if (pool_adopt(r->broker, p, r->client->account, &memory, &block, &failure) != 0) {
		request_fail_with(r, &failure);
		return;
	}
	/* they are the segment's from now on */
	fd_list_take(r->fds, 0);
	fd_list_take(r->fds, 1);
	give(r, p, block);
}
